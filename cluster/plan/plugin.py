"""What vLLM needs beside itself to load EXL3 weights, outside of a container."""

from cluster.model.events import Finding, Severity
from cluster.model.facts import Identity
from cluster.model.settings import RuntimeKind, Settings

PACKAGES = ("vllm-exl3", "exllamav3")
BROKEN = "0.3.1"  # of vllm-exl3: as published it does not import
OLDEST = (1, 4, 5)  # of exllamav3


def check_plugin(settings: Settings, node: str, seen: Identity) -> tuple[Finding, ...]:
    """EXL3.PLUGIN. Versions are read, nothing is imported: that takes twenty seconds, and vLLM does it next."""
    launch = settings.launch
    if settings.serve.quantization != "exl3" or launch.runtime is not RuntimeKind.NATIVE or launch.command:
        return ()
    packages, tools = dict(seen.packages), dict(seen.tools)
    missing = [*(one for one in PACKAGES if one not in packages), *(one for one, path in tools.items() if not path)]
    if missing:
        fix = f"install them for {launch.venv}; nvcc comes with CUDA, into /usr/local/cuda/bin"
        return (_finding(Severity.REFUSAL, node, f"there is no {', no '.join(missing)}", fix),)
    told = ", ".join(f"{one} {packages[one]}" for one in PACKAGES)
    if packages["vllm-exl3"] == BROKEN:
        return (
            _finding(Severity.WARNING, node, f"{told}: this plugin does not import", "install 0.3.0, or a later one"),
        )
    if _version(packages["exllamav3"]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return (_finding(Severity.WARNING, node, f"{told}: the plugin is made for {oldest}", f"install {oldest}"),)
    return (_finding(Severity.OK, node, told, ""),)


def _finding(severity: Severity, node: str, observed: str, fix: str) -> Finding:
    return Finding("EXL3.PLUGIN", severity, node, observed, "the plugin and its tools" if fix else "", fix)


def _version(text: str) -> tuple[int, ...]:
    numbers = text.partition("+")[0].split(".")
    return tuple(int(one) if one.isdigit() else 0 for one in numbers)
