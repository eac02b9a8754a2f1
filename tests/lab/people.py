"""People in a lab node who are not root: one in the group docker, one who is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.lab.node import Node

MEMBER, GUEST = "op", "guest"


def settle(node: Node) -> None:
    """Both log in with the person's key, and reach the other node as themselves."""
    for name, groups in ((MEMBER, ("-G", "docker")), (GUEST, ())):
        node.run(("useradd", "--create-home", "--shell", "/bin/bash", "--password", "*", *groups, name), check=True)
        home = f"/home/{name}"
        node.run(("cp", "-r", "/root/.ssh", f"{home}/.ssh"), check=True)
        config = node.path(f"{home}/.ssh/config")
        config.write_text(config.read_text().replace("User root", f"User {name}"))
        node.run(("chown", "-R", f"{name}:{name}", f"{home}/.ssh"), check=True)
