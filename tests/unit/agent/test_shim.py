import json
from pathlib import Path

import pytest

from cluster.agent.shim import fill, reserve, server_environment

SPEC = {"argv": ["/opt/venv/bin/vllm", "serve"], "env": {"NCCL_DEBUG": "WARN"}}
OURS = {
    "PATH": "/opt/venv/bin:/usr/bin",
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
    "SPARKCTL_RANK_DIR": "/state/rank0",
    "NCCL_DEBUG": "WARN",
}


def test_only_a_few_variables_of_the_user_reach_the_server():
    mine = {"PATH": "/usr/bin", "HOME": "/home/spark", "PYTHONPATH": "/odd", "VLLM_PORT": "1", "NCCL_IB_HCA": "odd"}
    assert server_environment("/state/rank0", SPEC, mine) == OURS | {"HOME": "/home/spark"}


def test_what_the_launch_says_wins():
    spec = SPEC | {"env": {"PATH": "/own", "PYTHONUNBUFFERED": "0", "NCCL_DEBUG": "WARN"}}
    environment = server_environment("/state/rank0", spec, {"PATH": "/usr/bin"})
    assert environment == OURS | {"PATH": "/own", "PYTHONUNBUFFERED": "0"}


def test_a_secret_is_read_without_its_newline(tmp_path: Path):
    (tmp_path / "key").write_text("sekret\n")
    (tmp_path / "key").chmod(0o600)
    spec = SPEC | {"secrets": {"VLLM_API_KEY": str(tmp_path / "key")}}
    assert server_environment("/", spec, {})["VLLM_API_KEY"] == "sekret"


@pytest.mark.parametrize(("mode", "text", "said"), [(0o640, "k", "can be read by others"), (0o600, "\n", "is empty")])
def test_a_poor_key_file_is_refused(tmp_path: Path, mode, text, said):
    key = tmp_path / "key"
    key.write_text(text)
    key.chmod(mode)
    with pytest.raises(ValueError, match=said):
        server_environment("/", SPEC | {"secrets": {"VLLM_API_KEY": str(key)}}, {})


def test_a_record_takes_the_room_that_was_kept_for_it(tmp_path: Path):
    reserve(str(tmp_path))
    kept = (tmp_path / ".exit.json").stat().st_ino
    fill(str(tmp_path), "exit.json", {"code": 0})
    assert json.loads((tmp_path / "exit.json").read_text()) == {"code": 0}
    assert (tmp_path / "exit.json").stat().st_ino == kept


def test_a_record_can_be_written_again_and_shorter(tmp_path: Path):
    fill(str(tmp_path), "processes.json", {"seen": [[number, number] for number in range(150)]})
    fill(str(tmp_path), "processes.json", {"seen": []})
    assert json.loads((tmp_path / "processes.json").read_text()) == {"seen": []}
