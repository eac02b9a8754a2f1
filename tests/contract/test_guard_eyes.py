"""What the guard sees: figures of /proc, and a GPU that shares the node's memory or has its own."""

import os
from pathlib import Path

import pytest

from cluster.agent.guard_eyes import Eyes, gpu_processes, has_unified_memory, meminfo

pytestmark = pytest.mark.contract


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts an nvidia-smi into the PATH that answers so."""

    def put(total: str, processes: str = "") -> None:
        script = f"#!/bin/sh\ncase $1 in *memory.total) echo '{total}';; *) printf '{processes}';; esac\n"
        (tmp_path / "nvidia-smi").write_text(script)
        (tmp_path / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return put


def test_meminfo_is_read_in_bytes(tmp_path):
    (tmp_path / "meminfo").write_text("MemFree:  4 kB\nHugePages_Total: 0\nodd line\n")
    assert meminfo(str(tmp_path / "meminfo")) == {"MemFree": 4096, "HugePages_Total": 0}


def test_a_look_finds_this_process_among_others_but_not_itself():
    sample = Eyes([], "/proc/meminfo").look(1.0, is_alert=False)
    assert sample.available > 0
    assert sample.ours == 0
    assert os.getpid() not in [tree.pid for tree in sample.trees]


@pytest.mark.parametrize(("total", "expected"), [("[N/A]", True), ("143771", False)])
def test_only_a_gpu_without_memory_of_its_own_takes_the_nodes(smi, total, expected):
    smi(total)
    assert has_unified_memory() is expected


def test_gpu_memory_is_counted_by_process_where_it_is_known(smi):
    smi("[N/A]", r"114687, 98304\n7, [N/A]\nno answer\n")
    assert gpu_processes() == {114687: 98304 * 2**20}


def test_without_nvidia_smi_there_is_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert has_unified_memory() is False


def test_a_gpu_that_does_not_answer_is_not_taken_for_an_empty_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_processes() is None
