"""Ask every node's engine about the image, and the node about devices, for the container runtime."""

import json

from cluster.app.agents import agent
from cluster.app.observe import told
from cluster.app.session import Session
from cluster.errors import SparkctlError
from cluster.model.events import Emit, Severity, Told
from cluster.model.settings import RuntimeKind, Settings
from cluster.node.base import Node
from cluster.plan.boxes import NVIDIA, RDMA, BoxSeen, is_stray, label_of

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
        labelled = engine.containers(label_of(settings))
        return BoxSeen(engine.seen(), engine.image(settings.image.name), home, tuple(devices), labelled)
    finally:
        engine.close()


def say_strays(session: Session, emit: Emit) -> None:
    """After a stop: what has our label and is no rank of ours is told, and left to whoever made it."""
    from cluster.node.engine import Engine

    settings = session.settings

    def look(node: Node) -> None:
        engine = Engine(node, settings.container.engine)
        try:
            left = [one for one in engine.containers(label_of(settings)) if is_stray(settings, one)]
        except SparkctlError as error:
            emit(Told(Severity.WARNING, f"cannot ask for containers that are left: {error.what}", node.name))
            return
        finally:
            engine.close()
        for one in left:
            text = f"container {one.name} ({one.state}) has this deployment's label, and no start on record made it"
            emit(Told(Severity.WARNING, f"{text}: it is left; docker rm -f {one.name} removes it", node.name))

    if in_containers(settings):
        session.attempt(look)
