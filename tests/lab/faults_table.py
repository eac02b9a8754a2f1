"""docs/faults.md from what the last run of the fault tests recorded: `python -m tests.lab.faults_table`."""

from __future__ import annotations

import json
import re
import sys

from tests.lab.faults import RECORD, Row
from tests.lab.specification import REPOSITORY

PAGE = REPOSITORY / "docs" / "faults.md"
HEAD = """\
# Faults, and what sparkctl says of them

Each line is what a test in `tests/lab` saw: two nodes in network namespaces with their own sshd, and sparkctl as a
process of its own on the head (or on a laptop, where that is said). The faults of a serving deployment are tried on
real vLLM, tensor parallel 2, one rank on each node, on CPU; those around a start and a stop on a small server in its
place. `python -m tests.lab.faults_table` writes this page from the record of the last run.

- **after**: seconds from the fault to the sentence. For `status` it is the first look of `status --watch --every 1`
  that no longer says `serving`, or the time of one look where that is all there is; for a refused `start` and for
  `stop` it is the time of the whole command.
- **exit**: the exit code of the command that said it (2 settings, 3 unreachable or cannot tell, 4 refused, 6 a rank
  died, 7 locked, 8 degraded, 9 absent, 10 hung, 130 interrupted). No fault ends in 0, and none makes sparkctl hang.
- **left**: what runs on the nodes afterwards. A `start` that fails removes what it started; `status` removes nothing.

| fault | command | after | it says | exit | left |
|---|---|---:|---|---:|---|
"""
FOOT = """
What is left beside a death while serving is counted at once. The launcher of the rank that died ends the rest of its
processes within ten seconds; the other rank may stay for ever (vLLM's headless rank does), and `sparkctl restart` or
`sparkctl stop` ends it.

A disk of the head that fills up while serving is not in the table, for it ends nothing: requests are answered, `status`
says serving (exit 0), a second `start` has nothing to do, and `stop` works; only new lines of the logs are lost.
"""
NUMBER = re.compile(r"(?<=pid )\d+|\d{4}-\d\d-\d\dT[\d:.]+Z?")


def main() -> int:
    if not RECORD.exists():
        print(f"nothing is recorded in {RECORD}: run pytest tests/lab first", file=sys.stderr)
        return 1
    rows = [Row(**row) for row in json.loads(RECORD.read_text()).values()]
    PAGE.write_text(HEAD + "".join(f"{line(row)}\n" for row in rows) + FOOT)
    print(f"{len(rows)} faults in {PAGE}")
    return 0


def line(row: Row) -> str:
    said = NUMBER.sub("…", row.said)
    cells = (row.fault, f"`{row.command}`", f"{row.seconds:.1f} s", said, str(row.exit), row.left)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


if __name__ == "__main__":
    sys.exit(main())
