"""A Unix socket here whose connections are connections to a socket on a node, over the session that is open already."""

import contextlib
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Protocol


class Pipe(Protocol):
    """Bytes both ways, to and from the socket on the node. `receive` answers b"" at the end."""

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes: ...

    def end_sending(self) -> None: ...

    def close(self) -> None: ...


class Forward:
    """Listens in a folder of mode 0700 until closed. Each connection here opens one pipe; none is opened before."""

    def __init__(self, open_pipe: Callable[[], Pipe]) -> None:
        self._open_pipe = open_pipe
        self._folder = tempfile.mkdtemp(prefix="sparkctl-")
        self.path = str(Path(self._folder) / "socket")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(8)
        Thread(target=self._accept, name=f"forward {self.path}", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            Thread(target=self._serve, args=(here,), name="forward", daemon=True).start()

    def _serve(self, here: socket.socket) -> None:
        """A pipe that cannot be opened closes the connection; why is asked of the node by whoever connected."""
        with here, contextlib.suppress(Exception):  # a thread root: the peer sees the connection end
            pipe = self._open_pipe()
            back = Thread(target=_back, args=(pipe, here), daemon=True)
            back.start()
            try:
                while data := here.recv(1 << 16):
                    pipe.send(data)
                pipe.end_sending()
                back.join()
            finally:
                pipe.close()


def _back(pipe: Pipe, here: socket.socket) -> None:
    with contextlib.suppress(Exception):  # a thread root: the peer sees the connection end
        while data := pipe.receive():
            here.sendall(data)
    with contextlib.suppress(OSError):
        here.shutdown(socket.SHUT_RDWR)
