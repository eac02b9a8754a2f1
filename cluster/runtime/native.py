"""Run ranks without a container: a shim on each node starts, logs and ends the server's whole process tree."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

from cluster.model.bundle import bundle
from cluster.model.deployment import DeploymentId, rank_dir
from cluster.model.steps import Command, Run, Step, Write
from cluster.model.units import Seconds
from cluster.runtime.base import LaunchSpec, LogSource, RankSpec

RANK_PARTS = ("own", "box", "log", "shim", "prune", "rank")
LOOK_PARTS = ("own", "tail", "head", "stacks", "wires", "look")
LOG_BYTES = 64 * 2**20
KEEP_LOGS = 2
GRACE = Seconds(15.0)
UNDO_GRACE = Seconds(5.0)
RAS = ("127.0.0.1", 28028)


@dataclass(frozen=True, slots=True)
class HeadQuestion:
    """Where the head's own node reaches the API, and what to ask for."""

    host: str
    port: int
    model: str
    key_file: str | None = None
    ready: str = "/health"


@dataclass(frozen=True, slots=True)
class CompletionWish:
    """After the first 200 of /health one token is asked for, each time at most `limit` long, then every so often."""

    limit: Seconds = Seconds(60.0)
    every: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Where:
    """The ranks of one deployment on one node; `ranks` tells apart two nodes that share a state folder."""

    state_dir: str
    name: str
    ranks: tuple[int, ...] | None = None


class NativeRuntime:
    """`read_part` gives the source of a module of `cluster.agent` by its name."""

    def __init__(self, read_part: Callable[[str], bytes]) -> None:
        self._rank = bundle(read_part(part) for part in RANK_PARTS)
        self._look = bundle(read_part(part) for part in LOOK_PARTS)

    def prepare(self, spec: LaunchSpec) -> tuple[Step, ...]:
        """The program, once for each node, and what each rank is to run."""
        programs = {
            (rank.node, rank.state_dir): Write(
                rank.node, "put the launcher there", self._program(rank.state_dir), self._rank, 0o644
            )
            for rank in spec.ranks
        }
        specs = (
            Write(
                rank.node,
                f"write what rank {rank.rank} runs",
                _folder(spec.which, rank) / "spec.json",
                _spec_json(spec.which, rank),
            )
            for rank in spec.ranks
        )
        return (*programs.values(), *specs)

    def launch(self, spec: LaunchSpec) -> tuple[Step, ...]:
        ranks = sorted(spec.ranks, key=lambda rank: -rank.rank)
        return tuple(self._launch(spec.which, rank) for rank in ranks)

    def look(
        self,
        where: Where,
        *,
        boot: str | None = None,
        head: HeadQuestion | None = None,
        ras: tuple[str, int] | None = None,
        completion_limit: Seconds = Seconds(10.0),
        log_lines: int = 200,
        fabric: str | None = None,
    ) -> Command:
        """All that `status` needs of a node; `fabric` is its address there. Parse with `probe.ranks.parse_look`."""
        request = _where(where) | {
            "boot": boot,
            "http": asdict(head) if head else None,
            "completion_limit": completion_limit,
            "ras": ras,
            "log_lines": log_lines,
            "fabric": fabric,
        }
        return self._see("look", request, Seconds(completion_limit + 30.0))

    def watch(
        self,
        where: Where,
        boot: str,
        *,
        head: HeadQuestion | None = None,
        completion: CompletionWish | None = None,
        ras: tuple[str, int] | None = None,
        gpus: bool = False,
        fabric: str | None = None,
        every: Seconds = Seconds(1.0),
        places: Mapping[int, tuple[int, int]] | None = None,
        limit: Seconds = Seconds(7 * 86400.0),
    ) -> Command:
        """One line a second; `places` are those of the last line read, so that a new watch misses nothing."""
        request = _where(where) | {
            "boot": boot,
            "http": asdict(head) if head else None,
            "completion": asdict(completion) if completion else None,
            "ras": ras,
            "gpus": gpus,
            "fabric": fabric,
            "every": every,
            "places": {str(rank): place for rank, place in (places or {}).items()},
        }
        return self._see("watch", request, limit)

    def stop(self, where: Where, grace: Seconds = GRACE) -> Command:
        """End all that lives of a deployment, every boot of it. Exit code 5: something is left."""
        return self._end(_where(where), grace)

    def stop_boot(self, where: Where, boot: str, ranks: Iterable[int], grace: Seconds = GRACE) -> Command:
        folders = [str(rank_dir(where.state_dir, DeploymentId(where.name, boot), rank)) for rank in ranks]
        return self._end({"dirs": folders}, grace)

    def stacks(self, where: Where, limit: Seconds = Seconds(20.0)) -> Command:
        """Parse with `probe.rank_acts.parse_stacks`."""
        return self._see("stacks", _where(where) | {"limit": limit}, Seconds(2 * limit + 20.0))

    def log(
        self,
        rank: RankSpec,
        which: DeploymentId,
        *,
        lines: int | None = None,
        since: str | None = None,
        follow: bool = False,
        grep: str | None = None,
    ) -> LogSource:
        """Lines as they are in the file, each behind its UTC time; an empty one is only a sign of life."""
        folder = _folder(which, rank)
        request = {"dir": str(folder), "lines": lines, "since": since, "follow": follow, "grep": grep}
        limit = Seconds(7 * 86400.0) if follow else Seconds(120.0)
        return LogSource(rank.rank, rank.node, self._see("tail", request, limit), folder / "log")

    def _launch(self, which: DeploymentId, rank: RankSpec) -> Run:
        folder = str(_folder(which, rank))
        request = {"dir": folder, "program": str(self._program(rank.state_dir)), "unit": _unit(which, rank.rank)}
        return Run(
            rank.node,
            f"start rank {rank.rank}",
            _python(self._rank, "launch", request, Seconds(30.0)),
            undo=self._end({"dirs": [folder]}, UNDO_GRACE),
        )

    def _end(self, request: dict[str, Any], grace: Seconds) -> Command:
        return _python(self._rank, "stop", request | {"grace": grace}, Seconds(grace + 45.0))

    def _see(self, verb: str, request: dict[str, Any], limit: Seconds) -> Command:
        return _python(self._look, verb, request, limit)

    def _program(self, state_dir: str) -> PurePosixPath:
        """Named by its content: an upgrade does not pull the program from under a running shim."""
        return PurePosixPath(state_dir) / "agent" / f"rank-{sha256(self._rank).hexdigest()[:12]}.py"


