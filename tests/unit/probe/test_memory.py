"""A node's memory as its tools tell it, and their three ways to say that they do not know."""

import json

import pytest

from cluster.errors import Unreadable
from cluster.model.memory import GIB, Holder, MemInfo, MemoryFacts, SharedMemory
from cluster.model.units import Bytes
from cluster.probe.memory import (
    parse_amount,
    parse_facts,
    parse_gpu_memory,
    parse_gpu_processes,
    parse_gpu_xml,
    parse_meminfo,
)

AFTER_DOWNLOAD = """\
MemTotal:       127535828 kB
MemFree:          2904064 kB
MemAvailable:   118452224 kB
Buffers:           401232 kB
Cached:         114312348 kB
SwapTotal:              0 kB
SwapFree:               0 kB
HugePages_Total:       0
HugePages_Free:        0
Hugepagesize:       2048 kB
"""
XML = """<processes>
<process_info><pid>415592</pid><type>C</type><process_name>VLLM::EngineCor</process_name>
<used_memory>79872 MiB</used_memory></process_info>
<process_info><pid>415592</pid><type>G</type><process_name>VLLM::EngineCor</process_name>
<used_memory>79872 MiB</used_memory></process_info>
<process_info><pid>7</pid><type>G</type><process_name>Xorg</process_name><used_memory>N/A</used_memory></process_info>
</processes>"""


def test_meminfo_counts_in_kib():
    assert parse_meminfo(AFTER_DOWNLOAD) == MemInfo(
        total=Bytes(127535828 * 1024),
        free=Bytes(2904064 * 1024),
        available=Bytes(118452224 * 1024),
        cached=Bytes(114312348 * 1024),
        huge_size=Bytes(2048 * 1024),
    )


def test_meminfo_knows_what_is_reserved_for_contiguous_use():
    seen = parse_meminfo(AFTER_DOWNLOAD + "CmaTotal: 0 kB\nCmaFree: 940604 kB\nShmem: 4 kB\nSUnreclaim: 8 kB\n")
    assert (seen.contiguous_total, seen.contiguous_free, seen.shared, seen.unreclaimable) == (
        0,
        940604 * 1024,
        4096,
        8192,
    )


def test_meminfo_without_an_available_line_is_refused():
    with pytest.raises(Unreadable) as caught:
        parse_meminfo("MemTotal: 1 kB\nMemFree: 1 kB\n")
    assert caught.value.what == "/proc/meminfo does not say how much memory there is"


@pytest.mark.parametrize("cell", ["[N/A]", "N/A", "Not Supported", " [Not Found]", ""])
def test_a_gpu_without_memory_of_its_own_says_nothing(cell):
    assert parse_amount(cell) is None


def test_an_amount_is_mib():
    assert [parse_amount(cell) for cell in ("98304", " 79872 MiB")] == [98304 * 2**20, 79872 * 2**20]


def test_an_amount_that_is_none_is_refused_and_not_taken_for_0():
    with pytest.raises(Unreadable):
        parse_amount("12 GB?")


def test_totals_of_a_gb10_are_unknown_and_its_processes_are_not():
    total, used = parse_gpu_memory("NVIDIA GB10, [N/A], [N/A]\n")
    per_process = {str(pid): size // 2**20 for pid, size in parse_gpu_processes("114687, 98304\n").items()}
    assert {"total": total, "used": used, "per_process_mib": per_process} == {
        "total": None,
        "used": None,
        "per_process_mib": {"114687": 98304},
    }


def test_totals_of_a_card_are_its_own():
    assert parse_gpu_memory("NVIDIA H200, 143771, 4\n") == (143771 * 2**20, 4 * 2**20)
    assert parse_gpu_memory("") == (None, None)


def test_a_process_that_computes_and_draws_counts_once():
    assert parse_gpu_xml(XML) == {415592: 79872 * 2**20}


def answer(**changes) -> str:
    said = {
        "meminfo": AFTER_DOWNLOAD,
        "pressure": "",
        "holders": [
            {"name": "jupyter", "pid": 7, "bytes": 3 * GIB, "pids": [7, 8]},
            {"name": "dsv41-exl3-worker", "pid": 9, "bytes": GIB, "pids": [9]},
        ],
        "gpu": "9, VLLM::Worker, 40960\n11, [Not Found], 1024\n12, x, [N/A]\n",
        "gpus": "NVIDIA GB10, [N/A], [N/A]",
        "has_gpu": True,
        "shm": {"size": 65298343936, "free": 652983439},
        "killers": {"systemd-oomd": "inactive", "earlyoom": "active"},
        "machine": "boot-1",
    }
    return json.dumps(said | changes)


def test_who_holds_most_comes_first_with_what_it_has_on_the_gpu():
    assert parse_facts("spark-b", answer()) == MemoryFacts(
        node="spark-b",
        info=parse_meminfo(AFTER_DOWNLOAD),
        holders=(
            Holder("dsv41-exl3-worker", Bytes(GIB), 9, Bytes(40 * GIB)),
            Holder("jupyter", Bytes(3 * GIB), 7),
            Holder("pid 11", Bytes(0), 11, Bytes(GIB)),
        ),
        has_gpu=True,
        shm=SharedMemory(Bytes(65298343936), Bytes(652983439)),
        killers=(("earlyoom", "active"), ("systemd-oomd", "inactive")),
        machine="boot-1",
    )


def test_a_node_without_gpu_and_shared_memory_is_read_too():
    seen = parse_facts("n", answer(gpu=None, gpus=None, has_gpu=False, shm=None, killers={}))
    assert (seen.has_gpu, seen.shm, seen.killers, seen.holders[0]) == (
        False,
        None,
        (),
        Holder("jupyter", Bytes(3 * GIB), 7),
    )


def test_an_answer_that_is_none_names_the_node():
    with pytest.raises(Unreadable) as caught:
        parse_facts("spark-b", "Traceback")
    assert caught.value.where == "spark-b"


def test_a_card_with_memory_of_its_own_is_what_counts():
    seen = parse_facts("n", answer(gpus="NVIDIA H200, 143771, 3599", gpu="421, python3, 3590"))
    left = Bytes((143771 - 3599) * 2**20)
    assert seen.info == MemInfo(Bytes(143771 * 2**20), left, left)
