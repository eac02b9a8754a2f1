"""`doctor`: run everything that only reads, and pack it into one file, secrets masked, to show to somebody."""

import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from cluster import __version__
from cluster.app.agents import agent
from cluster.app.observe import told
from cluster.app.pace import REAL, Pace
from cluster.app.preflight import look as check
from cluster.app.ranks import look
from cluster.app.receipts import receipt_path
from cluster.app.session import OpenNode, Session
from cluster.app.stages import Stages
from cluster.app.status import report as status_of
from cluster.errors import NodeError, SparkctlError
from cluster.model.checks import DoctorReport, PreflightReport
from cluster.model.events import Emit
from cluster.model.flags import value_of
from cluster.model.settings import Settings, table
from cluster.model.values import plain
from cluster.node.base import Node
from cluster.probe.host import HOST
from cluster.probe.rdma import FABRIC

LOG_LINES = 2000
LIMIT = 60.0

# What is asked on every node, by the name of the file it goes into. All of it only reads, and most of it is nowhere.
QUESTIONS: dict[str, tuple[str, ...]] = {
    "uname": ("uname", "-a"),
    "uptime": ("uptime",),
    "cmdline": ("cat", "/proc/cmdline"),
    "meminfo": ("cat", "/proc/meminfo"),
    "pressure": ("cat", "/proc/pressure/memory", "/proc/pressure/io", "/proc/pressure/cpu"),
    "sysctl-vm": ("sysctl", "-a", "--pattern", "^vm\\."),
    "processes": ("ps", "-eo", "pid,ppid,user,rss,nlwp,stat,etime,comm", "--sort=-rss"),
    "addresses": ("ip", "-d", "addr"),
    "routes": ("ip", "route", "show", "table", "all"),
    "neighbours": ("ip", "neigh"),
    "counters": ("ip", "-s", "link"),
    "listeners": ("ss", "-Htln"),
    "rdma-link": ("rdma", "link"),
    "rdma-statistic": ("rdma", "statistic"),
    "ibv-devinfo": ("ibv_devinfo", "-v"),
    "sysfs-rdma": FABRIC.ask.argv,
    "set-up": HOST.ask.argv,
    "pci": ("lspci", "-vv"),
    "nvidia-smi": ("nvidia-smi", "-q"),
    "disks": ("df", "-PT"),
    "mounts": ("findmnt", "-D"),
    "failed-units": ("systemctl", "--failed", "--no-pager"),
    "kernel-log": ("journalctl", "-k", "-n", "800", "--no-pager", "-o", "short-iso"),
    "dmesg": ("dmesg", "--time-format", "iso"),
    "firmware": ("fwupdmgr", "get-devices", "--no-unreported-check"),
    "containers": ("docker", "ps", "--all", "--no-trunc", "--format", "{{.Names}} {{.Image}} {{.Status}}"),
}

Files = dict[str, str]


def doctor(
    settings: Settings,
    open_one: OpenNode,
    emit: Emit,
    redact: Callable[[str], str],
    folder: Path,
    pace: Pace = REAL,
) -> tuple[PreflightReport | None, DoctorReport]:
    """A node that cannot be reached is missing in the bundle, and the rest is still worth having."""
    stages, session = Stages(emit, pace.clock), Session(settings, open_one, emit)
    files: Files = {"sparkctl.txt": f"sparkctl {__version__}\n", "settings.json": _settings(settings)}
    missing = []
    checked = None
    try:
        with stages.stage("connect", tuple(node.name for node in settings.nodes)):
            session.open()
        missing += [f"{name}: {error.what}" for name, error in session.missing.items()]
        with stages.stage("check"):
            checked, problem = _checks(session, emit, pace, files)
            missing += problem
        with stages.stage("collect"):
            for name, answer in session.attempt(_ask).items():
                missing += _keep(files, name, answer)
            missing += _ranks(session, files)
    finally:
        session.close()
    return checked, _pack(files, redact, folder, tuple(dict.fromkeys(missing)))


def _settings(settings: Settings) -> str:
    known = {row.key: plain(value_of(settings, row.key)) for row in table() if not row.key.startswith("worker.")}
    nodes = [asdict(node) for node in settings.nodes]
    return json.dumps({"settings": known, "nodes": nodes}, indent=1, default=str) + "\n"


def _checks(session: Session, emit: Emit, pace: Pace, files: Files) -> tuple[PreflightReport | None, list[str]]:
    try:
        files["status.json"] = json.dumps(asdict(status_of(session)), indent=1, default=str) + "\n"
        if session.missing:
            return None, ["the checks: they need every node"]
        report = check(session, emit, pace=pace)
    except (SparkctlError, BaseExceptionGroup) as error:
        return None, [f"the checks: {error}"]
    files["preflight.json"] = json.dumps(asdict(report), indent=1) + "\n"
    return report, []


def _ask(node: Node) -> Files:
    answers = json.loads(told(node, node.run(agent("ask", [{"argv": argv} for argv in QUESTIONS.values()], LIMIT))))
    return {
        name: _answer(argv, one) for (name, argv), one in zip(QUESTIONS.items(), answers, strict=True)
    }  # fmt: skip


def _answer(argv: tuple[str, ...], one: dict[str, object]) -> str:
    shown = " ".join(argv) if argv[0] != "sh" else "a script of ours"
    ended = "not there" if one["exit"] is None else f"exit {one['exit']}"
    return f"$ {shown}   ({ended})\n{one['out']}{one['err']}"


def _keep(files: Files, node: str, answer: Files | NodeError) -> list[str]:
    if isinstance(answer, NodeError):
        return [f"{node}: {answer.what}"]
    files.update({f"{node}/{name}.txt": text for name, text in answer.items()})
    return []


def _ranks(session: Session, files: Files) -> list[str]:
    """The last lines of every rank, and the receipt of the last start."""
    missing = []
    for name, seen in look(session, ask_head=False, log_lines=LOG_LINES).items():
        if isinstance(seen, NodeError):
            missing.append(f"{name}: {seen.what}")
            continue
        for rank in seen.ranks:
            text = "".join(f"{line.at} {line.text}\n" for line in rank.log.lines)
            files[f"{name}/rank{rank.rank}-{rank.boot}.log"] = text
    head = session.settings.head.name
    if head in session.nodes:
        try:
            path = str(receipt_path(session.settings))
            files["receipt.json"] = session.head.read(path).decode("utf-8", "replace")
        except SparkctlError:
            missing.append("the receipt of a start: there was none")
    return missing


def _pack(files: Files, redact: Callable[[str], str], folder: Path, missing: tuple[str, ...]) -> DoctorReport:
    now = datetime.now(UTC)
    name = f"sparkctl-doctor-{now.strftime('%Y%m%dT%H%M%SZ')}"
    path = folder / f"{name}.tar.gz"
    with path.open("xb") as file:
        path.chmod(0o600)
        with tarfile.open(fileobj=file, mode="w:gz") as bundle:
            for inside, data in _masked(files, redact):
                entry = tarfile.TarInfo(f"{name}/{inside}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, int(now.timestamp())
                bundle.addfile(entry, BytesIO(data))
    return DoctorReport(str(path), path.stat().st_size, tuple(sorted(files)), missing)


def _masked(files: Files, redact: Callable[[str], str]) -> Iterator[tuple[str, bytes]]:
    for name in sorted(files):
        yield name, redact(files[name]).encode()
