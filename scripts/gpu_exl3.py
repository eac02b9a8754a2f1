#!/usr/bin/env python3
"""Prove the path of an EXL3 pack on a GPU: quantise, inspect, re-lay, serve both layouts, compare their pace.

    python3 scripts/gpu_exl3.py [--wheels DIR] [--library FILE] [--packs DIR] [--folder DIR] [--keep DIR]

DIR/exllamav3 and DIR/sparkctl hold wheels of what is not installed: nothing is fetched. FILE is exllamav3's extension
as an earlier run kept it in --keep (.so or .so.gz); without it the extension is compiled, four minutes on 16 cores.
--packs names a folder with packs quantised before, `plain` and `demo`: then no GPU is needed to make them.

Every part is tried, whatever became of the ones before. The last line is JSON; exit code 1 when a part failed.
"""

import argparse
import gzip
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.exl3_packs import BITS, DEMO_BITS, convert, inspect, make_model, relay  # noqa: E402  # after the line above
from scripts.exl3_run import ARCHITECTURE, Run  # noqa: E402
from scripts.exl3_servers import serve  # noqa: E402

DEMO = ROOT / "scripts/demo_model/model"
COMPILE = 400
IMPORT = "import torch, exllamav3; torch.zeros(1, device='cuda')"


def install(run: Run, wheels: Path) -> None:
    """Beside what the machine has, in folders of their own: the two kinds want different versions of some packages."""
    for kind in ("exllamav3", "sparkctl"):
        found = sorted((wheels / kind).glob("*.whl"))
        if found:
            words = ("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target")
            run.call(sys.executable, *words, run.folder / kind, *found)
    paths = [run.folder / "exllamav3", ROOT, ROOT / "exl3_server", run.folder / "sparkctl"]
    run.environment["PYTHONPATH"] = ":".join(map(str, [*paths, os.environ.get("PYTHONPATH", "")])).rstrip(":")


def extension(run: Run, library: Path | None) -> None:
    """Put the finished extension where it is imported from, compiled first if need be; keep a compressed copy.

    Three servers that find it unfinished would wait for each other's lock.
    """
    target = run.folder / "exllamav3/exllamav3_ext.so"
    if library:
        with (gzip.open if library.suffix == ".gz" else open)(library, "rb") as file:
            target.write_bytes(file.read())
    else:
        made = run.folder / "extensions"
        run.environment |= {"TORCH_CUDA_ARCH_LIST": ARCHITECTURE, "MAX_JOBS": str(os.cpu_count())}
        run.call(sys.executable, "-c", IMPORT, limit=COMPILE, TORCH_EXTENSIONS_DIR=str(made))
        (library,) = made.rglob("exllamav3_ext.so")
        shutil.copy(library, target)
        with gzip.open(run.keep / "exllamav3_ext.so.gz", "wb", compresslevel=6) as file:
            file.write(target.read_bytes())
    run.call(sys.executable, "-c", IMPORT, limit=60)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=ROOT / "build/wheels")
    parser.add_argument("--library", type=Path)
    parser.add_argument("--packs", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", type=Path)
    choice = parser.parse_args()
    folder = choice.folder or Path(tempfile.mkdtemp(prefix="gpu-exl3-"))
    run = Run(folder.resolve(), (choice.keep or folder / "kept").resolve())
    for one in (run.folder, run.keep):
        one.mkdir(parents=True, exist_ok=True)
    run.together(("install", install, choice.wheels))
    packs = {name: run.folder / name for name in ("plain", "relaid", "demo")}
    if choice.packs:
        packs |= {name: choice.packs / name for name in ("plain", "demo")}
    else:
        # The first of these mostly waits for the compiler.
        run.together(("extension", extension, choice.library), ("make model", make_model))
        plain = ("convert plain", convert, run.folder / "model", packs["plain"], BITS)
        run.together(plain, ("convert demo", convert, DEMO, packs["demo"], DEMO_BITS))
    run.together(("inspect plain", inspect, packs["plain"], BITS))
    run.together(("inspect demo", inspect, packs["demo"], DEMO_BITS))
    run.together(("relay", relay, packs["plain"], packs["relaid"]))
    run.together(("serve", serve, packs))
    print(json.dumps(run.seen | {"failed": run.failed}), flush=True)
    return int(bool(run.failed))


if __name__ == "__main__":
    sys.exit(main())
