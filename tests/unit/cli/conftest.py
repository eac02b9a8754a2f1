"""Runs the command line in this process, against nodes that are not there."""

import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from cluster.app.session import OpenNode
from cluster.cli.main import main
from tests.fakes.cluster import AT_ONCE, FakeCluster

SCHEMAS = Path(__file__).resolve().parents[3] / "docs" / "schema" / "v1"
# What the settings of `pair()` are, as a person would write them.
ENV = """\
DEPLOYMENT=demo
MODEL_DIR=/models/demo
SERVED_MODEL_NAME=demo
VENV=/opt/vllm
HEAD_IP=10.40.0.1
HEAD_SSH=local
HEAD_NAME=spark-a
WORKER_IP=10.40.0.2
WORKER_SSH=op@spark-b
WORKER_NAME=spark-b
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """Every line of stdout, each held against the published contract."""
        lines = [json.loads(line) for line in self.out.splitlines()]
        for line in lines:
            contract().validate(line)
        return lines

    def named(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.events if line["event"] == event]


Sparkctl = Callable[..., Ran]


def contract() -> Draft202012Validator:
    loaded = [json.loads(path.read_text()) for path in SCHEMAS.glob("*.schema.json")]
    registry = Registry().with_resources([(one["$id"], Resource.from_contents(one)) for one in loaded])
    (every,) = (one for one in loaded if one["title"] == "any")
    return Draft202012Validator(every, registry=registry)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, no settings of whoever runs the tests, and the process as it was afterwards."""
    for name in list(os.environ):
        if name.startswith("SPARKCTL_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TERM", "dumb")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
    logger = logging.getLogger("cluster")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.propagate = True


@pytest.fixture
def dotenv() -> Path:
    path = Path(".env")
    path.write_text(ENV)
    path.chmod(0o600)
    return path


@pytest.fixture
def cluster(dotenv: Path) -> FakeCluster:
    """Two nodes whose ranks serve at once, and the `.env` that names them."""
    return FakeCluster(course=AT_ONCE)


@pytest.fixture
def sparkctl(capsys: pytest.CaptureFixture[str]) -> Sparkctl:
    """`sparkctl("status", "--json", on=cluster)`"""

    def run(*words: str, on: FakeCluster | None = None, open_one: OpenNode | None = None) -> Ran:
        code: Any = 0
        try:
            main(words, open_one=open_one or (on.open if on else None))
        except SystemExit as end:
            code = end.code or 0
        seen = capsys.readouterr()
        return Ran(int(code), seen.out, seen.err)

    return run
