"""A node made of scripted answers and a dict of files; it records what it was asked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event

from cluster.errors import ToolMissing, Unreachable
from cluster.model.steps import Command
from cluster.node.base import Identity, Result
from cluster.node.call import NEVER_RAN, Lines
from cluster.node.failures import file_failure

Answer = str | bytes | Result | Exception | Callable[[Command], Result]


@dataclass
class FakeNode:
    """`FakeNode("a", {("docker", "ps"): "id1\\n", ("nvidia-smi",): Result(9, b"", b"no driver")})`

    answers  by the longest fitting start of argv; text is what a successful program prints
    files    path -> content; `~/` is home
    gone     set it and nothing can be reached any more
    full_disk   set it and nothing can be written any more
    """

    name: str = "fake"
    answers: Mapping[tuple[str, ...], Answer] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    home: str = "/home/fake"
    noise: bytes = b""
    accepted_keys: tuple[str, ...] = ()
    commands: list[Command] = field(default_factory=list)
    modes: dict[str, int] = field(default_factory=dict)
    closed: bool = False
    gone: bool = False
    full_disk: bool = False

    @property
    def identity(self) -> Identity:
        return Identity(self.name, 22, "fake", "SHA256:fake")

    def socket(self, path: str) -> str:
        return path

    def run(self, command: Command) -> Result:
        self._check_reachable()
        self.commands.append(command)
        answer = self._answer(command)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Result):
            return answer
        if callable(answer):
            return answer(command)
        return Result(0, answer.encode() if isinstance(answer, str) else answer, b"")

    def stream(self, command: Command, on_line: Callable[[str], None], stop: Event | None = None) -> Result:
        if stop and stop.is_set():
            return NEVER_RAN
        result = self.run(command)
        lines = Lines(on_line)
        for piece in result.out.splitlines(keepends=True):
            if stop and stop.is_set():
                return Result(128 + 15, b"", result.err)
            lines.feed(piece)
        lines.finish()
        return Result(result.exit, b"", result.err, result.seconds, result.noise)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self._check_reachable()
        data = self.files.get(self._full(path))
        if data is None:
            raise file_failure("read", path, "ENOENT", "No such file or directory", self.name)
        return data[start : None if length is None else start + length]

    def write(self, path: str, data: bytes, mode: int) -> None:
        self._check_reachable()
        if self.full_disk:
            raise file_failure("write", path, "ENOSPC", "No space left on device", self.name)
        self.files[self._full(path)] = data
        self.modes[self._full(path)] = mode

    def close(self) -> None:
        self.closed = True

    def asked(self) -> list[str]:
        """The command lines so far, joined with spaces: for comparing, not for running."""
        return [" ".join(command.argv) for command in self.commands]

    def _full(self, path: str) -> str:
        return f"{self.home}/{path[2:]}" if path.startswith("~/") else path

    def _check_reachable(self) -> None:
        if self.gone or self.closed:
            raise Unreachable("the connection was lost" if self.gone else "this node was closed", where=self.name)

    def _answer(self, command: Command) -> Answer:
        for size in range(len(command.argv), 0, -1):
            if command.argv[:size] in self.answers:
                return self.answers[command.argv[:size]]
        if any(start[0] == command.argv[0] for start in self.answers):
            raise AssertionError(f"nothing is scripted for {command.argv}")
        raise ToolMissing(f"{command.argv[0]} is not in any folder we look in", where=self.name)
