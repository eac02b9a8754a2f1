"""Rules across settings: each is said with its place and its remedy, and none hides another."""

from dataclasses import replace

import pytest

from cluster.model.flags import value_of
from cluster.model.kit import Sync
from cluster.model.need import Need
from cluster.model.rules import cautions, is_local, problems, unsupported
from cluster.model.settings import SECTIONS, NodeSettings, RuntimeKind, Settings
from cluster.model.table import Caution, Problem, Secret
from cluster.model.units import Seconds

HEAD = NodeSettings(name="head", address="10.40.0.1")
WORKER = NodeSettings(name="worker", address="10.40.0.2", control="op@10.40.0.2")
HERE = NodeSettings(name="head", control="local", address="127.0.0.1")
ALSO_HERE = replace(HERE, name="worker")


def settings(*nodes: NodeSettings, **values: object) -> Settings:
    """A sound deployment with these values; `serve__port=1` is `serve.port`."""
    whole = {"serve__model": "/m", "launch__venv": "/v"} | values
    sections = {
        name: cls(**{key.split("__")[1]: value for key, value in whole.items() if key.startswith(f"{name}__")})
        for name, cls in SECTIONS.items()
    }
    return Settings(deployment="x", recipe="", nodes=nodes or (HEAD, WORKER), **sections)


def wrong(given: Settings, origins: dict[str, str] | None = None, need: Need = Need.SERVE) -> list[str]:
    return [str(problem) for problem in problems(given, origins or {}, need)]


def test_a_sound_deployment_has_no_problem():
    assert wrong(settings()) == []
    assert wrong(settings(HERE, ALSO_HERE)) == []


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ((replace(HEAD, address=""), WORKER), "HEAD_IP is not set"),
        ((replace(HEAD, address="spark-a"), WORKER), "HEAD_IP=spark-a is no IPv4 address"),
        ((replace(HEAD, address="fe80::1"), WORKER), "HEAD_IP=fe80::1 is no IPv4 address"),
        ((replace(HEAD, address="10.40.0.256"), WORKER), "HEAD_IP=10.40.0.256 is no IPv4 address"),
        ((replace(HEAD, address="010.40.0.1"), WORKER), "HEAD_IP=010.40.0.1 is no IPv4 address"),
        ((replace(HEAD, address="0.0.0.0"), WORKER), "HEAD_IP=0.0.0.0 is no address of a node"),
        ((replace(HEAD, address="127.0.0.1"), WORKER), "HEAD_IP=127.0.0.1 is a loopback address"),
        ((HEAD, replace(WORKER, address="127.0.0.1")), "WORKER_IP=127.0.0.1 is a loopback address"),
        ((HEAD, replace(WORKER, address="10.40.0.1")), "WORKER_IP is 10.40.0.1, and so is HEAD_IP"),
        (
            (HEAD, replace(WORKER, control="-oProxyCommand=x")),
            "WORKER_SSH=-oProxyCommand=x is not a way to reach a node",
        ),
        ((HEAD, replace(WORKER, control="op@")), "WORKER_SSH=op@ is not a way to reach a node"),
        ((HEAD, replace(WORKER, control="a b")), "WORKER_SSH=a b is not a way to reach a node"),
        ((HEAD, replace(WORKER, name="head")), "two nodes have the name head"),
    ],
)
@pytest.mark.parametrize("need", [Need.NODES, Need.SERVE])
def test_a_node_that_cannot_be_reached_or_told_apart_is_refused(nodes, said, need):
    found = wrong(settings(*nodes), need=need)
    assert len(found) == 1
    assert found[0].startswith(said)


@pytest.mark.parametrize("control", ["local", "spark-b", "op@spark-b", "op@10.0.0.2:2222", "[fe80::1%eth0]:22", "_a@b"])
def test_a_node_is_reached_here_by_name_or_by_login(control):
    assert wrong(settings(HEAD, replace(WORKER, control=control))) == []


