"""Rows on their way from the file to the GPU: pinned buffers, the work handed to CUDA, and what came of it.

All of a lookup is in stream order: ids down, the gather as a host function, rows up, the kernel. The calling thread
does not wait, so that the file is read while the GPU computes what does not need the rows yet.
"""

import ctypes
from typing import Any

import torch

from spark_overlay.dequant import dequantise
from spark_overlay.row_store import Code, RowStore, RowStoreError, Work

RING = 64  # lookups that may be on their way at a time


class Driver:
    """The one call that torch does not offer."""

    def __init__(self) -> None:
        self._launch = ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc
        self._launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]

    def launch(self, stream: torch.cuda.Stream, function: Any, work: Work) -> None:
        failure = self._launch(stream.cuda_stream, function, ctypes.addressof(work))
        if failure:
            raise RuntimeError(f"cuLaunchHostFunc failed with {failure}")


class Staging:
    """The buffers of one table for lookups of up to `most` tokens with `columns` rows each."""

    def __init__(self, store: RowStore, most: int, columns: int, device: torch.device) -> None:
        table = store.table
        rows = most * columns
        self._store = store
        self._driver = Driver()
        self.most = most
        self._columns = columns
        self._device_ids = torch.full((most, columns), -1, dtype=torch.int32, device=device)
        self._ids = torch.empty(most, columns, dtype=torch.int32, device="cpu", pin_memory=True)
        self._weights = torch.empty(rows, table.weight_bytes, dtype=torch.float8_e4m3fn, device="cpu", pin_memory=True)
        self._scales = torch.empty(rows, table.scale_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)
        self._device_weights = torch.empty_like(self._weights, device=device)
        self._device_scales = torch.empty_like(self._scales, device=device)
        self._ring = [(store.work(self._ids, self._weights, self._scales), torch.cuda.Event()) for _ in range(RING)]
        self._next = 0
        self._last = torch.cuda.Event()

    def lookup(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        """[tokens, columns this rank has] of ids into [tokens, columns, width] of values, on the current stream."""
        self.raise_failure()
        tokens, have = ids.shape
        rows = tokens * self._columns
        stream = torch.cuda.current_stream()
        # The buffers are shared by all lookups of this table, whichever stream they come on.
        stream.wait_event(self._last)
        work, done = self._take()
        work.count = rows
        self._device_ids[:tokens, :have].copy_(ids)
        self._ids[:tokens].copy_(self._device_ids[:tokens], non_blocking=True)
        self._driver.launch(stream, self._store.run_function(), work)
        done.record(stream)
        self._device_weights[:rows].copy_(self._weights[:rows], non_blocking=True)
        self._device_scales[:rows].copy_(self._scales[:rows], non_blocking=True)
        dequantise(self._device_weights[:rows], self._device_scales[:rows], out)
        self._last.record(stream)

    def raise_failure(self) -> None:
        """A gather that failed gave "not a number" to the model; now it ends the process, by the name of the row."""
        for work, _ in self._ring:
            if work.error.code != Code.OK:
                raise RowStoreError.of(self._store.path, work.error)

    def _take(self) -> tuple[Work, torch.cuda.Event]:
        work, done = self._ring[self._next]
        self._next = (self._next + 1) % RING
        done.synchronize()
        return work, done
