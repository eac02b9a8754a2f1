"""Which engine a test gets: the installed one, or Debian's next with either of its image stores, beside it.

The newer engine lies in a root of its own, which `python3 scripts/build_images.py engine` makes. For the engine's
process alone, that root's /usr lies over this system's: every other path is the same for both, and containers start.
"""

import os
import shutil
from enum import StrEnum
from pathlib import Path

from scripts.build_images import engine_root

ROOT = engine_root()
OVER = 'mount --bind "$1/usr" /usr && shift && exec "$@"'


class Kind(StrEnum):
    INSTALLED = "installed"
    CLASSIC = "newer-overlay2"
    CONTAINERD = "newer-containerd"


def chosen() -> Kind:
    """What tests use that ask for no kind: by hand, all of them can be run on another one."""
    return Kind(os.environ.get("SPARKCTL_TEST_ENGINE", Kind.INSTALLED))


def missing(kind: Kind) -> str | None:
    """Why no such engine can be started here, or None."""
    if os.geteuid() != 0:
        return "dockerd needs root"
    if kind is Kind.INSTALLED:
        absent = [tool for tool in ("dockerd", "containerd", "runc") if shutil.which(tool) is None]
        return f"not installed: {', '.join(absent)} (Debian: docker.io)" if absent else None
    if ROOT.exists():
        return None
    return f"no newer engine here; `python3 scripts/build_images.py engine` makes {ROOT}"


def daemon(kind: Kind, *options: str | Path) -> tuple[str | Path, ...]:
    """The words that become dockerd, under the process number of their first."""
    words = ("dockerd", "--bridge=none", "--iptables=false", *options)
    if kind is Kind.INSTALLED:
        return words
    store = f"containerd-snapshotter={str(kind is Kind.CONTAINERD).lower()}"
    entering = ("unshare", "--mount", "--propagation=slave", "sh", "-c", OVER, "over", ROOT)
    return (*entering, *words, "--ip6tables=false", f"--feature={store}")
