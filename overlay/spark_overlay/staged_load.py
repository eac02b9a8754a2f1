"""While weights load, copy them to the GPU through two pinned buffers.

A checkpoint is mapped privately, and a copy straight from such a mapping can make the driver turn its pages into
anonymous memory: on one machine that is as large as the model again. Through a buffer every page stays clean.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

BUFFER = 64 << 20  # bytes
LEAST = 1 << 20  # smaller copies are not worth it


class StagedLoad:
    name = "staged_load"
    phases = ("load_model",)

    @contextmanager
    def around(self, worker: Any, phase: str, arguments: tuple[Any, ...]) -> Iterator[None]:
        with StagedCopies():
            yield


class StagedCopies(TorchFunctionMode):
    """Inside, `copy_` of a large pageable tensor to a GPU goes piece by piece; everything else is as it was."""

    def __init__(self, buffer_bytes: int = BUFFER) -> None:
        super().__init__()
        self._bytes = buffer_bytes
        self._buffers: list[tuple[torch.Tensor, torch.cuda.Event]] = []
        self.staged = 0  # bytes

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.copy_ and len(args) >= 2 and needs_staging(args[0], args[1]):
            self._copy(args[0], args[1])
            return args[0]
        return function(*args, **(kwargs or {}))

    def _copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        to_bytes = to.detach().view(-1).view(torch.uint8)
        from_bytes = source.detach().view(-1).view(torch.uint8)
        if not self._buffers:
            self._buffers = [self._buffer(), self._buffer()]
        for number, start in enumerate(range(0, from_bytes.numel(), self._bytes)):
            part = from_bytes[start : start + self._bytes]
            buffer, is_free = self._buffers[number % 2]
            is_free.synchronize()
            buffer[: part.numel()].copy_(part)
            to_bytes[start : start + part.numel()].copy_(buffer[: part.numel()], non_blocking=True)
            is_free.record()
        self.staged += from_bytes.numel()

    def _buffer(self) -> tuple[torch.Tensor, torch.cuda.Event]:
        return torch.empty(self._bytes, dtype=torch.uint8, device="cpu", pin_memory=True), torch.cuda.Event()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for _, is_free in self._buffers:
            is_free.synchronize()
        self._buffers = []


def needs_staging(to: Any, source: Any) -> bool:
    """A plain copy of many bytes from pageable memory to a GPU, without any change of type or shape."""
    return (
        isinstance(to, torch.Tensor)
        and isinstance(source, torch.Tensor)
        and to.is_cuda
        and source.device.type == "cpu"
        and source.nbytes >= LEAST
        and to.dtype == source.dtype
        and to.shape == source.shape
        and to.is_contiguous()
        and source.is_contiguous()
        and not source.is_pinned()
    )
