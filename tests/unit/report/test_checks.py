"""Checks read well: what needs a person in full, the rest by name."""

from cluster.model.checks import (
    Change,
    CheckResult,
    ChecksReport,
    Contract,
    DoctorReport,
    Finding,
    FixReport,
    PreflightReport,
    Severity,
)
from cluster.report.layout import paint
from cluster.report.results import result_lines


def text(report, width: int | None = 80) -> list[str]:
    return [paint(one, False) for one in result_lines(report, width)]


REFUSED = CheckResult(
    Finding(
        "FABRIC.GID",
        Severity.REFUSAL,
        "spark-b",
        "GID index 3 of rocep1s0f0 is empty",
        "RoCE v2 with 10.40.0.2 on enp1s0f0np0",
        "set HEAD_GID=3 WORKER_GID=5",
        ("spark-b  rocep1s0f0:1    5  10.40.0.2  RoCE v2  enp1s0f0np0  <- fits",),
    ),
    "the GID table",
    "a thread",
)
OK = [
    CheckResult(Finding(check, Severity.OK, node, "good"), "", "")
    for check in ("FABRIC.ADDRESS", "FABRIC.MTU", "HOST.KHO", "FABRIC.GID")
    for node in ("spark-a", "spark-b")
]
UNSEEN = CheckResult(Finding("HOST.CDI", Severity.NOT_CHECKED, "spark-a", "could not be seen"), "", "")


def test_a_refusal_is_told_whole_and_the_rest_by_name():
    report = PreflightReport("demo", 1, (REFUSED, UNSEEN, *OK), ("FABRIC.MTU",), ("it is serving",))
    assert text(report) == [
        "demo  1 refused, 1 not checked, 8 ok",
        "refused  FABRIC.GID  spark-b",
        "  seen    GID index 3 of rocep1s0f0 is empty",
        "  wanted  RoCE v2 with 10.40.0.2 on enp1s0f0np0",
        "  try     set HEAD_GID=3 WORKER_GID=5",
        "  source  a thread",
        "  table   spark-b  rocep1s0f0:1    5  10.40.0.2  RoCE v2  enp1s0f0np0  <- fits",
        "not checked  HOST  CDI",
        "ok  FABRIC  ADDRESS, MTU",
        "ok  HOST    KHO",
        "  note    it is serving",
        "  note    FABRIC.MTU refuses, and was told not to stop it",
    ]


def test_checks_that_were_asked_for_are_told_whole():
    assert text(PreflightReport("demo", 0, (UNSEEN, OK[0]), whole=True)) == [
        "demo  1 not checked, 1 ok",
        "not checked  HOST.CDI  spark-a",
        "  seen    could not be seen",
        "ok  FABRIC.ADDRESS  spark-a",
        "  seen    good",
    ]


def test_a_contract_says_what_why_and_whence():
    one = Contract(
        "HOST.KHO", "the kernel", "none", "boots die", Severity.REFUSAL, "a thread", "2026-09-30", "6.17", "do"
    )
    assert text(ChecksReport((one,))) == [
        "HOST.KHO  stops a start",
        "  looks at the kernel",
        "  wants    none",
        "  because  boots die",
        "  unless   6.17",
        "  source   a thread (seen 2026-09-30)",
        "  try      do",
    ]


CHANGE = Change(
    "HOST.MIN_FREE", "spark-a", "vm.min_free_kbytes", "67584", "1048576", ("do", "it"), ("undo", "it"), ("r",)
)


def test_a_fix_and_its_undo_show_the_values_and_the_command():
    assert text(FixReport("HOST.MIN_FREE", False, (CHANGE,))) == [
        "HOST.MIN_FREE  1 fixed",
        "  spark-a vm.min_free_kbytes: 67584 -> 1048576",
        "    $ do it",
    ]
    assert text(FixReport("HOST.MIN_FREE", True, (CHANGE,), ("spark-b: left alone",))) == [
        "HOST.MIN_FREE  1 undone",
        "  spark-a vm.min_free_kbytes: 1048576 -> 67584",
        "    $ undo it",
        "  left    spark-b: left alone",
    ]


def test_a_bundle_says_what_it_lacks():
    assert text(DoctorReport("bundle.tar.gz", 2048, ("a", "b"), ("spark-b: no journal",))) == [
        "wrote bundle.tar.gz  2 files, 2.0 KiB",
        "  missing spark-b: no journal",
        "  note    secrets are masked; read it before you send it to somebody",
    ]