def test_a_head_at_loopback_is_local_without_saying_so():
    assert [is_local(one) for one in (HERE, replace(HERE, control=""), HEAD, WORKER)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"serve__model": ""}, "MODEL_DIR is not set: the model's folder on every node; set it, or choose a RECIPE"),
        (
            {"launch__venv": ""},
            "VENV is not set: the virtual environment with vLLM on every node; set it, e.g. VENV=~/vllm",
        ),
        (
            {"serve__tensor_parallel": 4},
            "TP=4 times PP=1 makes 4 ranks, for 2 node(s); one rank runs on each node: make them equal",
        ),
        (
            {"serve__pipeline_parallel": 2},
            "TP=2 times PP=2 makes 4 ranks, for 2 node(s); one rank runs on each node: make them equal",
        ),
        (
            {"launch__nnodes": 3},
            "NNODES=3, and 2 node(s) are set; remove NNODES, or list the nodes in cluster.yaml",
        ),
        ({"serve__port": 29521}, "PORT and MASTER_PORT are both 29521; give each its own port"),
        ({"serve__host": "spark-a"}, "HOST=spark-a is none of fabric, loopback, an IPv4 address; write one of them"),
        (
            {"serve__max_num_batched_tokens": 1024, "serve__language_model_only": False},
            (
                "MAX_NUM_BATCHED_TOKENS=1024 is too small for one image, which takes 1025 with vision on; "
                "set 1536, or LANGUAGE_MODEL_ONLY=1"
            ),
        ),
        (
            {"serve__max_num_batched_tokens": 1024, "serve__limit_mm": '{"image":1}'},
            (
                "MAX_NUM_BATCHED_TOKENS=1024 is too small for one image, which takes 1025 with vision on; "
                "set 1536, or LANGUAGE_MODEL_ONLY=1"
            ),
        ),
        (
            {"serve__max_num_batched_tokens": 1536, "serve__long_prefill_token_threshold": 1281},
            (
                "MAX_NUM_BATCHED_TOKENS=1536 leaves 255 beside LONG_PREFILL_TOKEN_THRESHOLD=1281; 256 are needed for "
                "running requests; set LONG_PREFILL_TOKEN_THRESHOLD=1280 or less, or leave it empty"
            ),
        ),
        (
            {"serve__extra_args": ("--x", '{"enable_adaptive_verification":true}')},
            "EXTRA_ARGS has enable_adaptive_verification, which the engine rejects after minutes of loading; remove it",
        ),
        (
            {"serve__extra_args": ("--max-model-len=5",), "serve__max_model_len": 4},
            "EXTRA_ARGS has --max-model-len, and MAX_MODEL_LEN is set as well; keep MAX_MODEL_LEN alone",
        ),
        (
            {"serve__flags": (("port", ("1",)),)},
            "serve.flags has --port, which sparkctl gives to every rank itself; set PORT",
        ),
        (
            {"launch__environment": (("VLLM_HOST_IP", "10.0.0.1"),)},
            "VLLM_HOST_IP differs by rank or comes from another setting; remove it from the environment",
        ),
        (
            {"launch__environment": (("HF_TOKEN", "x"),)},
            (
                "HF_TOKEN looks like a secret, and variables of a process are logged and shown; "
                "put it in a file on the node; for the API's key set API_KEY_FILE"
            ),
        ),
        (
            {"launch__environment": (("NCCL_DEBUG", "INFO"),)},
            "NCCL_DEBUG among the variables is also the setting launch.nccl_debug; keep one of them",
        ),
    ],
)
def test_values_that_do_not_go_together_are_refused(values, said):
    assert wrong(settings(**values)) == [said]
    assert wrong(settings(**values), need=Need.NODES) == []


@pytest.mark.parametrize(
    "values",
    [
        {"serve__max_num_batched_tokens": 512},
        {"serve__max_num_batched_tokens": 1024, "serve__language_model_only": True, "serve__limit_mm": "{}"},
        {"serve__max_num_batched_tokens": 1536, "serve__long_prefill_token_threshold": 1280},
        {"serve__extra_args": ("--max-model-len", "5")},
        {"serve__extra_args": ("--temperature", "-1", "-0.5", "--hf-overrides", '{"a":1}')},
        {"launch__environment": (("NCCL_SOCKET_IFNAME", "^lo,docker0"), ("MAX_TOKENS", "1"))},
        {"launch__venv": "", "launch__runtime": RuntimeKind.CONTAINER, "image__name": "vllm:1"},
        {"serve__host": "10.40.0.1"},
    ],
)
def test_values_that_go_together_are_left_alone(values):
    assert wrong(settings(**values)) == []


