"""Rows of an Engram table by their ids, out of a file: the C++ row store as torch tensors.

The tensors are written in place by the library; only the ids are looked at in Python, and never copied.
"""

import ctypes
import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import torch

ABI = 1
LIBRARY = "librow_store.so"


class Code(IntEnum):
    """Why something failed, as in row_store.h."""

    OK = 0
    ARGUMENT = 1
    OPEN = 2
    NOT_PACKED = 3
    DAMAGED_HEADER = 4
    WRONG_LAYER = 5
    WRONG_TABLE = 6
    WRONG_ROWS = 7
    TRUNCATED = 8
    TRAILING_BYTES = 9
    OUT_OF_TABLE = 10
    READ = 11
    SHORT_READ = 12
    BAD_PAGE = 13
    ENGINE = 14
    MEMORY = 15


class Engine(IntEnum):
    PROBE = 0
    IO_URING = 1
    LIBAIO = 2
    THREADS = 3


class RowStoreError(RuntimeError):
    """`row` is None when no single row is to blame, `errno` is 0 when the system did not complain."""

    def __init__(self, path: str, code: Code, errno: int, row: int | None, text: str) -> None:
        super().__init__(f"{path}: {text}")
        self.code = code
        self.errno = errno
        self.row = row

    @classmethod
    def of(cls, path: str, error: "Error") -> "RowStoreError":
        row = error.row if error.row >= 0 else None
        return cls(path, Code(error.code), error.error, row, error.text.decode("utf-8", "replace"))


@dataclass(frozen=True)
class Table:
    """The rows that this rank owns of a layer's table of `total` rows."""

    layer: int
    rows: range
    total: int
    weight_bytes: int = 256
    scale_bytes: int = 8


@dataclass(frozen=True)
class Options:
    """`depth` reads in flight, `alignment` of direct reads: 0 for what suits. `check`: compare checksums, where any."""

    engine: Engine = Engine.PROBE
    depth: int = 0
    alignment: int = 0
    buffered: bool = False
    check: bool = True
    resident_scales: bool = False
    cache_bytes: int = 0


@dataclass(frozen=True)
class Statistics:
    """Sums since the store was opened; `nanoseconds` and `slowest` are of whole batches."""

    batches: int
    ids: int
    zero_rows: int
    duplicates: int
    cache_hits: int
    reads: int
    straddling: int
    bytes: int
    retries: int
    nanoseconds: int
    slowest: int
    resident_bytes: int


class Error(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_int32),
        ("error", ctypes.c_int32),
        ("row", ctypes.c_int64),
        ("text", ctypes.c_char * 240),
    ]


class _Table(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("layer", "low", "high", "total")),
        *((name, ctypes.c_uint32) for name in ("weight_bytes", "scale_bytes")),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_uint32)
            for name in ("engine", "depth", "alignment", "buffered", "unchecked", "resident_scales")
        ),
        ("cache_bytes", ctypes.c_uint64),
    ]


class Work(ctypes.Structure):
    """A gather that somebody else will run. It must outlive that run; `count` may be less than the buffers hold."""

    _fields_ = [
        ("store", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("weights", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("error", Error),
    ]


class _Statistics(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in Statistics.__dataclass_fields__]


def library_path() -> Path:
    """Beside this module in an installed overlay, else where `make -C overlay/csrc` leaves it."""
    here = Path(__file__).resolve().parent
    given = os.environ.get("SPARK_ROW_STORE")
    places = [Path(given)] if given else [here / LIBRARY, here.parent / "csrc" / "build" / LIBRARY]
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(f"the row store is not built, looked at {', '.join(map(str, places))}")


def load_library(path: Path | None = None) -> Any:
    library = ctypes.CDLL(os.fspath(path or library_path()))
    if library.row_store_abi() != ABI:
        raise RuntimeError(f"{path or library_path()} is of another version: build and install the overlay as one")
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    common: list[Any] = [ctypes.POINTER(_Options), ctypes.POINTER(Error)]
    library.row_store_open_packed.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Table), *common]
    library.row_store_open_packed.restype = pointer
    library.row_store_open_tensors.argtypes = [
        *(ctypes.c_char_p, ctypes.POINTER(_Table), ctypes.c_uint64, ctypes.c_uint64),
        *common,
    ]
    library.row_store_open_tensors.restype = pointer
    for gather in (library.row_store_gather32, library.row_store_gather64):
        gather.argtypes = [pointer, pointer, size, pointer, pointer, ctypes.POINTER(Error)]
        gather.restype = ctypes.c_int
    library.row_store_read_statistics.argtypes = [pointer, ctypes.POINTER(_Statistics)]
    library.row_store_read_statistics.restype = None
    library.row_store_description.argtypes = [pointer]
    library.row_store_description.restype = ctypes.c_char_p
    library.row_store_close.argtypes = [pointer]
    library.row_store_close.restype = None
    return library


