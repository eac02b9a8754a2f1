"""`compose`: the compose file of each rank, from what the nodes have now."""

import json

from cluster.app.agents import agent
from cluster.app.boxes import in_containers
from cluster.app.check import findings_of
from cluster.app.observe import told
from cluster.app.session import Session
from cluster.errors import Refused, SettingsError
from cluster.model.deployment import DeploymentId
from cluster.model.events import Emit, ExportReport
from cluster.model.settings import is_alone
from cluster.node.base import Node
from cluster.plan.compose import BOOT, bind_sources, compose_file
from cluster.plan.launch import api_url, launch_spec

ASK = 'for each; do [ -e "$each" ] || printf "%s\\n" "$each"; done'


def compose(session: Session, emit: Emit, only: int | None = None) -> ExportReport:
    """Refuses where a folder that would be mounted is missing: an engine would make an empty one in its place."""
    settings = session.settings
    if not in_containers(settings):
        raise SettingsError("RUNTIME is not container: there is nothing to compose", fix="set RUNTIME=container")
    checked, _ = findings_of(session, emit, ports=False)
    launch = launch_spec(settings, DeploymentId(settings.deployment, BOOT), checked.wiring, checked.boxes)
    sources = bind_sources(launch)
    missing = {
        name: lost for name, lost in session.each(lambda node: _missing(node, sources[node.name])).items() if lost
    }
    if missing:
        raise Refused(
            "what would be mounted is not there",
            evidence=[f"{name}: {path}" for name, paths in missing.items() for path in paths],
            fix="make these folders and files, or change the settings that name them",
        )
    ranks = [rank for rank in launch.ranks if only in (None, rank.rank)]
    if not ranks:
        raise SettingsError(f"there is no rank {only}", fix=f"ranks are 0 to {len(launch.ranks) - 1}")
    asked = f"{api_url(settings)}{settings.watch.ready_path}" if is_alone(settings) else ""
    texts = (f"# rank {rank.rank}, for {rank.node}\n{compose_file(launch.which, rank, asked)}" for rank in ranks)
    return ExportReport("compose", settings.deployment, "---\n".join(texts))


def _missing(node: Node, paths: tuple[str, ...]) -> tuple[str, ...]:
    (answer,) = json.loads(told(node, node.run(agent("ask", [{"argv": ["sh", "-c", ASK, "sh", *paths]}]))))
    return tuple(answer["out"].splitlines())
