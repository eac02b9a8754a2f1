"""The main job in containers: two nodes with an engine each, one image built on the head and sent to the worker.

The image is the demo's: a Debian root, vLLM for CPU, the overlay compiled inside, its self-test run at build.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.contract import engine_kinds
from tests.contract.dockerd import busybox_image, missing
from tests.lab.cli import WORK, Cli, chat
from tests.lab.engines import SOCKET, docker, engine_in, lent
from tests.lab.nodes import Lab
from tests.lab.specification import REPOSITORY
from tests.lab.test_story import ANSWER, API, QUESTION, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.cli import Said
    from tests.lab.node import Node

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]  # an image of 2 GB is made, sent and removed

IMAGE = "sparkctl-demo:1"
ON_A_CPU = {
    "deployment": "one",
    "serve": {"max_model_len": 1024},
    "launch": {
        "command": [
            *("vllm", "serve", "{model}", "--served-model-name", "{name}", "--host", "{host}", "--port", "{port}"),
            *("--max-model-len", "{max_model_len}", "--max-num-seqs", "{max_num_seqs}", "--enforce-eager"),
            *("--max-num-batched-tokens", "{max_num_batched_tokens}", "--kv-cache-memory-bytes", "67108864"),
        ],
        "environment": {
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": 1,
            "VLLM_CPU_CI_ENV": 1,
            "TORCHDYNAMO_DISABLE": 1,
        },
    },
    "container": {"mounts": []},
}
CACHE = Path(os.environ.get("SPARKCTL_IMAGE_CACHE") or Path.home() / ".cache/sparkctl/images")
BOXED = SETTINGS | {
    "RUNTIME": "container",
    "IMAGE": IMAGE,
    "IMAGE_FOLDER": str(REPOSITORY),
    "IMAGE_FILE": "images/demo/Dockerfile",
    "IMAGE_BUILD_NETWORK": "none",
    "READY_TIMEOUT": "10min",
}


@pytest.fixture(scope="module")
def base(lab_ground: None) -> Path:
    """The root of the demo image, made once and kept."""
    if reason := missing():
        pytest.skip(f"not run: {reason}")
    if not (REPOSITORY / ".venv-vllm" / "provisioned.json").is_file():
        pytest.skip("not run: no CPU vLLM here; `python3 scripts/provision.py vllm` installs it")
    words = (sys.executable, REPOSITORY / "scripts/build_images.py", "base")
    # A node has a ~/.cache of its own: it sees the cache where it sees nothing else.
    environment = {**os.environ, "SPARKCTL_IMAGE_CACHE": str(CACHE)}
    made = subprocess.run(words, capture_output=True, text=True, env=environment)
    if made.returncode:
        pytest.skip(f"not run: {made.stderr.strip()}")
    return Path(made.stdout.split()[-1])


@pytest.fixture(scope="module")
def lab(base: Path) -> Iterator[Lab]:
    with Lab.up(small_disk_size="320m", lent=lent()) as nodes, contextlib.ExitStack() as stack:
        for node in nodes.nodes:
            stack.enter_context(engine_in(node))
        socket = f"unix://{nodes.a.path(SOCKET)}"
        words = ("docker", "-H", socket, "import", base, "sparkctl-demo-base:bookworm")
        subprocess.run(words, check=True, capture_output=True)
        yield nodes


@pytest.fixture(scope="module")
def built(lab: Lab) -> Said:
    return Cli(lab.a, BOXED)("image", "build", timeout=900)


@pytest.fixture
def sparkctl(lab: Lab, built: Said) -> Cli:
    assert built.code == 0, (built.result, built.err)
    return Cli(lab.a, BOXED)


def test_the_image_is_built_once_with_the_overlay_and_its_self_test(lab: Lab, built: Said, sparkctl: Cli) -> None:
    assert built.code == 0, (built.result, built.err)
    steps = built.of("progress")
    assert (steps[-1]["current"], steps[-1]["total"], steps[-1]["unit"]) == (6, 6, "steps")
    (log,) = lab.a.path("/root/.cache/sparkctl/builds").glob("*.log")
    assert "spark-overlay: library, plugin and rows: ok" in log.read_text()
    stamp = built.of("image")[-1]["nodes"][0]["stamp"]
    again = sparkctl("image", "build").of("image")[-1]
    assert (again["nodes"][0]["stamp"], again["notes"][0].rpartition(": ")[2]) == (stamp, "nothing was built")


def test_an_image_that_only_the_head_has_is_sent_once(lab: Lab, sparkctl: Cli) -> None:
    before = sparkctl("image", "ls").of("image")[-1]
    assert [one["layers"] > 0 for one in before["nodes"]] == [True, False]
    sent = sparkctl("image", "ship", timeout=600)
    report = sent.of("image")[-1]
    assert (sent.code, report["equal"], report["shipped"][0]["how"]) == (0, True, "store")
    assert len({one["key"] for one in report["nodes"]}) == 1
    # containerd's store names an image by how it came, too
    assert len({one["id"] for one in report["nodes"]}) == 1 or engine_kinds.chosen() is engine_kinds.Kind.CONTAINERD
    progress = sent.of("progress")
    assert progress
    assert all(one["unit"] == "bytes" for one in progress)
    again = sparkctl("image", "ship").of("image")[-1]
    assert (again["equal"], again["shipped"]) == (True, [])
    verified = sparkctl("image", "verify", "--self-test", timeout=300)
    assert verified.code == 0, verified.err
    tried = {one["node"]: one["observed"] for one in verified.of("finding")}
    assert {name: "self-test passed but for the GPU" in seen for name, seen in tried.items()} == {
        "head": True,
        "worker": True,
    }


def test_two_nodes_serve_from_one_image_that_only_the_head_had(lab: Lab, sparkctl: Cli) -> None:
    for node in lab.nodes:
        stranger(node)
    docker(lab.b, "rmi", "-f", IMAGE)
    started = sparkctl("start", timeout=600)
    assert started.code == 0, (started.result, started.err)
    assert [stage["stage"] for stage in started.result["stages"]][:3] == ["connect", "check", "image"]
    told = {one["observed"] for one in started.of("finding") if one["id"] == "IMAGE.SELF_TEST"}
    assert told == {"not checked: no GPU on head", "not checked: no GPU on worker"}
    assert ANSWER in str(chat(lab.a, API, QUESTION))
    compared = sparkctl("image", "verify")
    assert (compared.code, compared.of("image")[-1]["equal"]) == (0, True)
    for node in lab.nodes:
        assert len(ours(node)) == 1
        assert docker(node, "ps", "-q", "--filter", "name=stranger").stdout.strip()
    assert sparkctl("status").code == 0
    said = sparkctl("logs", "--lines", "2000", "--grep", "spark_overlay .* active in vLLM").of("log-line")
    assert {line["rank"] for line in said} == {0, 1}

    ended = sparkctl("stop")
    assert (ended.code, ended.result["event"]) == (0, "stopped")
    for node in lab.nodes:
        assert ours(node) == []
        assert docker(node, "ps", "-q", "--filter", "name=stranger").stdout.strip()
        assert docker(node, "volume", "ls", "-q").stdout.split() == ["kept"]


def test_the_recipe_for_one_spark_in_a_container_serves_the_demo_model(lab: Lab, built: Said) -> None:
    """sparkinfer's recipe with the demo image for its own: another server's command line, one rank, its limits."""
    assert built.code == 0, (built.result, built.err)
    folder = WORK / "one"
    settings = {"RECIPE": "dsv4-sparkinfer-1x", "IMAGE": IMAGE, "MODEL_HOST": SETTINGS["MODEL_DIR"]}
    sparkctl = Cli(lab.a, settings | {"READY_TIMEOUT": "10min"}, folder)
    (lab.a.path(folder) / "cluster.yaml").write_text(json.dumps(ON_A_CPU))  # JSON is YAML
    started = sparkctl("start", timeout=600)
    assert started.code == 0, (started.result, started.err)
    (running,) = ours(lab.a)
    (seen,) = json.loads(docker(lab.a, "inspect", running).stdout)
    given = dict(one.partition("=")[::2] for one in seen["Config"]["Env"])
    assert (given["MODE"], given["VLLM_DSV4_PADDED_NVFP4"], given["MAX_NUM_BATCHED_TOKENS"]) == ("dspark", "1", "8224")
    assert seen["HostConfig"]["RestartPolicy"]["Name"] == "no"
    asked = sparkctl("smoke")
    assert (asked.code, asked.result["model"], asked.result["ok"]) == (0, "deepseek-v4-flash-0731", True)
    assert sparkctl("stop").code == 0
    assert ours(lab.a) == []


def ours(node: Node) -> list[str]:
    return docker(node, "ps", "-aq", "--filter", "label=sparkctl.deployment").stdout.split()


def stranger(node: Node) -> None:
    """Somebody else's container and volume, which nothing of ours may touch."""
    socket = node.path(SOCKET)
    data = busybox_image("stranger:1")
    subprocess.run(("docker", "-H", f"unix://{socket}", "load"), input=data, check=True, capture_output=True)
    docker(
        node,
        "run",
        "-d",
        "--network=none",
        "--name=stranger",
        "-v",
        "kept:/kept",
        "stranger:1",
        "sleep",
        "900",
        check=True,
    )
