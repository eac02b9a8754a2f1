"""All ranks run one command line and one environment, less the few differences a rank must have."""

from dataclasses import replace
from itertools import pairwise

import pytest

from cluster.model.deployment import DeploymentId
from cluster.model.settings import Launch, NodeSettings, Serve
from cluster.model.table import Secret
from cluster.plan.launch import (
    RANK_VARIABLES,
    Wiring,
    api_url,
    common_part,
    launch_spec,
    listen_address,
)
from tests.build import pair

WHICH = DeploymentId("demo", "20261130T120000Z-ab12")
WIRED = (
    Wiring("10.40.0.1", "enp1s0f1np1", "rocep1s0f1", 3),
    Wiring("10.40.0.2", "enp1s0f0np0", "rocep1s0f0", 5),
)


def test_ranks_are_equal_but_for_what_may_differ():
    head, worker = launch_spec(pair(), WHICH, WIRED).ranks
    assert common_part(head) == common_part(worker)
    assert set(dict(head.environment)) == set(dict(worker.environment))


def test_every_difference_between_ranks_is_a_named_one():
    head, worker = launch_spec(pair(), WHICH, WIRED).ranks
    differing = {name for name, value in head.environment if dict(worker.environment)[name] != value}
    assert differing <= RANK_VARIABLES
    assert worker.argv[: len(head.argv)] == (*head.argv[:-1], "1")
    assert worker.argv[len(head.argv) :] == ("--headless",)


def test_four_ranks_of_four_nodes_are_equal_too():
    nodes = tuple(NodeSettings(name=f"n{n}", control="local", address=f"10.40.0.{n}") for n in range(1, 5))
    settings = pair(nodes=nodes, serve=Serve(model="/m", tensor_parallel=2, pipeline_parallel=2))
    spec = launch_spec(settings, WHICH, tuple(Wiring(node.address, "eth0") for node in nodes))
    assert len({common_part(rank) for rank in spec.ranks}) == 1
    assert [rank.argv[rank.argv.index("--node-rank") + 1] for rank in spec.ranks] == ["0", "1", "2", "3"]
    assert ["--headless" in rank.argv for rank in spec.ranks] == [False, True, True, True]


def test_each_rank_gets_its_own_interface_address_and_gid():
    head, worker = (dict(rank.environment) for rank in launch_spec(pair(), WHICH, WIRED).ranks)
    assert {name: (head[name], worker[name]) for name in sorted(RANK_VARIABLES & set(head))} == {
        "GLOO_SOCKET_IFNAME": ("enp1s0f1np1", "enp1s0f0np0"),
        "NCCL_IB_GID_INDEX": ("3", "5"),
        "NCCL_IB_HCA": ("rocep1s0f1", "rocep1s0f0"),
        "NCCL_SOCKET_IFNAME": ("enp1s0f1np1", "enp1s0f0np0"),
        "TP_SOCKET_IFNAME": ("enp1s0f1np1", "enp1s0f0np0"),
        "VLLM_HOST_IP": ("10.40.0.1", "10.40.0.2"),
    }


def test_a_pattern_of_the_user_reaches_nccl_and_never_gloo():
    """NET-13: Gloo takes one plain name, NCCL's value may be a pattern."""
    settings = pair(launch=Launch(venv="/v", environment=(("NCCL_SOCKET_IFNAME", "^lo,docker0"),)))
    head, worker = (dict(rank.environment) for rank in launch_spec(settings, WHICH, WIRED).ranks)
    assert (head["GLOO_SOCKET_IFNAME"], worker["GLOO_SOCKET_IFNAME"]) == ("enp1s0f1np1", "enp1s0f0np0")
    assert head["NCCL_SOCKET_IFNAME"] == worker["NCCL_SOCKET_IFNAME"] == "^lo,docker0"


def test_no_gid_is_passed_when_none_is_known():
    """NET-14: in auto mode the variable is not passed at all."""
    spec = launch_spec(pair(), WHICH, (Wiring("10.40.0.1", "e0"), Wiring("10.40.0.2", "e0")))
    assert all("NCCL_IB_GID_INDEX" not in dict(rank.environment) for rank in spec.ranks)


