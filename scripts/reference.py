#!/usr/bin/env python3
"""Write, or check, what is generated from the settings table: `.env.example`, docs/settings.md, the README's table.

python scripts/reference.py --write
python scripts/reference.py --check      exit 1 and the names of what differs
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cluster.config.reference import common_table, env_example, missing_parts, settings_page  # noqa: E402


def readme(text: str) -> str:
    """The README with today's texts between their markers; at its end when it has no markers."""
    for name, generated in (("settings", common_table()), ("missing", missing_parts())):
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{generated}\n{end}{rest.partition(end)[2] or chr(10)}"
    return text


def wanted() -> dict[Path, str]:
    page = ROOT / "README.md"
    return {
        ROOT / ".env.example": env_example(),
        ROOT / "docs" / "settings.md": settings_page(),
        page: readme(page.read_text() if page.exists() else ""),
    }


def differing() -> list[Path]:
    return [path for path, text in wanted().items() if not path.exists() or path.read_text() != text]


def main(arguments: list[str]) -> int:
    if arguments not in (["--write"], ["--check"]):
        print(__doc__)
        return 2
    stale = differing()
    if arguments == ["--write"]:
        texts = wanted()
        for path in stale:
            path.parent.mkdir(exist_ok=True)
            path.write_text(texts[path])
            print(f"wrote {path.relative_to(ROOT)}")
        return 0
    for path in stale:
        print(f"{path.relative_to(ROOT)} differs from the settings table; run: python scripts/reference.py --write")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
