"""The row store through its Python binding: equal bits for every source, and errors that name the row."""

import ctypes
from pathlib import Path

import pytest

from tests.overlay.tables import dense, paged, write_shard

torch = pytest.importorskip("torch", reason="torch is not installed here")

TOTAL, ROWS = 20_000, range(3_001, 17_777)
GOLDEN = Path(__file__).parents[1] / "golden" / "engram"


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    return write_shard(tmp_path_factory.mktemp("shard") / "model.safetensors", 14, TOTAL)


@pytest.fixture(scope="module", params=["dense", "paged", "tensors", "resident scales"])
def store(request, shard, library, tmp_path_factory):
    from spark_overlay.row_store import Options, RowStore, Table

    table = Table(14, ROWS, TOTAL)
    if request.param in ("tensors", "resident scales"):
        options = Options(resident_scales=request.param != "tensors")
        opened = RowStore.open_tensors(shard.path, table, shard.weight_at, shard.scale_at, options)
    else:
        path = tmp_path_factory.mktemp("packed") / "rows.bin"
        path.write_bytes((dense if request.param == "dense" else paged)(shard, ROWS))
        opened = RowStore.open_packed(path, table)
    with opened:
        yield opened


def expected(shard, ids):
    is_owned = (ids >= ROWS.start) & (ids < ROWS.stop)
    safe = torch.where(is_owned, ids, 0).long()
    weight = torch.frombuffer(bytearray(shard.weight), dtype=torch.uint8).view(-1, 256)[safe] * is_owned[:, None]
    scale = torch.frombuffer(bytearray(shard.scale), dtype=torch.uint8).view(-1, 8)[safe] * is_owned[:, None]
    return weight.view(torch.float8_e4m3fn), scale


def same_bits(left, right):
    return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(left, right, strict=True))


def test_rows_are_those_of_a_plain_gather(store, shard):
    ids = torch.randint(-50, TOTAL, (30_000,), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    weights, scales = store.gather(ids)
    assert (weights.dtype, scales.dtype) == (torch.float8_e4m3fn, torch.uint8)
    assert same_bits((weights, scales), expected(shard, ids))


def test_both_sides_of_every_boundary_are_right(store, shard):
    edges = [0, ROWS.start - 1, ROWS.start, ROWS.stop - 1, ROWS.stop, TOTAL - 1, -1]
    ids = torch.tensor(edges, dtype=torch.int64)
    assert same_bits(store.gather(ids), expected(shard, ids))


def test_buffers_are_written_in_place(store, shard):
    ids = torch.tensor([5_000, 6_000], dtype=torch.int32)
    weights, scales = torch.empty(2, 256, dtype=torch.float8_e4m3fn), torch.empty(2, 8, dtype=torch.uint8)
    given = store.gather(ids, weights, scales)
    assert [tensor.data_ptr() for tensor in given] == [weights.data_ptr(), scales.data_ptr()]
    assert same_bits(given, expected(shard, ids))


def test_a_row_that_is_asked_for_twice_is_read_once(store):
    before = store.statistics()
    store.gather(torch.tensor([9_000, 9_001, 9_000, 9_000], dtype=torch.int32))
    after = store.statistics()
    reads_per_row = 2 if (after.reads - before.reads) == 4 else 1
    assert (after.duplicates - before.duplicates, after.reads - before.reads) == (2, 2 * reads_per_row)


def test_an_id_beyond_the_table_is_an_error_with_its_row(store):
    from spark_overlay.row_store import Code, RowStoreError

    with pytest.raises(RowStoreError) as failed:
        store.gather(torch.tensor([5_000, TOTAL], dtype=torch.int32))
    assert (failed.value.code, failed.value.row, failed.value.errno) == (Code.OUT_OF_TABLE, TOTAL, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ids": "float32"},
        {"weights": "uint8"},  # rows read as plain bytes are thirty times too large, and always positive
        {"scales": "int8"},
    ],
)
def test_tensors_of_another_type_are_refused(store, wrong):
    types = {"ids": "int32", "weights": "float8_e4m3fn", "scales": "uint8"} | wrong
    ids = torch.zeros(2, dtype=getattr(torch, types["ids"]))
    weights = torch.empty(2, 256, dtype=getattr(torch, types["weights"]))
    scales = torch.empty(2, 8, dtype=getattr(torch, types["scales"]))
    with pytest.raises(ValueError, match=next(iter(wrong))):
        store.gather(ids, weights, scales)


def test_a_strided_view_is_refused(store):
    with pytest.raises(ValueError, match="contiguous"):
        store.gather(torch.zeros(4, 2, dtype=torch.int32)[:, 0])


