import json
from pathlib import PurePosixPath

from cluster.model.deployment import DeploymentId
from cluster.model.steps import Run, Write
from cluster.model.units import Seconds
from cluster.runtime.base import LaunchSpec, RankSpec
from cluster.runtime.native import RAS, CompletionWish, HeadQuestion, NativeRuntime, Where

WHICH = DeploymentId("demo", "20261130T173000Z-3f9a")
HEAD = RankSpec(0, "spark-a", ("vllm", "serve", "--node-rank", "0"), (("NCCL_DEBUG", "WARN"),), (("KEY", "~/key"),))
WORKER = RankSpec(1, "spark-b", ("vllm", "serve", "--node-rank", "1"), (("NCCL_DEBUG", "WARN"),), state_dir="/var/s")
SPEC = LaunchSpec(WHICH, (HEAD, WORKER))
BOOT = "deployments/demo/boots/20261130T173000Z-3f9a"
HOME = "~/.local/state/sparkctl"
RUNTIME = NativeRuntime(lambda part: f"# {part}\n".encode())


def asked(argv: tuple[str, ...]) -> tuple[tuple[str, ...], object]:
    return argv[:-1], json.loads(argv[-1])


def test_a_node_needs_the_program_and_what_its_rank_runs():
    steps = RUNTIME.prepare(SPEC)
    assert [(step.node, str(step.path), step.mode) for step in steps if isinstance(step, Write)] == [
        ("spark-a", f"{HOME}/agent/{program()}", 0o644),
        ("spark-b", f"/var/s/agent/{program()}", 0o644),
        ("spark-a", f"{HOME}/{BOOT}/rank0/spec.json", 0o600),
        ("spark-b", f"/var/s/{BOOT}/rank1/spec.json", 0o600),
    ]


def test_two_ranks_on_one_node_share_the_program():
    here = RankSpec(1, "spark-a", ("vllm",), ())
    steps = RUNTIME.prepare(LaunchSpec(WHICH, (HEAD, here)))
    assert [str(step.path) for step in steps if isinstance(step, Write) and step.path.suffix == ".py"] == [
        f"{HOME}/agent/{program()}"
    ]


def test_the_spec_names_the_key_file_and_not_the_key():
    step = RUNTIME.prepare(LaunchSpec(WHICH, (HEAD,)))[-1]
    assert isinstance(step, Write)
    assert json.loads(step.data) == {
        "deployment": "demo",
        "boot": "20261130T173000Z-3f9a",
        "rank": 0,
        "node": "spark-a",
        "argv": ["vllm", "serve", "--node-rank", "0"],
        "env": {"NCCL_DEBUG": "WARN"},
        "secrets": {"KEY": "~/key"},
        "cwd": None,
        "log_bytes": 67108864,
        "keep_logs": 2,
    }


def test_workers_are_launched_before_the_head_and_each_can_be_undone():
    steps = RUNTIME.launch(SPEC)
    assert [step.node for step in steps] == ["spark-b", "spark-a"]
    step = steps[0]
    assert isinstance(step, Run)
    assert step.undo is not None
    assert asked(step.command.argv) == (
        ("python3", "-IS", "-", "launch"),
        {
            "dir": f"/var/s/{BOOT}/rank1",
            "program": f"/var/s/agent/{program()}",
            "unit": "sparkctl-demo-rank1-20261130T173000Z-3f9a",
        },
    )
    assert asked(step.undo.argv) == (
        ("python3", "-IS", "-", "stop"),
        {"dirs": [f"/var/s/{BOOT}/rank1"], "grace": 5.0},
    )


def test_the_program_comes_on_standard_input():
    command = RUNTIME.stop(Where(HOME, "demo"))
    assert (
        command.stdin == b"from __future__ import annotations\n# own\n\n# box\n\n# log\n\n# shim\n\n# prune\n\n# rank\n"
    )


def test_a_look_asks_all_in_one_command():
    command = RUNTIME.look(Where(HOME, "demo", (0,)), head=HeadQuestion("127.0.0.1", 8888, "tiny"), ras=RAS)
    assert asked(command.argv) == (
        ("python3", "-IS", "-", "look"),
        {
            "root": HOME,
            "deployment": "demo",
            "ranks": [0],
            "boot": None,
            "http": {"host": "127.0.0.1", "port": 8888, "model": "tiny", "key_file": None, "ready": "/health"},
            "completion_limit": 10.0,
            "ras": ["127.0.0.1", 28028],
            "log_lines": 200,
            "fabric": None,
        },
    )


def test_a_watch_goes_on_where_the_last_one_ended():
    command = RUNTIME.watch(
        Where(HOME, "demo"), WHICH.boot, completion=CompletionWish(Seconds(60.0)), places={1: (77, 1024)}
    )
    assert asked(command.argv) == (
        ("python3", "-IS", "-", "watch"),
        {
            "root": HOME,
            "deployment": "demo",
            "ranks": None,
            "boot": WHICH.boot,
            "http": None,
            "completion": {"limit": 60.0, "every": None},
            "ras": None,
            "gpus": False,
            "fabric": None,
            "every": 1.0,
            "places": {"1": [77, 1024]},
        },
    )


def test_a_log_is_read_on_the_node_of_its_rank():
    source = RUNTIME.log(WORKER, WHICH, lines=100, follow=True)
    assert (source.rank, source.node, source.path) == (1, "spark-b", PurePosixPath(f"/var/s/{BOOT}/rank1/log"))
    assert asked(source.command.argv) == (
        ("python3", "-IS", "-", "tail"),
        {"dir": f"/var/s/{BOOT}/rank1", "lines": 100, "since": None, "follow": True, "grep": None},
    )


def program() -> str:
    step = RUNTIME.prepare(SPEC)[0]
    assert isinstance(step, Write)
    return step.path.name
