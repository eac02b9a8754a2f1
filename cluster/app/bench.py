"""`bench engram`: how fast rows of the packed files come, on every node at once, with the server's own row store."""

import json
from typing import Any

from cluster.app.engram import look_at_tables
from cluster.app.observe import told
from cluster.app.pace import REAL, Pace
from cluster.app.session import OpenNode, Session
from cluster.app.stages import Stages
from cluster.errors import Refused, SettingsError, Unreadable
from cluster.model.engram import EngramBenchReport, RowStream
from cluster.model.events import Emit, StepStarted
from cluster.model.settings import Settings
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.node.base import Node
from cluster.plan.engram import BenchFile, files_to_bench

LIMIT = 900.0


def bench_engram(
    settings: Settings, open_one: OpenNode, emit: Emit, seconds: float, text: str, pace: Pace = REAL
) -> EngramBenchReport:
    """Reads only. Beside a server that answers it takes the disk's time from it."""
    if not settings.launch.venv:
        raise SettingsError("VENV is not set: the environment with the overlay, whose row store is measured")
    if not all(node.packed for node in settings.nodes):
        raise SettingsError("nothing says where the packed files are", fix="set HEAD_PACKED_DIR and WORKER_PACKED_DIR")
    stages, session = Stages(emit, pace.clock), Session(settings, open_one, emit)
    try:
        with stages.stage("connect", tuple(node.name for node in settings.nodes)):
            session.open().need_all()
        with stages.stage("look"):
            files = files_to_bench(settings, look_at_tables(session))
        if not any(files.values()):
            raise Refused("there is no packed file to read", where=settings.deployment, fix="sparkctl pack")

        def measure(node: Node) -> list[RowStream]:
            return [each for file in files[node.name] for each in _measure(settings, node, file, seconds, text, emit)]

        with stages.stage("measure"):
            found = session.each(measure)
    finally:
        session.close()
    return EngramBenchReport(settings.deployment, tuple(one for node in settings.nodes for one in found[node.name]))


def _measure(settings: Settings, node: Node, file: BenchFile, seconds: float, text: str, emit: Emit) -> list[RowStream]:
    emit(StepStarted("measure", node.name, f"reading rows of layer {file.layer}"))
    want = json.dumps({**file.request, "seconds": seconds}, separators=(",", ":"))
    python = f"{settings.launch.venv}/bin/python"
    command = Command((python, "-m", "spark_overlay.bench", want), stdin=text.encode(), limit=Seconds(LIMIT))
    answer = told(node, node.run(command))
    try:
        seen: dict[str, Any] = json.loads(answer)
        return [
            RowStream(node=node.name, rank=file.rank, layer=file.layer, engine=seen["engine"], **one)
            for one in seen["streams"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable("cannot read what was measured", where=node.name, evidence=[answer[:200]]) from error
