"""docs/image-faults.md from what the tests last saw of each wrong situation: `python -m tests.wrong_images`."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.errors import SparkctlError

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "build" / "image-faults"
PAGE = ROOT / "docs" / "image-faults.md"
SITUATIONS = (
    "the worker's engine does not run",
    "the user is not in the group docker on the worker",
    "the user is not in the group docker on the head",
    "IMAGE is not set",
    "the name is no image's name",
    "no node has the image, and its name is of no registry",
    "the registry does not answer",
    "the registry wants a login",
    "a layer was changed in the registry",
    "the image is for another architecture",
    "the nodes have different images",
    "the worker's image differs, and --no-ship",
    "the head may not log in to the worker",
    "the head does not know the worker's host key",
    "too little room on the worker",
    "the worker's disk fills up during the load",
    "the worker's engine is killed during the load",
    "the link breaks during a shipment",
    "a staged layer was damaged",
    "another sparkctl is at work",
    "the worker's engine shows an image that it cannot run",
    "the image goes away between the check and the start",
    "the container's name is taken",
    "another's container carries our label",
    "a folder to be mounted is not there",
    "the image has no such program",
    "a rank's container runs out of memory",
    "a rank's container is started again by its engine",
)
HEAD = """\
# Wrong situations around images and containers

Each line is what a test saw with a real dockerd: most in two nodes of the lab, with sparkctl as a process of its own;
those that need an engine killed, filled or of another kind in `tests/contract`. `python -m tests.wrong_images` writes
this page from the record of the last run.

- **exit**: the exit code (2 settings, 3 unreachable, 4 refused, 5 a step failed, 6 a rank died, 7 locked, 8 degraded).
- **afterwards**: what is on the worker, or runs on the nodes. Where a shipment was cut, the same command goes on.

| situation | command | it says | type next | exit | afterwards |
|---|---|---|---|---:|---|
"""
MOVING = re.compile(
    r"(?<=pid )\d+|\d{4}-\d\d-\d\dT[\d:.]+Z?|\d{8}T\d{6}Z(?:-[0-9a-f]{4})?|(?<=sha256:)[0-9a-f]{64}"
    r"|SHA256:\S+|layers:[0-9a-f]{16}|\d+\.\d (?=GiB free)|/\S*pytest\S*|(?<=127\.0\.0\.1:)\d{4,5}"
)


@dataclass(frozen=True, slots=True)
class Row:
    situation: str
    command: str
    said: str
    fix: str
    exit: int
    left: str


def note(situation: str, command: str, said: str, code: int, left: str, fix: str = "") -> None:
    """One file for each, as suites run side by side. No wrong situation may end in exit 0."""
    assert situation in SITUATIONS
    assert code != 0
    assert said
    RECORD.mkdir(parents=True, exist_ok=True)
    row = Row(situation, command, said, fix, code, left)
    file = RECORD / f"{SITUATIONS.index(situation):02d}.json"
    file.write_text(json.dumps(asdict(row), indent=1, ensure_ascii=False) + "\n")


def note_error(situation: str, command: str, error: SparkctlError, left: str) -> None:
    note(situation, command, f"{error.where}: {error.what}" if error.where else error.what, error.exit, left, error.fix)


def main() -> int:
    rows = [Row(**json.loads(one.read_text())) for one in sorted(RECORD.glob("*.json"))]
    absent = [one for one in SITUATIONS if one not in {row.situation for row in rows}]
    if absent:
        print(f"not seen by any test yet: {'; '.join(absent)}", file=sys.stderr)
        return 1
    PAGE.write_text(HEAD + "".join(f"{line(row)}\n" for row in rows))
    print(f"{len(rows)} situations in {PAGE}")
    return 0


def line(row: Row) -> str:
    fix = "<br>".join(f"`{one}`" for one in MOVING.sub("…", row.fix).splitlines())
    cells = (row.situation, f"`{row.command}`", MOVING.sub("…", row.said), fix, str(row.exit), row.left)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


if __name__ == "__main__":
    sys.exit(main())
