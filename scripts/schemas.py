#!/usr/bin/env python3
"""Write the published JSON schemas from the events; `--check` only says whether they are up to date."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cluster.report.schema import VERSION, all_schemas, breaks  # noqa: E402  # found only after the line above

FOLDER = ROOT / "docs" / "schema" / f"v{VERSION}"


def rendered() -> dict[str, str]:
    return {name: json.dumps(schema, indent=2) + "\n" for name, schema in all_schemas().items()}


def differing(folder: Path) -> list[str]:
    """Names of the files that are missing, changed or superfluous."""
    want = rendered()
    have = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.schema.json")}
    return sorted(name for name in want.keys() | have.keys() if want.get(name) != have.get(name))


def broken(folder: Path) -> list[str]:
    """What a program that reads the committed version would trip over."""
    want = all_schemas()
    found: list[str] = []
    for path in sorted(folder.glob("*.schema.json")):
        old = json.loads(path.read_text(encoding="utf-8"))
        new = want.get(path.name)
        found += [f"{path.name}: {one}" for one in (breaks(old, new) if new else ["the event is gone"])]
    return found


def main(arguments: list[str]) -> int:
    breaking = broken(FOLDER)
    if breaking:
        print(f"not compatible with version {VERSION}; raise VERSION in cluster/report/schema.py:", file=sys.stderr)
        print(*(f"  {one}" for one in breaking), sep="\n", file=sys.stderr)
        return 1
    stale = differing(FOLDER)
    if "--check" in arguments:
        if stale:
            print(f"run scripts/schemas.py; not up to date: {', '.join(stale)}", file=sys.stderr)
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in rendered().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{len(stale)} changed" if stale else "nothing changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
