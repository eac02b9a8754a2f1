"""A test card for models that see: a red circle, a blue square, and a word, as a PNG (RFC 2083) without any library."""

import struct
import zlib

WIDTH, HEIGHT = 512, 384
WORD = "SPARK"
WHITE, BLACK, RED, BLUE = b"\xff\xff\xff", b"\x00\x00\x00", b"\xdc\x14\x14", b"\x14\x28\xdc"
CIRCLE = (130, 140, 80)  # middle and radius
SQUARE = (300, 60, 460, 220)
LETTERS_AT, PIXEL = (146, 280), 8
LETTERS = {  # five by seven, a row a number
    "S": (0b01111, 0b10000, 0b10000, 0b01110, 0b00001, 0b00001, 0b11110),
    "P": (0b11110, 0b10001, 0b10001, 0b11110, 0b10000, 0b10000, 0b10000),
    "A": (0b01110, 0b10001, 0b10001, 0b11111, 0b10001, 0b10001, 0b10001),
    "R": (0b11110, 0b10001, 0b10001, 0b11110, 0b10100, 0b10010, 0b10001),
    "K": (0b10001, 0b10010, 0b10100, 0b11000, 0b10100, 0b10010, 0b10001),
}


def png() -> bytes:
    rows = b"".join(b"\0" + b"".join(colour(x, y) for x in range(WIDTH)) for y in range(HEIGHT))
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)  # eight bits, RGB
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND")


def _chunk(name: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def colour(x: int, y: int) -> bytes:
    """The colour at a place."""
    middle_x, middle_y, radius = CIRCLE
    left, top, right, bottom = SQUARE
    if (x - middle_x) ** 2 + (y - middle_y) ** 2 <= radius**2:
        return RED
    if left <= x < right and top <= y < bottom:
        return BLUE
    return BLACK if _is_written(x, y) else WHITE


def _is_written(x: int, y: int) -> bool:
    column, row = (x - LETTERS_AT[0]) // PIXEL, (y - LETTERS_AT[1]) // PIXEL
    letter, inside = divmod(column, 6)  # one column between letters
    if not (0 <= row < 7 and 0 <= letter < len(WORD) and inside < 5):
        return False
    return bool(LETTERS[WORD[letter]][row] >> (4 - inside) & 1)
