"""Packed files: the published sizes, both layouts byte by byte, and the name of what is wrong with a file."""

from pathlib import Path, PurePosixPath

import pytest

from cluster.weights.engram import Source, tables
from cluster.weights.packed import (
    CHUNK_ROWS,
    BadPack,
    Fault,
    Layout,
    Packed,
    check,
    file_name,
    pack_file,
    packed,
    read_header,
)
from tests.unit.weights.test_engram import PUBLISHED

GOLDEN = Path(__file__).parents[2] / "golden" / "engram"
SMALL = Packed(layer=14, rows=range(5, 45), total=90)
PAGED = Packed(layer=14, rows=range(5, 45), total=90, layout=Layout.PAGED)


def row(number: int) -> bytes:
    """The weight bytes and the eight scale bytes of one row of the golden tables."""
    weight = bytes((number * 31 + column * 7 + 1) % 251 for column in range(256))
    return weight + bytes(120 + (number + column) % 9 for column in range(8))


def test_the_files_of_two_ranks_have_the_published_sizes():
    sizes = [packed(PUBLISHED, table, rank, 2).size for table in tables(PUBLISHED) for rank in (0, 1)]
    assert sizes == [50_688_463_456, 50_689_173_088, 50_689_856_320, 50_690_555_920]


def test_whole_pages_take_three_and_a_half_percent_more():
    pages = [packed(PUBLISHED, table, rank, 2, Layout.PAGED).size for table in tables(PUBLISHED) for rank in (0, 1)]
    assert [round(size / 2**30, 2) for size in pages] == [48.83, 48.83, 48.83, 48.83]


def test_the_header_is_the_published_one():
    header = packed(PUBLISHED, tables(PUBLISHED)[0], 1, 2).header()
    fields = ["44535631454e3431", "01", "ccb6710b", "1878e316", "1878e316", "0801"]
    assert header[:48] == b"".join(bytes.fromhex(field).ljust(8, b"\0") for field in fields)
    assert header[48:] == bytes(4048)


@pytest.mark.parametrize("name", ["engram-dense.bin", "engram-paged.bin"])
def test_the_golden_file_is_told_by_its_header(name):
    data = (GOLDEN / name).read_bytes()
    wanted = SMALL if "dense" in name else PAGED
    assert (read_header(data, name), wanted.size, wanted.header()) == (wanted, len(data), data[:4096])
    check(data[:4096], len(data), wanted, name)


@pytest.mark.parametrize(("name", "wanted"), [("engram-dense.bin", SMALL), ("engram-paged.bin", PAGED)])
def test_every_row_of_the_golden_file_is_at_its_offset(name, wanted):
    data = (GOLDEN / name).read_bytes()
    found = [data[wanted.offset(number) : wanted.offset(number) + 264] for number in wanted.rows]
    assert found == [row(number) for number in wanted.rows]


def test_no_row_of_a_paged_file_straddles_a_page():
    offsets = [PAGED.offset(number) for number in PAGED.rows]
    assert {offset // 4096 == (offset + 263) // 4096 for offset in offsets} == {True}


def test_sixteen_of_every_512_dense_rows_straddle_a_page():
    rows = Packed(1, range(512), 512)
    assert sum(rows.offset(number) // 4096 != (rows.offset(number) + 263) // 4096 for number in rows.rows) == 32


def test_a_pack_is_asked_for_in_numbers():
    out, shard = PurePosixPath("/nvme/engram-l14-r0of2.bin"), PurePosixPath("/model/48.safetensors")
    assert pack_file(PAGED, shard, Source(1000, 2000), out) == {
        "layer": 14,
        "low": 5,
        "high": 45,
        "total": 90,
        "layout": "paged",
        "chunk_rows": CHUNK_ROWS,
        "source": "/model/48.safetensors",
        "weight_at": 1000,
        "scale_at": 2000,
        "out": "/nvme/engram-l14-r0of2.bin",
    }


@pytest.mark.parametrize("layout", list(Layout))
def test_chunks_end_where_pages_do(layout):
    rows = Packed(14, range(3 * CHUNK_ROWS), 3 * CHUNK_ROWS, layout=layout)
    assert [rows.offset(chunk * CHUNK_ROWS) % 4096 for chunk in range(3)] == [0, 0, 0]


def test_a_file_is_named_after_its_layer_and_rank():
    assert file_name(14, 1, 2) == "engram-l14-r1of2.bin"


def refusal(first: bytes, size: int, wanted: Packed) -> Fault:
    with pytest.raises(BadPack) as refused:
        check(first, size, wanted, "p")
    return refused.value.fault


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        (Packed(1, range(5, 45), 90), Fault.WRONG_LAYER),
        (Packed(14, range(45, 90), 90), Fault.WRONG_ROWS),
        (Packed(14, range(5, 45), 91), Fault.WRONG_TABLE),
        (Packed(14, range(5, 45), 90, row_bytes=132), Fault.WRONG_TABLE),
        (PAGED, Fault.WRONG_LAYOUT),
    ],
)
def test_another_file_is_refused_by_name(seen, fault):
    assert refusal(seen.header(), seen.size, SMALL) is fault


@pytest.mark.parametrize("wanted", [SMALL, PAGED])
def test_a_file_has_exactly_its_size(wanted):
    assert refusal(wanted.header(), wanted.size - 1, wanted) is Fault.TRUNCATED
    assert refusal(wanted.header(), wanted.size + 1, wanted) is Fault.TRAILING_BYTES


def test_a_published_file_that_is_still_being_written_is_cut_off():
    # As found beside a table of 14 that is whole: a pack that was ended, under the final name.
    wanted = packed(PUBLISHED, tables(PUBLISHED)[0], 0, 2)
    assert refusal(wanted.header(), 31_138_512_896, wanted) is Fault.TRUNCATED


@pytest.mark.parametrize(
    ("first", "fault"),
    [
        (b"", Fault.TRUNCATED),
        (SMALL.header()[:4095], Fault.TRUNCATED),
        (bytes(4096), Fault.NOT_PACKED),
        (SMALL.header()[:100] + b"x" + SMALL.header()[101:], Fault.DAMAGED_HEADER),
        (PAGED.header()[:8] + b"\2" + PAGED.header()[9:], Fault.DAMAGED_HEADER),
        (Packed(14, range(45, 45), 90).header(), Fault.DAMAGED_HEADER),
        (Packed(14, range(5, 91), 90).header(), Fault.DAMAGED_HEADER),
        (Packed(14, range(5, 45), 90, row_bytes=0).header(), Fault.DAMAGED_HEADER),
    ],
)
def test_a_header_that_is_not_ours_is_refused_by_name(first, fault):
    assert refusal(first, SMALL.size, SMALL) is fault