class RowStore:
    """An open table. Close it, or use it in a `with`; callers in several threads take turns."""

    def __init__(self, library: Any, handle: int, path: str, table: Table) -> None:
        self._library = library
        self._handle: int | None = handle
        self.path = path
        self.table = table
        self.description: str = library.row_store_description(handle).decode()

    @classmethod
    def open_packed(cls, path: str | os.PathLike[str], table: Table, options: Options | None = None) -> "RowStore":
        """A packed file of exactly this table; anything else is refused by the name of what is wrong."""
        return cls._open("row_store_open_packed", path, table, (), options or Options())

    @classmethod
    def open_tensors(
        cls,
        path: str | os.PathLike[str],
        table: Table,
        weight_at: int,
        scale_at: int,
        options: Options | None = None,
    ) -> "RowStore":
        """Straight from a checkpoint's shard, whose tensors begin at these bytes of the file."""
        return cls._open("row_store_open_tensors", path, table, (weight_at, scale_at), options or Options())

    @classmethod
    def _open(
        cls, how: str, path: str | os.PathLike[str], table: Table, places: tuple[int, ...], options: Options
    ) -> "RowStore":
        library = load_library()
        wanted = _Table(
            *(table.layer, table.rows.start, table.rows.stop, table.total),
            *(table.weight_bytes, table.scale_bytes),
        )
        chosen = _Options(
            *(int(options.engine), options.depth, options.alignment, options.buffered, not options.check),
            *(options.resident_scales, options.cache_bytes),
        )
        error = Error()
        handle = getattr(library, how)(os.fsencode(path), wanted, *places, chosen, error)
        if not handle:
            raise RowStoreError.of(os.fspath(path), error)
        return cls(library, handle, os.fspath(path), table)

    def gather(
        self, ids: torch.Tensor, weights: torch.Tensor | None = None, scales: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows as float8_e4m3fn, and their e8m0 scale bytes as uint8, in the order of the ids.

        Dead ids (negative) and rows of other ranks are zero. Buffers may be given, to be written in place.
        """
        count = ids.numel()
        if weights is None:
            weights = torch.empty(count, self.table.weight_bytes, dtype=torch.float8_e4m3fn)
        if scales is None:
            scales = torch.empty(count, self.table.scale_bytes, dtype=torch.uint8)
        _check("ids", ids, count, (torch.int32, torch.int64))
        _check("weights", weights, count * self.table.weight_bytes, (torch.float8_e4m3fn,))
        _check("scales", scales, count * self.table.scale_bytes, (torch.uint8,))
        self.gather_at(ids.data_ptr(), ids.element_size(), count, weights.data_ptr(), scales.data_ptr())
        return weights, scales

    def gather_at(self, ids: int, id_bytes: int, count: int, weights: int, scales: int) -> None:
        """The same on plain addresses, for staging buffers that live for long."""
        if self._handle is None:
            raise ValueError(f"{self.path} is closed")
        gather = self._library.row_store_gather32 if id_bytes == 4 else self._library.row_store_gather64
        error = Error()
        if not gather(self._handle, ids, count, weights, scales, error):
            raise RowStoreError.of(self.path, error)

    def work(self, ids: torch.Tensor, weights: torch.Tensor, scales: torch.Tensor) -> Work:
        """A gather on these buffers as a value, for `run_function`."""
        count = ids.numel()
        _check("ids", ids, count, (torch.int32,))
        _check("weights", weights, count * self.table.weight_bytes, (torch.float8_e4m3fn,))
        _check("scales", scales, count * self.table.scale_bytes, (torch.uint8,))
        return Work(self._handle, ids.data_ptr(), count, weights.data_ptr(), scales.data_ptr())

    def run_function(self) -> int:
        """The address of the library's function that takes the address of a Work."""
        return ctypes.cast(self._library.row_store_run, ctypes.c_void_p).value or 0

    def statistics(self) -> Statistics:
        if self._handle is None:
            raise ValueError(f"{self.path} is closed")
        seen = _Statistics()
        self._library.row_store_read_statistics(self._handle, seen)
        return Statistics(*(getattr(seen, name) for name in Statistics.__dataclass_fields__))

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.row_store_close(handle)

    def __enter__(self) -> "RowStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check(name: str, tensor: torch.Tensor, elements: int, dtypes: tuple[torch.dtype, ...]) -> None:
    """The library writes to plain addresses: what it is given must be what it takes it for."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous and on the CPU")
    if tensor.dtype not in dtypes or tensor.numel() != elements:
        raise ValueError(
            f"{name} must be {elements} of {' or '.join(map(str, dtypes))}, not {tensor.shape} {tensor.dtype}"
        )
