"""Rows for `sparkctl config`: every setting once, with its origin, and no secret."""

from cluster.config.layers import Given, Layer, Rank
from cluster.config.resolve import resolve
from cluster.config.show import Shown, masked
from cluster.model.need import Need
from cluster.model.settings import table
from cluster.model.values import Raw


def rows(*given: tuple[str, Raw], nodes: int | None = None) -> dict[str, Shown]:
    layer = Layer(
        Rank.ENV_FILE, tuple(Given(key, raw, f".env:{line}") for line, (key, raw) in enumerate(given, 1)), nodes=nodes
    )
    return {row.key: row for row in masked(resolve([layer], Need.NOTHING))}


def test_every_setting_is_shown_once_with_its_default():
    shown = rows()
    assert list(shown) == [row.key for row in table() if row.key not in ("serve.flags", "launch.environment")]
    assert shown["serve.port"] == Shown("serve.port", "PORT", "8888", 8888, "default")
    assert {row.origin for row in shown.values()} == {"default"}


def test_a_value_is_shown_with_where_it_comes_from():
    shown = rows(("serve.port", "1"), ("serve.kv_cache_memory_bytes", "64MiB"), ("worker.address", "10.0.0.2"))
    assert shown["serve.port"] == Shown("serve.port", "PORT", "1", 1, ".env:1")
    assert shown["serve.kv_cache_memory_bytes"].value == 67108864
    assert shown["worker.control"] == Shown("worker.control", "WORKER_SSH", "10.0.0.2", "10.0.0.2", ".env:3")


def test_no_secret_is_shown_anywhere():
    shown = rows(
        ("serve.api_key", "s3cret"),
        ("weights.hf_token", "s3cret"),
        ("launch.environment.HF_TOKEN", ("s3cret",)),
        ("launch.environment.A", ("x",)),
        ("serve.flags.api-key", ("s3cret",)),
        ("serve.extra_args", "--api-key s3cret --hf-token=s3cret --seed 3"),
    )
    assert "s3cret" not in repr(shown)
    assert shown["serve.api_key"].text == "***"
    assert shown["launch.environment.HF_TOKEN"].text == "***"
    assert shown["launch.environment.A"].text == "x"
    assert shown["serve.extra_args"].value == ["--api-key", "***", "--hf-token=***", "--seed", "3"]


def test_one_node_has_no_worker_and_a_third_is_shown_by_its_place():
    assert "worker.address" not in rows(nodes=1)
    shown = rows(("nodes.2.address", "10.0.0.3"), nodes=3)
    assert shown["nodes.2.address"] == Shown("nodes.2.address", "", "10.0.0.3", "10.0.0.3", ".env:1")
