"""Build hook: compiles the row store into the wheel, which is then of this machine's kind only."""

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LibraryHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root)
        subprocess.run(["make", "-s", "-C", os.fspath(folder / "csrc"), "BUILD=build"], check=True)
        target = folder / "spark_overlay" / "librow_store.so"
        target.write_bytes((folder / "csrc" / "build" / "librow_store.so").read_bytes())
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
