import pytest

from cluster.agent.head import number_or_none, runs_requests


@pytest.mark.parametrize(
    ("metrics", "runs"),
    [
        (None, False),
        ("", False),
        ('vllm:num_requests_running{engine="0"} 0.0', False),
        ('vllm:num_requests_running{engine="0"} 2.0', True),
        ('vllm:num_requests_running{engine="0"} 0.0\nvllm:num_requests_running{engine="1"} 1.0', True),
        ('vllm:num_requests_waiting{engine="0"} 3.0', False),
    ],
)
def test_requests_run_when_any_engine_says_so(metrics, runs):
    assert runs_requests(metrics) is runs


def test_what_the_gpu_does_not_tell_is_none():
    assert [number_or_none(cell) for cell in ("12.5", " 98", "[N/A]")] == [12.5, 98.0, None]
