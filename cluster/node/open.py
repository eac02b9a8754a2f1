"""From the way to a node, as a person names it, to the node."""

from pathlib import Path

from cluster.node.base import Node
from cluster.node.control import Local, parse_control


def open_node(name: str, control: str, *, ssh_config: Path | None = None, accept_new_host_key: bool = False) -> Node:
    """The connected node. `control` is `local`, `[user@]host[:port]` or a Host of ssh_config.

    Raises SettingsError for a control that has no such shape, NodeError when there is no connection.
    """
    target = parse_control(control)
    if isinstance(target, Local):
        from cluster.node.local import LocalNode

        return LocalNode(name)
    from cluster.node.ssh import SshNode

    node = SshNode(name, target, ssh_config=ssh_config, accept_new_host_key=accept_new_host_key)
    node.connect()
    return node
