#!/usr/bin/env python3
"""Build the demo image on a container engine: a Debian root, vLLM for CPU, the self-test, the recipe's stamp.

    python3 scripts/build_images.py demo [--engine /var/run/docker.sock]
    python3 scripts/build_images.py base             only the root that it starts from, in the cache
    python3 scripts/build_images.py image            only the image, on an engine that has the base

The root is made once and kept in $SPARKCTL_IMAGE_CACHE, or in ~/.cache/sparkctl/images. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUITE = "bookworm"
PACKAGES = ("python3", "python3-dev", "gcc", "libc6-dev", "libnuma1", "libstdc++6", "libgomp1")
BASE, NAME = f"sparkctl-demo-base:{SUITE}", "sparkctl-demo:1"
# What a text model on a CPU never opens, and a third of the image.
LEFT_OUT = re.compile(r"/(__pycache__/test_|tests?/)|/torch/(include|share|test)/|/torch/.*\.a$|/var/(cache|lib)/apt/")
STEPS = ("steps",)


class BuildError(Exception):
    """What is missing, and what to type next."""


def cache() -> Path:
    return Path(os.environ.get("SPARKCTL_IMAGE_CACHE") or Path.home() / ".cache" / "sparkctl" / "images")


def say(text: str) -> None:
    print(f"build-images: {text}", flush=True)


def make_base() -> Path:
    """The root as one archive; made under another name, so that a half one is never used."""
    folder = cache()
    archive = folder / f"demo-base-{base_stamp()}.tar"
    if archive.exists():
        return archive
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / f"root-{SUITE}"
    if not (root / "usr/bin/gcc").exists():
        debootstrap(root)
    say("packing root and vLLM")
    unfinished = archive.with_suffix(".new")
    with tarfile.open(unfinished, "w") as tar:
        for name in sorted(path.name for path in root.iterdir()):
            tar.add(root / name, arcname=name, filter=kept)
        add_vllm(tar, ROOT / ".venv-vllm")
    unfinished.replace(archive)
    return archive


def base_stamp() -> str:
    """Of all that the base is made from."""
    provisioned = ROOT / ".venv-vllm" / "provisioned.json"
    if not provisioned.exists():
        raise BuildError("there is no vLLM for CPU; run: python3 scripts/provision.py vllm")
    text = "\n".join((SUITE, *PACKAGES, LEFT_OUT.pattern, provisioned.read_text()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def debootstrap(root: Path) -> None:
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise BuildError("a root is made by root, with debootstrap; run: apt-get install debootstrap")
    say(f"debootstrap {SUITE}: about two minutes, once")
    words = ("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root))
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise BuildError("\n".join(("debootstrap failed", *done.stdout.splitlines()[-5:])))


def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if LEFT_OUT.search(f"/{member.name}") or member.ischr() or member.isblk() else member


def add_vllm(tar: tarfile.TarFile, venv: Path) -> None:
    """The environment as it would be if it had been made at /opt/vllm with the root's own Python."""
    tar.add(venv / "lib", arcname="opt/vllm/lib", filter=kept)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        (made / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
        (made / "bin").mkdir()
        for name in ("python", "python3"):
            (made / "bin" / name).symlink_to("/usr/bin/python3")
        program = (venv / "bin" / "vllm").read_text().partition("\n")[2]
        (made / "bin" / "vllm").write_text(f"#!/opt/vllm/bin/python3\n{program}")
        (made / "bin" / "vllm").chmod(0o755)
        for path in (made / "pyvenv.cfg", made / "bin"):
            tar.add(path, arcname=f"opt/vllm/{path.name}")


def import_base(engine: str) -> None:
    docker = ("docker", "-H", f"unix://{engine}")
    if subprocess.run((*docker, "image", "inspect", BASE), capture_output=True).returncode:
        archive = make_base()
        say(f"importing {BASE}")
        run(*docker, "import", str(archive), BASE)


def build(engine: str) -> None:
    docker = ("docker", "-H", f"unix://{engine}")
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        shutil.copy2(ROOT / "images/demo/Dockerfile", context)
        for name in STEPS:
            shutil.copytree(ROOT / "images" / name, context / name)
        stamp = recipe_stamp(context)
        run(*docker, "build", "--network=none", "--tag", NAME, "--build-arg", f"RECIPE_STAMP={stamp}", str(context))
    say(f"{NAME} is built, stamp {stamp[:12]}")


def recipe_stamp(context: Path) -> str:
    sys.path.insert(0, str(ROOT))
    from cluster.plan.image import RecipeFile, stamp

    return stamp(
        RecipeFile(str(path.relative_to(context)), path.stat().st_mode, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(context.rglob("*"))
        if path.is_file()
    )


def run(*words: str) -> None:
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}  # the builder that every engine brings along
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()[-20:]
        raise BuildError("\n".join((f"{' '.join(words[:4])} failed with exit code {done.returncode}", *lines)))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("demo", "base", "image"))
    parser.add_argument("--engine", default="/var/run/docker.sock", metavar="SOCKET")
    choice = parser.parse_args(arguments)
    try:
        if choice.what == "base":
            say(f"{make_base()}")
        else:
            if choice.what == "demo":
                import_base(choice.engine)
            build(choice.engine)
    except BuildError as error:
        print(f"build-images: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
