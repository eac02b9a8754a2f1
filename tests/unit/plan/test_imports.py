"""Findings on a virtual environment, by what its interpreter imported."""

from dataclasses import replace

import pytest

from cluster.model.events import Severity
from cluster.model.settings import Launch, RuntimeKind, Serve
from cluster.plan.imports import CHECKS, check_imports, is_in_venv
from cluster.probe.imports import Imported, ImportsSeen
from tests.build import pair

EXL3 = pair(serve=Serve(model="/m", quantization="exl3"), launch=Launch(venv="/v"))
PLAIN = pair(launch=Launch(venv="/v"))
TORCH = Imported("torch", {"version": "2.11.0+cu130", "cuda": "13.0", "gpu": "12.1"})
VLLM = Imported("vllm", {"version": "0.28.1"})
EXTENSION, PLUGIN = Imported("exllamav3_ext", {"moe": True}), Imported("plugin", {})
WHOLE = ImportsSeen("3.12.3", (TORCH, VLLM, EXTENSION, PLUGIN))
NO_PLUGIN = "ImportError: from __future__ imports must occur at the beginning"


def found(seen: ImportsSeen, settings=EXL3) -> dict[str, tuple[Severity, str]]:
    return {one.id: (one.severity, one.observed) for one in check_imports(settings, "spark", seen)}


def changed(*steps: Imported, python: str = "3.12.3") -> ImportsSeen:
    new = {one.name: one for one in steps}
    return ImportsSeen(python, tuple(new.get(one.name, one) for one in WHOLE.steps))


def test_a_whole_environment_is_told_by_its_versions():
    assert found(WHOLE) == {
        "RUNTIME.PYTHON": (Severity.OK, "Python 3.12.3"),
        "RUNTIME.TORCH": (Severity.OK, "torch 2.11.0+cu130, CUDA 13.0, a GPU of capability 12.1"),
        "RUNTIME.VLLM": (Severity.OK, "vLLM 0.28.1"),
        "RUNTIME.EXTENSION": (Severity.OK, "exllamav3_ext imports"),
        "RUNTIME.PLUGIN": (Severity.OK, "the exl3 plugin imports"),
    }


@pytest.mark.parametrize(
    ("seen", "check", "told"),
    [
        (changed(python="3.11.7"), "RUNTIME.PYTHON", "Python 3.11.7"),
        (
            changed(replace(TORCH, told={"version": "2.13.0+cpu", "cuda": "none", "gpu": ""})),
            "RUNTIME.TORCH",
            "torch 2.13.0+cpu, CUDA none, no GPU",
        ),
        (
            changed(replace(TORCH, told={"version": "2.9.0+cu128", "cuda": "12.8", "gpu": "12.1"})),
            "RUNTIME.TORCH",
            "torch 2.9.0+cu128, CUDA 12.8, a GPU of capability 12.1",
        ),
        (
            changed(Imported("exllamav3_ext", {}, "ImportError: libc10.so")),
            "RUNTIME.EXTENSION",
            "exllamav3_ext does not import: ImportError: libc10.so",
        ),
        (
            changed(Imported("exllamav3_ext", {"moe": False})),
            "RUNTIME.EXTENSION",
            "exllamav3_ext is there, without kernels for experts (exl3_moe)",
        ),
        (
            changed(Imported("plugin", {}, NO_PLUGIN)),
            "RUNTIME.PLUGIN",
            f"the exl3 plugin does not import: {NO_PLUGIN}",
        ),
        (
            ImportsSeen("3.12.3", (TORCH, VLLM), "signal 11"),
            "RUNTIME.EXTENSION",
            "exllamav3_ext was not imported: signal 11",
        ),
        (
            ImportsSeen("", (), "No such file or directory"),
            "RUNTIME.PYTHON",
            "no Python in /v: No such file or directory",
        ),
    ],
)
def test_the_one_thing_that_is_wrong_is_refused_by_its_name(seen, check, told):
    refused = {name: text for name, (severity, text) in found(seen).items() if severity is Severity.REFUSAL}
    assert refused == {check: told}


def test_without_exl3_an_environment_for_cpus_will_do():
    cpu = ImportsSeen("3.11.7", (replace(TORCH, told={"version": "2.13.0+cpu", "cuda": "none", "gpu": ""}), VLLM))
    assert {severity for severity, _ in found(cpu, PLAIN).values()} == {Severity.OK}
    assert set(found(cpu, PLAIN)) == {"RUNTIME.PYTHON", CHECKS["torch"], CHECKS["vllm"]}


def test_only_a_virtual_environment_is_looked_into():
    assert is_in_venv(EXL3)
    for launch in (Launch(), Launch(venv="/v", runtime=RuntimeKind.CONTAINER), Launch(venv="/v", command=("serve",))):
        assert not is_in_venv(replace(EXL3, launch=launch))