def _python(program: bytes, verb: str, request: dict[str, Any], limit: Seconds) -> Command:
    """The program comes on standard input: it is always of our own version, and no file needs to be whole."""
    argv = ("python3", "-IS", "-", verb, json.dumps(request, separators=(",", ":")))
    return Command(argv, stdin=program, limit=limit)


def _where(where: Where) -> dict[str, Any]:
    ranks = list(where.ranks) if where.ranks is not None else None
    return {"root": where.state_dir, "deployment": where.name, "ranks": ranks}


def _folder(which: DeploymentId, rank: RankSpec) -> PurePosixPath:
    return rank_dir(rank.state_dir, which, rank.rank)


def _spec_json(which: DeploymentId, rank: RankSpec) -> bytes:
    spec = {
        "deployment": which.name,
        "boot": which.boot,
        "rank": rank.rank,
        "node": rank.node,
        "argv": rank.argv,
        "env": dict(rank.environment),
        "secrets": {} if rank.box else dict(rank.secrets),
        "cwd": None,
        "log_bytes": LOG_BYTES,
        "keep_logs": KEEP_LOGS,
    }
    if rank.box:
        spec["container"] = {"name": box_name(which, rank.rank), "engine": f"unix://{rank.box.engine}"}
    return (json.dumps(spec, indent=1) + "\n").encode()


def box_name(which: DeploymentId, rank: int) -> str:
    """The name of a rank's container: new for every boot, so that it is never a stranger's."""
    return f"sparkctl-{which.name}-rank{rank}-{which.boot}"


def _unit(which: DeploymentId, rank: int) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"sparkctl-{which.name}-rank{rank}-{which.boot}")
