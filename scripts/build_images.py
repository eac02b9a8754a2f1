#!/usr/bin/env python3
"""Build the demo image on a container engine: a Debian root, vLLM for CPU, the overlay, its self-test, its stamp.

    python3 scripts/build_images.py demo [--engine /var/run/docker.sock]
    python3 scripts/build_images.py base             only the root that it starts from; says its path last
    python3 scripts/build_images.py image            only the image, on an engine that has the base
    python3 scripts/build_images.py engine           a root with a newer engine, for tests; says its path last

A root is made once and kept in $SPARKCTL_IMAGE_CACHE, or in ~/.cache/sparkctl/images. Standard library only.
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
PACKAGES = ("python3", "python3-dev", "gcc", "g++", "libc6-dev", "make", "libnuma1", "libstdc++6", "libgomp1")
# Debian's next release: an engine that can have containerd's image store, with its command line.
ENGINE_SUITE, ENGINE_PACKAGES = "forky", ("docker.io", "docker-cli", "docker-buildx", "procps")
# What builds the overlay's wheel, inside, where nothing can be downloaded.
BUILDER = "hatchling==1.33.0"
BASE, NAME = f"sparkctl-demo-base:{SUITE}", "sparkctl-demo:1"
# What a text model on a CPU never opens, and a third of the image.
LEFT_OUT = re.compile(r"/(__pycache__/test_|tests?/)|/torch/(include|share|test)/|/torch/.*\.a$|/var/(cache|lib)/apt/")
DOCKERFILE = "images/demo/Dockerfile"


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
    root = folder / f"root-{SUITE}-{digest(*PACKAGES)[:8]}"
    if not root.exists():
        debootstrap(root, SUITE, PACKAGES)
    wheels = download(folder)
    say("packing root and vLLM")
    unfinished = archive.with_suffix(".new")
    with tarfile.open(unfinished, "w") as tar:
        for name in sorted(path.name for path in root.iterdir()):
            tar.add(root / name, arcname=name, filter=kept)
        add_vllm(tar, ROOT / ".venv-vllm")
        tar.add(wheels, arcname="opt/wheels")
    for older in folder.glob("demo-base-*.tar"):
        older.unlink()
    unfinished.replace(archive)
    return archive


def base_stamp() -> str:
    """Of all that the base is made from."""
    provisioned = ROOT / ".venv-vllm" / "provisioned.json"
    if not provisioned.exists():
        raise BuildError("there is no vLLM for CPU; run: python3 scripts/provision.py vllm")
    return digest(SUITE, *PACKAGES, BUILDER, LEFT_OUT.pattern, provisioned.read_text())[:12]


def digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def download(folder: Path) -> Path:
    """The builder's wheels; they hold no code of any one machine."""
    wheels = folder / f"wheels-{digest(BUILDER)[:8]}"
    if not wheels.exists():
        say(f"downloading {BUILDER}")
        unfinished = wheels.with_suffix(".new")
        run(str(ROOT / ".venv-vllm/bin/python"), "-m", "pip", "download", "--quiet", "--dest", str(unfinished), BUILDER)
        unfinished.replace(wheels)
    return wheels


def engine_root() -> Path:
    return cache() / f"root-{ENGINE_SUITE}-{digest(*ENGINE_PACKAGES)[:8]}"


def make_engine() -> Path:
    root = engine_root()
    if not root.exists():
        cache().mkdir(parents=True, exist_ok=True)
        debootstrap(root, ENGINE_SUITE, ENGINE_PACKAGES)
        for older in set(cache().glob(f"root-{ENGINE_SUITE}-*")) - {root}:
            shutil.rmtree(older)
    return root


def debootstrap(root: Path, suite: str, packages: tuple[str, ...]) -> None:
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise BuildError("a root is made by root, with debootstrap; run: apt-get install debootstrap")
    say(f"debootstrap {suite}: about two minutes, once")
    unfinished = root.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    words = ("debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, str(unfinished))
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "DEBOOTSTRAP_DIR": str(knowing(suite, Path(folder)))}
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise BuildError("\n".join(("debootstrap failed", *done.stdout.splitlines()[-5:])))
    shutil.rmtree(unfinished / "var/cache/apt", ignore_errors=True)
    unfinished.replace(root)


def knowing(suite: str, folder: Path) -> Path:
    """debootstrap's own files with one for the suite: an older one does not know it, and a newer one's is sid's."""
    made = folder / "debootstrap"
    shutil.copytree("/usr/share/debootstrap", made, symlinks=True)
    script = made / "scripts" / suite
    if not script.exists():
        script.symlink_to("sid")
    return made


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
    """As `sparkctl image build` does it, without sparkctl's dependencies."""
    sys.path.insert(0, str(ROOT))
    from cluster.agent.build import build as build_image
    from cluster.agent.recipe import recipe
    from cluster.plan.dockerfile import read_dockerfile
    from cluster.plan.image import STAMP_LABEL, RecipeFile, belongs, stamp

    under = read_dockerfile((ROOT / DOCKERFILE).read_text()).copied
    found = recipe({"folder": str(ROOT), "file": DOCKERFILE, "under": under})
    files = [one for one in found["files"] if belongs(one["path"])]
    for name in found["untracked"]:
        say(f"git does not know {name}: left out")
    made = stamp(RecipeFile(one["path"], one["mode"], one["digest"]) for one in files)
    words = ["--network", "none", "--tag", NAME, "--file", DOCKERFILE, "--label", f"{STAMP_LABEL}={made}"]
    log = str(cache() / "demo.log")
    code = build_image({"folder": str(ROOT), "files": files, "engine": f"unix://{engine}", "words": words, "log": log})
    if code:
        raise BuildError(f"docker build ended with exit code {code}; the whole log: {log}")
    say(f"{NAME} is built, stamp {made[:12]}")


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()[-20:]
        raise BuildError("\n".join((f"{' '.join(words[:4])} failed with exit code {done.returncode}", *lines)))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("demo", "base", "image", "engine"))
    parser.add_argument("--engine", default="/var/run/docker.sock", metavar="SOCKET")
    choice = parser.parse_args(arguments)
    try:
        if choice.what == "base":
            say(f"{make_base()}")
        elif choice.what == "engine":
            say(f"{make_engine()}")
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
