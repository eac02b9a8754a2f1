"""NCCL's RAS answers, as recorded."""

from pathlib import Path

import pytest

from cluster.probe.ras import Collectives, RasReport, RasVerdict, read_json, read_text

CAPTURED = Path(__file__).resolve().parents[2] / "captured/nccl/ras"
REMOTE = "reported Remote process error"


@pytest.mark.parametrize(
    ("name", "report"),
    [
        ("good.txt", RasReport(RasVerdict.OK)),
        ("kill_idle_2s.txt", RasReport(RasVerdict.INCOMPLETE, (1,))),
        ("sigstop_8s.txt", RasReport(RasVerdict.INCOMPLETE, (1,))),
        ("kill_busy_2s.txt", RasReport(RasVerdict.ERROR, (1,), (f"Rank 0 {REMOTE}",))),
        ("head_gone_185s.txt", RasReport(RasVerdict.DEAD, (0,), (f"Rank 1 {REMOTE}",))),
    ],
)
def test_the_text_answer_is_read(name, report):
    assert read_text((CAPTURED / name).read_text()) == report


@pytest.mark.parametrize(
    ("name", "report"),
    [
        ("good.json", RasReport(RasVerdict.OK, (), (), (Collectives(0, 12, 56), Collectives(1, 12, 56)))),
        ("sigstop_8s.json", RasReport(RasVerdict.INCOMPLETE, (1,), (), (Collectives(0, 65, 331),))),
        (
            "kill_busy_2s.json",
            RasReport(RasVerdict.ERROR, (1,), ("Rank 0 reported error 6",), (Collectives(0, 38, 186),)),
        ),
    ],
)
def test_the_json_answer_is_read_even_where_it_lacks_a_comma(name, report):
    assert read_json((CAPTURED / name).read_text()) == report


def test_a_boot_hung_on_unequal_settings_looks_well_to_ras():
    assert read_json((CAPTURED / "mism_eager_hang.json").read_text()).verdict is RasVerdict.OK


@pytest.mark.parametrize("answer", ["", "OK\n", "ERROR: no communicators\n", "{"])
def test_an_answer_that_is_no_report_is_said_to_be_unreadable(answer):
    assert read_text(answer) == RasReport(RasVerdict.UNREADABLE)
    assert read_json(answer) == RasReport(RasVerdict.UNREADABLE)


def test_counts_that_differ_in_passing_are_no_fault():
    good = (CAPTURED / "good.txt").read_text()
    assert read_text(good.replace("RUNNING      OK", "RUNNING  MISMATCH")) == RasReport(RasVerdict.MISMATCH)
