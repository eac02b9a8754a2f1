"""Around a verb: signals, closed pipes, the log for developers."""

import contextlib
import io
import json
import logging
import os
import signal
import sys
import time

import pytest

from cluster.errors import Exit


def test_sigterm_ends_a_verb_as_ctrl_c_does(sparkctl, cluster):
    """What was launched is undone, also what is being launched at that moment."""
    cluster["spark-a"].fails["launch"] = _terminate
    ran = sparkctl("start", "--json", on=cluster)
    assert (ran.code, ran.events[-1]["error"]) == (Exit.INTERRUPTED, "Interrupted")
    assert cluster.acts == [
        "launch rank 1 on spark-b",
        "launch rank 0 on spark-a",
        "stop rank 0 on spark-a",
        "stop rank 1 on spark-b",
    ]
    assert cluster.living() == []


def _terminate() -> None:
    """And go on for a moment, as a command on a node does."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.02)


class Closed(io.StringIO):
    """A pipe whose reader has gone; `after` so many lines."""

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self._lines = after
        self._number = os.open(os.devnull, os.O_WRONLY)

    def write(self, text: str) -> int:
        self._lines -= 1
        if self._lines < 0:
            raise BrokenPipeError
        return len(text)

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        os.close(self._number)


def test_a_reader_that_went_away_ends_it_quietly(sparkctl, cluster, monkeypatch):
    """`sparkctl logs | head -1`"""
    sparkctl("start", on=cluster)
    with contextlib.closing(Closed()) as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        ran = sparkctl("logs", on=cluster)
    assert (ran.code, ran.err) == (0, "")


def test_a_start_whose_reader_went_away_is_not_called_done(sparkctl, cluster, monkeypatch):
    with contextlib.closing(Closed(after=20)) as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        ran = sparkctl("start", "--json", on=cluster)
    assert (ran.code, ran.err) == (Exit.INTERRUPTED, "")
    assert cluster.living() == []


def test_the_log_for_developers_is_json_and_for_its_owner_alone(sparkctl, cluster, tmp_path):
    sparkctl("start", on=cluster)
    path = tmp_path / "state" / "sparkctl" / "sparkctl.log"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {"at", "level", "from", "pid", "text"} == set(lines[0])
    assert any(line["text"].startswith("start rank 1 on spark-b in ") for line in lines)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_written_only_costs_the_log(sparkctl, cluster, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    assert sparkctl("start", on=cluster).code == 0


def test_very_verbose_shows_the_log_for_developers_too(sparkctl, cluster):
    assert "cluster.app.execute: start rank 1 on spark-b" in sparkctl("start", "-vv", on=cluster).err


def test_a_verb_run_after_another_does_not_log_twice(sparkctl, cluster):
    for _ in range(3):
        sparkctl("status", on=cluster)
    assert len(logging.getLogger("cluster").handlers) == 1


@pytest.mark.parametrize("words", [("--no-color",), ()])
def test_a_pipe_gets_no_colour(sparkctl, cluster, words):
    ran = sparkctl("start", *words, on=cluster)
    assert "\x1b" not in ran.out + ran.err


def test_lines_of_a_log_keep_their_order_and_full_time_in_a_pipe(sparkctl, cluster):
    sparkctl("start", on=cluster)
    first = sparkctl("logs", on=cluster).out.splitlines()[0]
    assert first.startswith("2026-11-30T17:00:00.000Z ")
    assert first.endswith(" | non-default args: {}")
