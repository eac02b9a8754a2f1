"""The row store's own test program: fuzzed ids on every engine and source, and every refusal, under the sanitizers."""

import shutil
import subprocess

import pytest

from tests.overlay.conftest import build


def test_a_fuzzed_stream_of_ids_passes_the_sanitizers(tmp_path):
    build(("sanitized",), tmp_path)
    done = subprocess.run([tmp_path / "row_store_test", tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["all as it should be"])
    assert set(done.stderr.splitlines()) == {"row store: row 2700: the file ends inside the row"}


def test_it_compiles_for_the_nodes_processor(tmp_path):
    compiler = "aarch64-linux-gnu-g++"
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed here")
    build((f"CXX={compiler}",), tmp_path)
    header = (tmp_path / "librow_store.so").read_bytes()[:20]
    assert header[:4] + header[18:20] == b"\x7fELF" + (183).to_bytes(2, "little")  # EM_AARCH64
