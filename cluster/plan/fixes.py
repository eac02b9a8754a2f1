"""Fixes that are safe to apply for somebody: what to run on a node, how to read the value, how to take it back."""

from dataclasses import dataclass

from cluster.model.checks import Change
from cluster.model.facts import NodeFacts

# What `fix` may change. Each is one value that can be read, set, and set back; nothing here touches a network, a
# service or a file that a person wrote.
FIXABLE = ("HOST.MIN_FREE", "HOST.REMOVE_IPC")
MIN_FREE_KIB = "1048576"


@dataclass(frozen=True, slots=True)
class Wish:
    """A change that is wanted: `read` prints the value now, `after` is what it shall print then."""

    check: str
    node: str
    what: str
    read: tuple[str, ...]
    after: str
    do: tuple[str, ...]
    undo: tuple[str, ...]  # with {before} for the value to go back to

    def change(self, before: str, at: str) -> Change:
        """With the value that is there now, which is the one to go back to."""
        undo = tuple(word.replace("{before}", before) for word in self.undo)
        return Change(self.check, self.node, self.what, before, self.after, self.do, undo, self.read, at)


def wish(check: str, facts: NodeFacts) -> Wish:
    """The change that fixes this check on a node. KeyError: there is no safe one."""
    root = () if facts.host.uid == 0 else ("sudo", "-n")
    user = facts.host.user
    return {
        "HOST.MIN_FREE": Wish(
            "HOST.MIN_FREE",
            facts.node,
            "vm.min_free_kbytes until the next boot",
            ("cat", "/proc/sys/vm/min_free_kbytes"),
            MIN_FREE_KIB,
            (*root, "sysctl", "-w", f"vm.min_free_kbytes={MIN_FREE_KIB}"),
            (*root, "sysctl", "-w", "vm.min_free_kbytes={before}"),
        ),
        "HOST.REMOVE_IPC": Wish(
            "HOST.REMOVE_IPC",
            facts.node,
            f"lingering of {user}",
            ("sh", "-c", f"test -e /var/lib/systemd/linger/{user} && echo yes || echo no"),
            "yes",
            ("loginctl", "enable-linger", user),
            ("loginctl", "disable-linger", user),
        ),
    }[check]
