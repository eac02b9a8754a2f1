"""Ask every node's engine about the image, and the node about devices, for the container runtime."""

import json

from cluster.app.agents import agent
from cluster.app.observe import told
from cluster.app.session import Session
from cluster.model.settings import RuntimeKind, Settings
from cluster.node.base import Node
from cluster.plan.boxes import NVIDIA, RDMA, BoxSeen

ASK = f'echo "$HOME"; for each in {RDMA} {" ".join(NVIDIA)}; do if [ -e "$each" ]; then echo "$each"; fi; done'


def in_containers(settings: Settings) -> bool:
    return settings.launch.runtime is RuntimeKind.CONTAINER


def look_at_boxes(session: Session) -> dict[str, BoxSeen]:
    """Nothing is asked of an engine that the runtime does not need."""
    return session.each(lambda node: _look(node, session.settings)) if in_containers(session.settings) else {}


def _look(node: Node, settings: Settings) -> BoxSeen:
    from cluster.node.engine import Engine  # the SDK takes half a second to import

    (answer,) = json.loads(told(node, node.run(agent("ask", [{"argv": ["sh", "-c", ASK]}]))))
    home, *devices = answer["out"].split()
    engine = Engine(node, settings.container.engine)
    try:
        return BoxSeen(engine.seen(), engine.image(settings.image.name), home, tuple(devices))
    finally:
        engine.close()