def test_timeouts_and_executor_are_always_passed():
    argv = launch_spec(pair(), WHICH, WIRED).ranks[0].argv
    given = dict(pairwise(argv))
    wanted = {
        "--distributed-executor-backend": "mp",
        "--nnodes": "2",
        "--master-addr": "10.40.0.1",
        "--master-port": "29521",
        "--distributed-timeout-seconds": "600",
        "--cpu-distributed-timeout-seconds": "600",
        "--tensor-parallel-size": "2",
    }
    assert {flag: given[flag] for flag in wanted} == wanted


def test_the_step_timeout_is_always_set_and_nccl_says_which_transport_it_takes():
    environment = dict(launch_spec(pair(), WHICH, WIRED).ranks[1].environment)
    names = ("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS")
    assert tuple(environment[name] for name in names) == ("300", "INFO", "INIT,ENV,NET")


def test_a_key_in_the_settings_is_read_from_our_own_file_on_the_head():
    settings = pair(serve=Serve(model="/m", api_key=Secret("k")))
    head, worker = launch_spec(settings, WHICH, WIRED).ranks
    assert head.secrets == (("VLLM_API_KEY", "~/.local/state/sparkctl/deployments/demo/api-key"),)
    assert worker.secrets == ()


def test_the_api_key_is_a_file_of_the_head_and_never_in_argv_or_environment():
    settings = pair(serve=Serve(model="/m", api_key_file="/etc/key"))
    head, worker = launch_spec(settings, WHICH, WIRED).ranks
    assert (head.secrets, worker.secrets) == ((("VLLM_API_KEY", "/etc/key"),), ())
    assert all("/etc/key" not in rank.argv + tuple(dict(rank.environment).values()) for rank in (head, worker))


@pytest.mark.parametrize(
    ("host", "listens", "url"),
    [
        ("fabric", "10.40.0.1", "http://10.40.0.1:8888"),
        ("loopback", "127.0.0.1", "http://127.0.0.1:8888"),
        ("0.0.0.0", "0.0.0.0", "http://127.0.0.1:8888"),
        ("192.0.2.11", "192.0.2.11", "http://192.0.2.11:8888"),
    ],
)
def test_the_listening_address_is_explicit(host, listens, url):
    settings = pair(serve=Serve(model="/m", host=host))
    assert (listen_address(settings), api_url(settings)) == (listens, url)


def test_settings_become_flags_only_when_they_have_a_value():
    argv = (
        launch_spec(
            pair(serve=replace(pair().serve, max_model_len=1024, enforce_eager=True, extra_args=("--seed", "7"))),
            WHICH,
            WIRED,
        )
        .ranks[0]
        .argv
    )
    assert argv[argv.index("--max-model-len") + 1] == "1024"
    assert "--enforce-eager" in argv
    assert "--max-num-seqs" not in argv
    assert argv[argv.index("--seed") + 1] == "7"


def one(**launch):
    return pair(
        nodes=(NodeSettings(name="spark", control="local", address="10.40.0.1"),),
        serve=Serve(model="/m", served_model_name="tiny", tensor_parallel=1, port=5000),
        launch=Launch(venv="/opt/vllm", **launch),
    )


def test_a_rank_alone_gets_no_rendezvous():
    (rank,) = launch_spec(one(), WHICH, WIRED[:1]).ranks
    flags = {word for word in rank.argv if word.startswith("--")}
    assert flags == {
        "--host",
        "--port",
        "--served-model-name",
        "--tensor-parallel-size",
        "--pipeline-parallel-size",
        "--disable-access-log-for-endpoints",
    }
    assert RANK_VARIABLES & set(dict(rank.environment)) == {"VLLM_HOST_IP"}


def test_another_server_gets_its_own_words_with_ours_filled_in():
    settings = one(
        command=("{venv}/bin/serve", "--dir={model}", "{host}:{port}", "{braces}"), environment=(("NAME", "{name}"),)
    )
    (rank,) = launch_spec(settings, WHICH, WIRED[:1]).ranks
    assert rank.argv == ("/opt/vllm/bin/serve", "--dir=/m", "10.40.0.1:5000", "{braces}")
    assert dict(rank.environment)["NAME"] == "tiny"


def test_what_is_filled_in_stays_one_word():
    settings = replace(one(command=("serve", "{model}")), serve=Serve(model="/m; rm -rf {port}", tensor_parallel=1))
    assert launch_spec(settings, WHICH, WIRED[:1]).ranks[0].argv == ("serve", "/m; rm -rf {port}")
