"""Whether a virtual environment would really serve: judged by what its own interpreter imported on the node."""

from collections.abc import Iterator

from cluster.model.events import Finding, Severity
from cluster.model.settings import RuntimeKind, Settings
from cluster.probe.imports import Imported, ImportsSeen

PYTHON = "3.12"  # what the wheels of the EXL3 plugin and of vLLM for GB10 are built for
CUDA = "13."
ORDER = ("torch", "vllm", "exllamav3_ext", "plugin")
CHECKS = dict(zip(ORDER, ("RUNTIME.TORCH", "RUNTIME.VLLM", "RUNTIME.EXTENSION", "RUNTIME.PLUGIN"), strict=True))
NAMES = dict(zip(ORDER, ("torch", "vLLM", "exllamav3_ext", "the exl3 plugin"), strict=True))


def is_in_venv(settings: Settings) -> bool:
    """Only there are packages the user's own; an image is compared as a whole, another server names no environment."""
    launch = settings.launch
    return launch.runtime is RuntimeKind.NATIVE and not launch.command and bool(launch.venv)


def wants_exl3(settings: Settings) -> bool:
    return settings.serve.quantization == "exl3"


def check_imports(settings: Settings, node: str, seen: ImportsSeen) -> tuple[Finding, ...]:
    """RUNTIME.PYTHON, and one finding for each import, in the order they were tried."""
    return (_python(settings, node, seen), *_steps(settings, node, seen))


def not_imported(node: str) -> Finding:
    return Finding("RUNTIME.PYTHON", Severity.NOT_CHECKED, node, "this deployment runs in no virtual environment")


def _python(settings: Settings, node: str, seen: ImportsSeen) -> Finding:
    venv = settings.launch.venv
    if not seen.python:
        fix = f"make one there: python{PYTHON} -m venv {venv}"
        told = f"no Python in {venv}" + (f": {seen.died}" if seen.died else "")
        return Finding("RUNTIME.PYTHON", Severity.REFUSAL, node, told, "the server's own Python", fix)
    if wants_exl3(settings) and not seen.python.startswith(f"{PYTHON}."):
        fix = f"python{PYTHON} -m venv {venv}, and install it all anew"
        return Finding("RUNTIME.PYTHON", Severity.REFUSAL, node, f"Python {seen.python}", f"Python {PYTHON}", fix)
    return Finding("RUNTIME.PYTHON", Severity.OK, node, f"Python {seen.python}")


def _steps(settings: Settings, node: str, seen: ImportsSeen) -> Iterator[Finding]:
    if not seen.python:
        return
    found = {one.name: one for one in seen.steps}
    for name in ORDER if wants_exl3(settings) else ORDER[:2]:
        one = found.get(name)
        if one is None:
            told = f"{NAMES[name]} was not imported: {seen.died or 'the process said nothing of it'}"
            fix = f"{settings.launch.venv}/bin/python -X faulthandler -c 'import torch, {_module(name)}'   (on {node})"
            yield Finding(CHECKS[name], Severity.REFUSAL, node, told, f"{NAMES[name]} imports", fix)
            return
        yield _torch(settings, node, one) if name == "torch" and not one.error else _step(settings, node, one)


def _step(settings: Settings, node: str, one: Imported) -> Finding:
    check, name = CHECKS[one.name], NAMES[one.name]
    if one.error:
        fix = f"see it whole: {settings.launch.venv}/bin/python -c 'import torch, {_module(one.name)}'   (on {node})"
        return Finding(check, Severity.REFUSAL, node, f"{name} does not import: {one.error}", f"{name} imports", fix)
    if one.told.get("moe") is False:
        told = "exllamav3_ext is there, without kernels for experts (exl3_moe)"
        return Finding(check, Severity.REFUSAL, node, told, "exl3_moe in it", "build exllamav3 1.4.5 or later")
    return Finding(check, Severity.OK, node, " ".join((name, str(one.told.get("version", "imports")))))


def _torch(settings: Settings, node: str, one: Imported) -> Finding:
    told = f"torch {one.told['version']}, CUDA {one.told['cuda']}"
    told += f", a GPU of capability {one.told['gpu']}" if one.told["gpu"] else ", no GPU"
    if wants_exl3(settings) and not (one.told["cuda"].startswith(CUDA) and one.told["gpu"]):
        fix = "install a torch built for CUDA 13; and look at nvidia-smi if it sees no GPU"
        return Finding("RUNTIME.TORCH", Severity.REFUSAL, node, told, "CUDA 13 and a GPU", fix)
    return Finding("RUNTIME.TORCH", Severity.OK, node, told)


def _module(name: str) -> str:
    return "vllm" if name == "plugin" else name