@pytest.mark.parametrize(
    "word",
    [
        "--nnodes",
        "--node-rank=1",
        "--node_rank",
        "--master-addr",
        "--master-port",
        "--headless",
        "--host",
        "--port",
        "--por",
        "--tensor-parallel-size",
        "--tensor-parallel",
        "-tp",
        "-pp",
        "-n",
        "-r",
        "--api-key",
        "--api-key=abc",
        "--api_key=abc",
        "--distributed-executor-backend",
        "--config",
        "--model",
    ],
)
def test_a_flag_of_ours_among_further_arguments_is_refused_without_its_value(word):
    origins = {"serve.extra_args": ".env:7"}
    (found,) = wrong(settings(serve__extra_args=(word, "1")), origins)
    assert found.startswith(f".env:7: EXTRA_ARGS has {word.partition('=')[0]}, which sparkctl gives")
    assert "abc" not in found


def test_all_problems_are_said_together_with_their_places():
    given = settings(HEAD, replace(WORKER, address="x"), serve__port=29521, serve__tensor_parallel=3)
    origins = {"worker.address": ".env:2", "serve.tensor_parallel": "option --tp", "serve.master_port": "recipe demo"}
    assert [(problem.where, problem.what) for problem in problems(given, origins, Need.SERVE)] == [
        (".env:2", "WORKER_IP=x is no IPv4 address"),
        ("option --tp", "TP=3 times PP=1 makes 3 ranks, for 2 node(s)"),
        ("recipe demo", "PORT and MASTER_PORT are both 29521"),
    ]
    assert wrong(given, origins, Need.NOTHING) == []


def test_three_nodes_may_serve_three_ranks_and_are_named_by_their_place():
    third = NodeSettings(name="c", control="c", address="10.40.0.2")
    given = settings(HEAD, WORKER, third, serve__tensor_parallel=3)
    assert wrong(given) == ["nodes.2.address is 10.40.0.2, and so is WORKER_IP; give every node its own fabric address"]


def test_what_may_be_meant_is_only_said():
    given = settings(
        serve__host="0.0.0.0",
        serve__max_num_seqs=4,
        watch__ready_timeout=Seconds(100),
        watch__hang_seconds=Seconds(420),
        tuning__temp_rows_fused=8,
    )
    assert cautions(given, {"serve.host": ".env:1"}) == (
        Caution(
            "listens-everywhere",
            ".env:1",
            "HOST=0.0.0.0 listens on every network of the head; the API key does not cover all of vLLM's routes",
        ),
        Caution(
            "hang-never", "", "DSV41_HANG_SECONDS=420 is not below READY_TIMEOUT=100: no hang of a boot will be seen"
        ),
        Caution("few-rows", "", "EXL3_TEMP_ROWS_FUSED=8 is below the 16 rows that MAX_NUM_SEQS and DSPARK_TOKENS make"),
    )
    assert problems(given, {}, Need.SERVE) == ()
    assert cautions(settings(), {}) == ()


def test_a_setting_that_nothing_acts_on_yet_is_refused_and_not_ignored():
    given = settings(
        container__head="one",
        container__worker="two",
        watch__shape_warmup=True,
    )
    origins = {"container.head": ".env:1", "container.worker": ".env:2", "watch.shape_warmup": "cluster.yaml:4"}
    assert unsupported(given, origins) == (
        Problem(
            "cluster.yaml:4",
            "DSV41_BOOT_SHAPE_WARMUP=1 would be ignored: the warm-up after a boot is not there yet",
        ),
        Problem(
            ".env:1, .env:2",
            "CONTAINER_HEAD=one, CONTAINER_WORKER=two would be ignored: the container runtime is not there yet",
        ),
    )


def test_defaults_and_tokens_that_nothing_needs_are_no_reason_to_refuse():
    assert unsupported(settings(weights__sync=Sync.INPLACE), {"weights.sync": ".env:1"}) == ()
    assert unsupported(settings(weights__hf_token=Secret("x"), image__ghcr_token=Secret("x")), {}) == ()


def test_a_value_is_found_by_its_key():
    given = settings(HEAD)
    assert [value_of(given, key) for key in ("deployment", "serve.port", "head.address", "worker.address")] == [
        "x",
        8888,
        "10.40.0.1",
        None,
    ]
