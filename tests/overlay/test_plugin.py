"""The entry point, as vLLM calls it: in a process of its own, more than once, and fatal when it must be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import json, logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
import vllm
logging.getLogger("vllm").propagate = True
vllm.__version__ = sys.argv[1]
from spark_overlay.plugin import register
register()
register()
module = sys.modules.get("vllm.models.deepseek_v41.common.engram")
print(json.dumps(bool(module and getattr(module.ParallelEngramEmbedding, "is_file_backed", False))))
"""


def run(version="0.32.0", **settings):
    pytest.importorskip("vllm", reason="vLLM is not installed here")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_OVERLAY_")}
    environment |= {f"SPARK_OVERLAY_{name}": value for name, value in settings.items()}
    environment["PYTHONPATH"] = str(ROOT / "overlay")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, version], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, [line for line in done.stdout.splitlines() if line], done.stderr


def test_importing_the_package_needs_nothing():
    code = "import sys, spark_overlay; print(sorted(set(sys.modules) & {'torch', 'numpy', 'vllm', 'triton'}))"
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "overlay"))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_it_says_in_one_line_what_is_active():
    code, lines, _ = run(ENGRAM="file", ENGRAM_PACKED="/nvme/engram")
    said = [line for line in lines if "spark_overlay" in line and " active in vLLM " in line]
    assert (code, set(said)) == (0, {"spark_overlay 0.1.0 active in vLLM 0.32.0: engram=file"})
    assert json.loads(lines[-1]) is True


def test_without_a_word_nothing_changes():
    code, lines, _ = run()
    assert (code, json.loads(lines[-1])) == (0, False)
    assert "spark_overlay 0.1.0 active in vLLM 0.32.0: nothing asked" in lines


def test_another_version_ends_the_process():
    code, _, errors = run(version="0.34.0", ENGRAM="file", ENGRAM_PACKED="/nvme/engram")
    assert code == 1
    assert errors.endswith("spark_overlay supports vLLM 0.32.x or 0.33.x, and this is 0.34.0\n")


def test_a_setting_that_cannot_be_meant_ends_the_process():
    code, _, errors = run(ENGRAM="disk")
    assert code == 1
    assert errors.endswith("SPARK_OVERLAY_ENGRAM must be memory or file, not 'disk'\n")
