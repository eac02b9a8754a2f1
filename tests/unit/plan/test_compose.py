"""A rank's container as a compose file."""

import yaml

from cluster.model.containers import Box, Mount
from cluster.model.deployment import DeploymentId
from cluster.plan.compose import bind_sources, compose_file
from cluster.runtime.base import LaunchSpec, RankSpec

WHICH = DeploymentId("demo", "compose")
BOX = Box(
    "sha256:11aa",
    "/var/run/docker.sock",
    "/home/op",
    (Mount("~/models/demo", "/model"), Mount("weights", "/w")),
    devices=("/dev/infiniband",),
    gpus=True,
)
RANK = RankSpec(
    0, "spark-a", ("vllm", "serve", "/model"), (("PATTERN", "a$b"),), (("VLLM_API_KEY", "~/key"),), "~/.state", BOX
)


def read():
    return yaml.safe_load(compose_file(WHICH, RANK))["services"]["rank0"]


def test_a_rank_is_one_service_that_is_never_pulled_or_restarted():
    service = read()
    told = [service[name] for name in ("image", "restart", "pull_policy", "network_mode", "ipc", "entrypoint")]
    assert told == ["sha256:11aa", "no", "never", "host", "host", []]
    assert service["ulimits"] == {"memlock": -1, "stack": 64 * 2**20}
    assert service["cap_add"] == ["SYS_PTRACE", "IPC_LOCK"]


def test_a_folder_that_is_missing_is_not_made():
    binds = [one for one in read()["volumes"] if one["type"] == "bind"]
    assert [one["source"] for one in binds] == ["/home/op/models/demo", "/home/op/key"]
    assert all(one["bind"] == {"create_host_path": False} and one["read_only"] for one in binds)


def test_a_secret_is_a_mounted_file():
    assert "VLLM_API_KEY" not in read()["environment"]
    assert read()["volumes"][-1]["target"] == "/run/sparkctl/VLLM_API_KEY"


def test_a_dollar_stays_one():
    assert read()["environment"] == {"PATTERN": "a$$b"}
    assert "$$(cat" in read()["command"][2]


def test_volumes_are_not_looked_for_on_the_disk():
    assert bind_sources(LaunchSpec(WHICH, (RANK,))) == {"spark-a": ("/home/op/models/demo", "/home/op/key")}


def test_a_rank_alone_may_start_again_once_and_is_asked_whether_it_is_ready():
    service = yaml.safe_load(compose_file(WHICH, RANK, "http://127.0.0.1:5000/ready"))["services"]["rank0"]
    assert service["restart"] == "on-failure:1"
    assert service["healthcheck"] == {
        "test": ["CMD", "curl", "-fsS", "--max-time", "5", "http://127.0.0.1:5000/ready"],
        "interval": "30s",
        "timeout": "5s",
        "start_period": "20m",
        "retries": 3,
    }
