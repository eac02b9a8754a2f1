"""Figures of memory in a rank's log."""

from cluster.model.memory import GIB
from cluster.probe.boot_figures import BootFigures, read_on


def test_a_log_on_a_gpu_says_all_of_them():
    lines = (
        "(Worker_TP0 pid=7) INFO [gpu_model_runner.py:1] Model loading took 99.46 GiB memory and 640.1 seconds",
        "INFO [gpu_worker.py:2] Available KV cache memory: 2.50 GiB",
        "INFO [kv_cache_utils.py:3] GPU KV cache size: 774,400 tokens, Maximum concurrency for 600,000 tokens: 1.29x",
        "INFO [gpu_model_runner.py:4] Graph capturing finished in 21 secs, took 1.25 GiB",
    )
    assert read_on(BootFigures(), lines) == BootFigures(int(99.46 * GIB), int(2.5 * GIB), int(1.25 * GIB), 774400)


def test_a_log_on_a_cpu_says_some_and_what_was_known_stays():
    known = BootFigures(loaded=5)
    lines = (
        "(Worker_TP1 pid=16314) INFO [cpu_worker.py:260] Explicitly set (0.06/23.54) GiB for KV cache on node 0.",
        "(EngineCore pid=16324) INFO [kv_cache_utils.py:2327] CPU KV cache size: 262,144 tokens, Maximum x",
    )
    assert read_on(known, lines) == BootFigures(loaded=5, pool=int(0.06 * GIB), tokens=262144)
