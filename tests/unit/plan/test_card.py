"""The test card: a PNG that others can read, with what it is said to show."""

import struct
import zlib

from cluster.plan.card import BLUE, HEIGHT, RED, WHITE, WIDTH, WORD, colour, png


def chunks(data: bytes):
    place = 8
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        name, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        (crc,) = struct.unpack(">I", data[place + 8 + size : place + 12 + size])
        assert crc == zlib.crc32(name + body)
        yield name, body
        place += 12 + size


def test_it_is_a_whole_png_of_its_size():
    data = png()
    found = dict(chunks(data))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert list(found) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", found[b"IHDR"]) == (WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    rows = zlib.decompress(found[b"IDAT"])
    assert len(rows) == HEIGHT * (1 + 3 * WIDTH)
    assert rows[140 * (1 + 3 * WIDTH) + 1 + 3 * 130 :][:3] == RED


def test_it_is_small_enough_for_an_argument():
    assert len(png()) < 20_000


def test_shapes_lie_apart_on_white():
    assert [colour(*place) for place in ((130, 140), (380, 140), (0, 0), (256, 140))] == [RED, BLUE, WHITE, WHITE]


def test_the_word_can_be_read():
    rows = ["".join("#" if colour(x, y) == b"\0\0\0" else "." for x in range(146, 386, 8)) for y in range(284, 340, 8)]
    assert len(WORD) * 6 == len(rows[0])
    assert rows == [
        ".####.####...###..####..#...#.",
        "#.....#...#.#...#.#...#.#..#..",
        "#.....#...#.#...#.#...#.#.#...",
        ".###..####..#####.####..##....",
        "....#.#.....#...#.#.#...#.#...",
        "....#.#.....#...#.#..#..#..#..",
        "####..#.....#...#.#...#.#...#.",
    ]
