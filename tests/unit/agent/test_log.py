from pathlib import Path

import pytest

from cluster.agent.log import Lines, Log

AT = 1796059800.1234


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"one\r\ntwo\r\n"], [b"one", b"two"]),
        ([b"\r 10%\r 20%\r 30%\n"], [b" 10%", b" 20%", b" 30%"]),
        ([b"split", b" over reads\n"], [b"split over reads"]),
        ([b"line\r", b"\nnext\n"], [b"line", b"next"]),
        ([b"\n\n\n"], []),
        ([b"no end"], []),
        ([b"x" * 70000], [b"x" * 70000]),
    ],
)
def test_lines_end_at_newlines_and_carriage_returns(pieces, lines):
    reader = Lines()
    assert [line for piece in pieces for line in reader.feed(piece)] == lines


def test_what_has_no_end_is_a_line_when_asked_for():
    reader = Lines()
    reader.feed(b"last words")
    assert (reader.flush(), reader.flush()) == ([b"last words"], [])


def test_every_line_is_behind_its_time(tmp_path: Path):
    Log(str(tmp_path / "log"), 1000, 2).add([b"one", b"\xff"], AT)
    assert (tmp_path / "log").read_bytes() == (b"2026-11-30T17:30:00.123Z one\n2026-11-30T17:30:00.123Z \xff\n")


def test_a_full_file_moves_on_and_the_oldest_goes(tmp_path: Path):
    log = Log(str(tmp_path / "log"), 70, 2)
    for number in range(8):
        log.add([b"line %d" % number], AT)
    contents = {path.name: [line[25:] for line in path.read_text().splitlines()] for path in tmp_path.iterdir()}
    assert contents == {"log": ["line 6", "line 7"], "log.1": ["line 4", "line 5"], "log.2": ["line 2", "line 3"]}


def test_a_log_goes_on_where_an_earlier_one_stopped(tmp_path: Path):
    path = str(tmp_path / "log")
    Log(path, 70, 1).add([b"line 1"], AT)
    again = Log(path, 70, 1)
    again.add([b"line 2"], AT)
    again.add([b"line 3"], AT)
    assert (tmp_path / "log").read_text().endswith("line 3\n")
    assert len((tmp_path / "log.1").read_text().splitlines()) == 2
