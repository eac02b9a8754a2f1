"""The end of each verb as a person reads it."""

from cluster.model.events import (
    ConfigReport,
    Failed,
    LogLine,
    NodeStatus,
    PlannedStage,
    PlannedStep,
    PlanReport,
    RankStatus,
    Served,
    SettingShown,
    SmokeCheck,
    SmokeReport,
    StageTime,
    Stopped,
)
from cluster.report.layout import paint
from cluster.report.results import failed_lines, log_lines, result_lines

GIB = 2**30
URL = "http://10.77.0.1:8888/v1"


def text(result, width=None, *, quiet=False):
    return [paint(one, color=False) for one in result_lines(result, width, quiet=quiet)]


SERVED = Served(
    "demo", "20261130T173000Z-3f9a", URL, "demo-mul",
    (
        StageTime("launch", 1.9),
        StageTime("load", 151.3, "", (
            StageTime("weights", 101.5, "99.5 GiB", (StageTime("rank 0", 99.0), StageTime("rank 1", 101.5))),
            StageTime("graphs", 31.6),
        )),
    ),
    "spark-a:~/receipt.json",
)  # fmt: skip


def test_a_start_ends_with_its_stage_tree():
    assert text(SERVED, 80) == [
        f"serving demo-mul at {URL}",
        "  launch           1.9 s",
        "  load        2 min 31 s",
        "  ├ weights   1 min 42 s  99.5 GiB",
        "  │ ├ rank 0        99 s",
        "  │ └ rank 1  1 min 42 s",
        "  └ graphs          32 s",
        "  total       2 min 33 s",
        "  receipt  spark-a:~/receipt.json",
    ]


def test_quiet_leaves_only_where_it_answers():
    assert text(SERVED, quiet=True) == [f"serving demo-mul at {URL}"]


def test_a_second_start_has_nothing_to_do():
    again = Served("demo", "b", URL, "demo-mul", (), "", already=True)
    assert text(again) == [f"already serving demo-mul at {URL}   nothing to do"]


def test_a_stop_shows_the_ranks_that_ended_and_the_memory_that_returned():
    stopped = Stopped(
        "demo",
        (RankStatus(0, "a", "ended", "exit 0"), RankStatus(1, "b", "ended", "killed after 20 s")),
        (NodeStatus("a", True, 120 * GIB, 110 * GIB), NodeStatus("b", True)),
    )
    assert text(stopped) == [
        "stopped demo on a, b",
        "  rank 0  a  ended  exit 0",
        "  rank 1  b  ended  killed after 20 s",
        "  memory  a  110.0 GiB of 120.0 GiB free",
        "  memory  b  memory not read",
    ]


def test_stopping_nothing_says_where_it_looked():
    stopped = Stopped("demo", (), (NodeStatus("a", True), NodeStatus("b", True)), nothing=True)
    assert text(stopped) == ["nothing to stop: demo does not run on a, b"]


def test_settings_stand_beside_their_origin():
    report = ConfigReport(
        "demo",
        "demo",
        (
            SettingShown("serve.port", 8888, ".env:3"),
            SettingShown("serve.max_model_len", None, "default"),
            SettingShown("serve.enforce_eager", False, "default"),
            SettingShown("serve.extra_args", ("--foo", "a b"), "flag"),
            SettingShown("launch.environment", (("A", "1"), ("B", "2")), "cluster.yaml:4"),
            SettingShown("watch.stop_grace", 20.0, "default"),
        ),
    )
    assert text(report) == [
        "KEY                  VALUE        FROM",
        "serve.port           8888         .env:3",
        "serve.max_model_len  -            default",
        "serve.enforce_eager  false        default",
        "serve.extra_args     --foo 'a b'  flag",
        "launch.environment   A=1 B=2      cluster.yaml:4",
        "watch.stop_grace     20           default",
    ]


def test_a_plan_shows_every_command_as_it_would_be_typed():
    plan = PlanReport(
        "demo",
        (
            PlannedStage("prepare", (PlannedStep("a", "writing its file", path="~/spec.json", size=812, mode="600"),)),
            PlannedStage(
                "launch",
                (PlannedStep("b", "starting rank 1", ("vllm", "my model"), (("IP", "1 2"),), ("kill", "1")),),
                in_order=True,
            ),
        ),
        ("memory is looked at again",),
    )
    assert text(plan, 80) == [
        "prepare   nodes side by side",
        "  a  writing its file",
        "    > ~/spec.json   812 B, mode 600",
        "launch   one after the other",
        "  b  starting rank 1",
        "    $ IP='1 2' vllm 'my model'",
        "    undo $ kill 1",
        "  note    memory is looked at again",
    ]


def test_a_long_path_and_a_long_command_of_a_plan_fit_80_columns():
    path = "~/.local/state/sparkctl/deployments/stand-in/boots/BOOT/rank0/guard-spec.json"
    steps = (
        PlannedStep("a", "w", path=path, size=812, mode="600"),
        PlannedStep("a", "r", ("vllm", *(["--flag"] * 14))),
    )
    said = text(PlanReport("demo", (PlannedStage("prepare", steps),)), 80)
    assert said[2:4] == [f"    > {path}", "      812 B, mode 600"]
    assert said[5:] == [f"    $ vllm {' '.join(['--flag'] * 9)} \\", f"        {' '.join(['--flag'] * 5)}"]


def test_an_empty_plan_says_so():
    assert text(PlanReport("demo", ())) == ["nothing to do for demo"]


def test_a_smoke_test_names_what_is_wrong():
    checks = (SmokeCheck("health", True, 0.01, "200"), SmokeCheck("equal answers", False, 0.5, "'323' and '321'"))
    assert text(SmokeReport("demo", URL, "demo-mul", False, checks)) == [
        f"demo-mul at {URL} does not answer as it must",
        "  ok     health         0.01 s  200",
        "  wrong  equal answers  0.50 s  '323' and '321'",
    ]


def test_a_failure_says_what_where_the_evidence_and_what_to_type():
    command = "sparkctl start " + "--set KEY=VALUE " * 8
    what = "rank 1 died: " + "of its own words " * 3
    failed = Failed("RankDied", what, "spark-b", ("first line " * 8, "second"), f"{command}\nor wait", 6)
    assert [paint(one, color=False) for one in failed_lines(failed, 60)] == [
        "error: rank 1 died: of its own words of its own words of",
        "  its own words",
        "  where   spark-b",
        "  seen    first line first line first line first line first",
        "          line first line first line first line",
        "          second",
        f"  try     {command}".rstrip(),
        "          or wait",
    ]


def test_a_log_line_stands_behind_its_time_and_rank():
    log = LogLine(1, "spark-b", "2026-11-30T17:31:02.123Z", "one\ntwo")
    lines = [[paint(one, color=False) for one in log_lines(log, full_time=full)] for full in (True, False)]
    assert lines == [
        ["2026-11-30T17:31:02.123Z spark-b r1 | one", "2026-11-30T17:31:02.123Z spark-b r1 | two"],
        ["17:31:02.123 spark-b r1 | one", "17:31:02.123 spark-b r1 | two"],
    ]


def test_each_rank_has_its_own_colour():
    painted = [paint(log_lines(LogLine(rank, "a", "", "x"), full_time=True)[0], color=True) for rank in (0, 1)]
    assert painted == [f"\x1b[2m \x1b[0m\x1b[{code}ma r{rank} | \x1b[0mx" for rank, code in ((0, 36), (1, 35))]
