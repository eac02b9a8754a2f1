"""vLLM's Prometheus page."""

from pathlib import Path

from cluster.probe.vllm_metrics import Counters, read_counters

PAGE = (Path(__file__).resolve().parents[2] / "captured/vllm/good/metrics.txt").read_text()


def test_the_counters_are_found_among_the_rest():
    assert read_counters(PAGE) == Counters(prompt=24, generation=24, running=0, waiting=0, kv_usage=0, steps=24)


def test_engines_are_summed_and_the_fullest_cache_counts():
    more = PAGE.replace('engine="0"', 'engine="1"').replace(
        'kv_cache_usage_perc{engine="1",model_name="tiny"} 0.0', 'kv_cache_usage_perc{engine="1",model_name="tiny"} 0.5'
    )
    assert read_counters(PAGE + more) == Counters(48, 48, 0, 0, 0.5, 48)


def test_a_page_of_something_else_has_no_counters():
    assert read_counters("") is None
    assert read_counters("# HELP up x\nup 1\n") is None
    assert read_counters(PAGE.replace("vllm:generation_tokens_total", "vllm:other_total")) is None
