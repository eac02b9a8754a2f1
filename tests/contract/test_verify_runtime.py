"""`preflight --for verify-runtime` on this machine: made-up environments that fail in known ways, and a real one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract

REPOSITORY = Path(__file__).parents[2]
REAL = REPOSITORY / ".venv-vllm"
SETTINGS = """
deployment: one
nodes: [{{name: spark, control: local, address: 127.0.0.1, state_dir: {folder}/state}}]
serve: {{model: {folder}/model, host: loopback, tensor_parallel: 1, quantization: exl3}}
launch: {{venv: {venv}}}
"""
PACKAGES = {
    "torch/__init__.py": """
__version__ = "2.11.0+cu130"
class version: cuda = "13.0"
class cuda:
    is_available = staticmethod(lambda: True)
    get_device_capability = staticmethod(lambda: (12, 1))
""",
    "vllm/__init__.py": "__version__ = '0.28.1'",
    "vllm/plugins.py": "def load_general_plugins():\n    import vllm_exl3",
    "vllm/model_executor/layers/quantization.py": "QUANTIZATION_METHODS = ['fp8']",
    "vllm_exl3.py": "import vllm.model_executor.layers.quantization as q\nq.QUANTIZATION_METHODS.append('exl3')",
    "exllamav3_ext.py": "import sys\nif 'torch' not in sys.modules: raise ImportError('libc10.so')\nexl3_moe = 1",
}


def look(folder: Path, venv: Path) -> tuple[int, dict[str, str]]:
    (folder / "cluster.yaml").write_text(SETTINGS.format(folder=folder, venv=venv))
    argv = (sys.executable, "-m", "cluster", "preflight", "--for", "verify-runtime", "--only", "RUNTIME", "--json")
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    found = [one["finding"] for one in json.loads(done.stdout.splitlines()[-1])["results"]]
    return done.returncode, {one["id"]: f"{one['severity']}: {one['observed']}" for one in found}


def environment(folder: Path, **changed: str) -> Path:
    """As much of a virtual environment as the program looks at; its interpreter says that it is 3.12."""
    site = folder / "venv/site"
    told = {name.replace("__init__.py", "").strip("/"): name for name in PACKAGES}
    for name, text in (PACKAGES | {told[name]: text for name, text in changed.items()}).items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    (site / "sitecustomize.py").write_text("import sys\nsys.version_info = (3, 12, 3, 'final', 0)")
    python = folder / "venv/bin/python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return folder / "venv"


def test_a_whole_environment_passes(tmp_path):
    assert look(tmp_path, environment(tmp_path)) == (
        0,
        {
            "RUNTIME.PYTHON": "ok: Python 3.12.3",
            "RUNTIME.TORCH": "ok: torch 2.11.0+cu130, CUDA 13.0, a GPU of capability 12.1",
            "RUNTIME.VLLM": "ok: vLLM 0.28.1",
            "RUNTIME.EXTENSION": "ok: exllamav3_ext imports",
            "RUNTIME.PLUGIN": "ok: the exl3 plugin imports",
        },
    )


@pytest.mark.parametrize(
    ("changed", "check", "told"),
    [
        (
            {"vllm_exl3.py": "x = 1\nfrom __future__ import annotations"},
            "RUNTIME.PLUGIN",
            "refusal: the exl3 plugin does not import: SyntaxError: from __future__ imports must occur at the",
        ),
        (
            {"vllm_exl3.py": "x = 1"},
            "RUNTIME.PLUGIN",
            "refusal: the exl3 plugin does not import: RuntimeError: its plugins are loaded, and exl3 is not among",
        ),
        (
            {"vllm": "raise OSError('libcudart.so.13')"},
            "RUNTIME.VLLM",
            "refusal: vLLM does not import: OSError: libc",
        ),
        (
            {"exllamav3_ext.py": "import os\nos.kill(os.getpid(), 11)"},
            "RUNTIME.EXTENSION",
            "refusal: exllamav3_ext was not imported: signal 11",
        ),
        (
            {"exllamav3_ext.py": "exl3_gemm = 1"},
            "RUNTIME.EXTENSION",
            "refusal: exllamav3_ext is there, without kern",
        ),
    ],
)
def test_what_only_an_import_shows_is_told_by_its_name(tmp_path, changed, check, told):
    code, found = look(tmp_path, environment(tmp_path, **changed))
    assert (code, found[check][: len(told)]) == (4, told)


def test_an_environment_that_is_not_there_is_one_refusal(tmp_path):
    told = {"RUNTIME.PYTHON": f"refusal: no Python in {tmp_path}/none: No such file or directory"}
    assert look(tmp_path, tmp_path / "none") == (4, told)


def test_a_real_environment_for_cpus_has_no_cuda_no_extension_and_no_plugin(tmp_path):
    if not (REAL / "bin/python").exists():
        pytest.skip("there is no .venv-vllm; python3 scripts/provision.py vllm makes it")
    code, found = look(tmp_path, REAL)
    assert code == 4
    assert found["RUNTIME.TORCH"].startswith("refusal: torch 2.13.0+cpu, CUDA none, no GPU")
    assert found["RUNTIME.VLLM"].startswith("ok: vLLM 0.3")
    assert found["RUNTIME.EXTENSION"] == (
        "refusal: exllamav3_ext does not import: ModuleNotFoundError: No module named 'exllamav3_ext'"
    )
    assert found["RUNTIME.PLUGIN"].startswith("refusal: the exl3 plugin does not import: ")