def test_the_way_of_reading_is_told(store):
    assert store.description.split(",")[0] in ("io_uring", "libaio", "threads")


@pytest.mark.parametrize("engine", ["IO_URING", "LIBAIO", "THREADS"])
def test_every_engine_gives_the_same_rows(engine, shard, library, tmp_path):
    from spark_overlay.row_store import Engine, Options, RowStore, RowStoreError, Table

    path = tmp_path / "rows.bin"
    path.write_bytes(dense(shard, ROWS))
    try:
        opened = RowStore.open_packed(path, Table(14, ROWS, TOTAL), Options(engine=Engine[engine], depth=32))
    except RowStoreError as error:
        pytest.skip(f"{engine} is not allowed here: {error}")
    ids = torch.randint(0, TOTAL, (5_000,), dtype=torch.int32, generator=torch.Generator().manual_seed(2))
    with opened:
        assert same_bits(opened.gather(ids), expected(shard, ids))


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ({"layer": 1}, "WRONG_LAYER"),
        ({"rows": range(TOTAL)}, "WRONG_ROWS"),
        ({"total": TOTAL + 1}, "WRONG_TABLE"),
        ({"weight_bytes": 128, "scale_bytes": 4}, "WRONG_TABLE"),
    ],
)
def test_another_file_is_refused_by_name(table, code, shard, library, tmp_path):
    from spark_overlay.row_store import Code, RowStore, RowStoreError, Table

    path = tmp_path / "rows.bin"
    path.write_bytes(dense(shard, ROWS))
    with pytest.raises(RowStoreError) as refused:
        RowStore.open_packed(path, Table(**({"layer": 14, "rows": ROWS, "total": TOTAL} | table)))
    assert (refused.value.code, refused.value.row) == (Code[code], None)


def test_a_flipped_byte_of_a_paged_file_names_the_row(shard, library, tmp_path):
    from spark_overlay.row_store import Code, RowStore, RowStoreError, Table

    data = bytearray(paged(shard, ROWS))
    data[4096 * 11 + 600] ^= 1
    path = tmp_path / "rows.bin"
    path.write_bytes(data)
    row = ROWS.start + 10 * 15
    with RowStore.open_packed(path, Table(14, ROWS, TOTAL)) as store, pytest.raises(RowStoreError) as failed:
        store.gather(torch.tensor([row], dtype=torch.int32))
    assert (failed.value.code, failed.value.row) == (Code.BAD_PAGE, row)


def test_a_closed_store_says_so(shard, library, tmp_path):
    from spark_overlay.row_store import RowStore, Table

    opened = RowStore.open_tensors(shard.path, Table(14, ROWS, TOTAL), shard.weight_at, shard.scale_at)
    opened.close()
    opened.close()
    with pytest.raises(ValueError, match="is closed"):
        opened.gather(torch.tensor([5_000], dtype=torch.int32))


def golden_row(number: int) -> bytes:
    weight = bytes((number * 31 + column * 7 + 1) % 251 for column in range(256))
    return weight + bytes(120 + (number + column) % 9 for column in range(8))


@pytest.mark.parametrize("name", ["engram-dense.bin", "engram-paged.bin"])
def test_the_golden_file_is_read_byte_for_byte(name, library):
    from spark_overlay.row_store import RowStore, Table

    with RowStore.open_packed(GOLDEN / name, Table(14, range(5, 45), 90)) as store:
        weights, scales = store.gather(torch.arange(5, 45))
    got = torch.cat([weights.view(torch.uint8), scales], dim=1).numpy().tobytes()
    assert got == b"".join(golden_row(number) for number in range(5, 45))


@pytest.mark.parametrize("name", ["engram-dense.bin", "engram-paged.bin"])
def test_the_golden_file_is_written_byte_for_byte(name, library):
    from spark_overlay.row_store import _Table, load_library

    native = load_library()
    is_paged = "paged" in name
    page = ctypes.create_string_buffer(4096)
    native.row_store_write_header(ctypes.byref(_Table(14, 5, 45, 90, 256, 8)), int(is_paged), page)
    written = page.raw
    rows = [golden_row(number) for number in range(5, 45)]
    if is_paged:
        for number in range(3):
            page = ctypes.create_string_buffer(b"".join(rows[number * 15 : number * 15 + 15]), 4096)
            native.row_store_seal_page(264, ctypes.c_uint64(number), page)
            written += page.raw
    else:
        written += b"".join(rows)
    assert written == (GOLDEN / name).read_bytes()
