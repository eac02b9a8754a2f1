"""The command itself: usage, exit codes, help, and what every verb says in JSON."""

import re

import pytest

from cluster.cli.main import EPILOG, cli
from cluster.errors import Exit, SparkctlError

VERBS = tuple(cli.commands)


# ---- usage


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve",), "No such command 'serve'"),
        (("start", "--prot", "1"), "No such option"),
        (("start", "now"), "Got unexpected extra argument (now)"),
        (("status", "--every", "often"), "'often' is not a valid float"),
        (("logs", "--rank", "one"), "'one' is not a valid integer"),
        (("plan", "--set", "PORT"), "--set takes NAME=VALUE, not “PORT”"),
        (("plan", "--set", "=1"), "--set takes NAME=VALUE, not “=1”"),
        (("completion", "tcsh"), "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    ],
)
def test_what_cannot_be_understood_is_usage(sparkctl, words, said):
    ran = sparkctl(*words)
    assert (ran.code, ran.out) == (Exit.SETTINGS, "")
    assert said in ran.err
    assert ran.err.startswith("Usage: sparkctl ")


def test_usage_errors_leave_no_bytes_for_a_reader_of_json(sparkctl):
    assert sparkctl("status", "--json", "--nonsense").out == ""


def test_help_names_every_verb_and_needs_nothing(sparkctl):
    ran = sparkctl("--help")
    assert ran.code == 0
    assert set(re.findall(r"^  ([a-z-]+)  ", ran.out.partition("Commands:")[2], re.MULTILINE)) == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_a_help_that_says_what_it_does(sparkctl, verb):
    ran = sparkctl(verb, "-h")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: sparkctl {verb} ")
    assert len(ran.out.splitlines()[2].strip()) > 20


def test_version(sparkctl):
    assert re.fullmatch(r"sparkctl, version \d+\.\d+\.\S+\n", sparkctl("--version").out)


def test_the_exit_codes_of_the_help_are_those_we_use():
    table = EPILOG.partition("Exit codes\n")[2]
    told = {int(code): text.strip() for code, text in re.findall(r"(?<!\d)(\d+)  ((?:\S| (?! ))+)", table)}
    assert set(told) == {one.value for one in Exit}
    words = {
        Exit.DONE: "done",
        Exit.BUG: "bug",
        Exit.SETTINGS: "settings",
        Exit.UNREACHABLE: "unreachable",
        Exit.REFUSED: "refused",
        Exit.STEP_FAILED: "step",
        Exit.RANK_DIED: "died",
        Exit.LOCKED: "another",
        Exit.DEGRADED: "degraded",
        Exit.ABSENT: "absent",
        Exit.HUNG: "hung",
        Exit.OUT_OF_TIME: "time",
        Exit.NOT_STOPPED: "still runs",
        Exit.INTERRUPTED: "interrupted",
    }
    assert {code: words[code] in told[code] for code in words} == dict.fromkeys(Exit, True)


def test_every_error_has_an_exit_code_of_the_table():
    def below(kind: type[SparkctlError]) -> list[type[SparkctlError]]:
        return [kind, *(one for each in kind.__subclasses__() for one in below(each))]

    assert {one.exit for one in below(SparkctlError)} <= set(Exit)
    assert Exit.DONE not in {one.exit for one in below(SparkctlError)}


def test_all_verbs_take_the_shared_options():
    shared = {"--json", "--quiet", "--verbose", "--no-color", "--set", "--recipe", "--env-file", "--config", "--port"}
    for verb in set(VERBS) - {"completion"}:
        assert shared <= {name for one in cli.commands[verb].params for name in one.opts}, verb


# ---- settings that are wrong


def test_an_unknown_setting_is_refused_with_the_nearest_name(sparkctl, dotenv):
    ran = sparkctl("plan", "--set", "PROT=1")
    assert ran.code == Exit.SETTINGS
    assert "PROT" in ran.err
    assert "PORT" in ran.err.replace("PROT", "")


def test_all_wrong_settings_are_told_at_once_and_nobody_is_contacted(sparkctl, cluster):
    ran = sparkctl("start", "--port", "0", "--set", "TP=3", on=cluster)
    assert ran.code == Exit.SETTINGS
    assert "option --port" in ran.err
    assert "TP=3" in ran.err
    assert [host.commands for host in cluster.hosts.values()] == [[], []]


def test_a_recipe_that_there_is_not_is_refused_with_those_there_are(sparkctl):
    ran = sparkctl("plan", "--recipe", "demmo")
    assert ran.code == Exit.SETTINGS
    assert "demo" in ran.err.replace("demmo", "")


def test_a_file_that_is_named_must_be_there(sparkctl):
    assert sparkctl("plan", "--env-file", "other.env").code == Exit.SETTINGS


def test_without_settings_it_says_what_is_missing(sparkctl):
    ran = sparkctl("start")
    assert ran.code == Exit.SETTINGS
    assert "MODEL_DIR is not set" in ran.err


# ---- every verb, in JSON


def test_start_in_json(sparkctl, cluster):
    ran = sparkctl("start", "--json", on=cluster)
    assert (ran.code, ran.err) == (0, "")
    assert [line["stage"] for line in ran.named("stage-started")] == ["connect", "check", "prepare", "launch", "load"]
    assert [(line["url"], line["already"]) for line in ran.named("served")] == [("http://10.40.0.1:8888", False)]
    assert ran.events[-1]["event"] == "served"


def test_a_second_start_in_json(sparkctl, cluster):
    sparkctl("start", on=cluster)
    ran = sparkctl("start", "--json", on=cluster)
    assert (ran.code, ran.events[-1]["already"]) == (0, True)


def test_status_in_json(sparkctl, cluster):
    sparkctl("start", on=cluster)
    ran = sparkctl("status", "--json", on=cluster)
    (report,) = ran.events
    assert (ran.code, report["event"], report["state"]) == (0, "status", "serving")


@pytest.mark.parametrize(
    ("act", "code"),
    [("0 killed 9", Exit.DEGRADED), ("0 freezes ", Exit.HUNG), ("0 stopped ", Exit.HUNG)],
)
def test_status_exits_with_the_state(sparkctl, cluster, act, code):
    sparkctl("start", on=cluster)
    at, word, rest = act.split(" ")
    cluster["spark-b"].ranks[0].acts.append((float(at), word, rest))
    assert sparkctl("status", "--json", on=cluster).code == code


def test_status_of_nothing_is_absent(sparkctl, cluster):
    assert sparkctl("status", on=cluster).code == Exit.ABSENT


def test_status_that_cannot_tell(sparkctl, cluster):
    sparkctl("start", on=cluster)
    cluster["spark-b"].go()
    assert sparkctl("status", "--json", on=cluster).code == Exit.UNREACHABLE


def test_logs_in_json(sparkctl, cluster):
    sparkctl("start", on=cluster)
    ran = sparkctl("logs", "--json", "-n", "1", on=cluster)
    assert (ran.code, [(line["rank"], line["text"]) for line in ran.events]) == (
        0,
        [(0, "Starting vLLM server on http://"), (1, "non-default args: {}")],
    )


def test_logs_of_nothing(sparkctl, cluster):
    ran = sparkctl("logs", on=cluster)
    assert (ran.code, ran.out, ran.err) == (Exit.ABSENT, "", "note: there is no log: no rank of demo was found\n")


def test_logs_of_a_rank_that_there_is_not(sparkctl, cluster):
    ran = sparkctl("logs", "--rank", "7", on=cluster)
    assert (ran.code, "there is no rank 7" in ran.err) == (Exit.SETTINGS, True)


def test_smoke_in_json(sparkctl, cluster):
    ran = sparkctl("smoke", "--json", on=cluster)
    assert (ran.code, [line["ok"] for line in ran.events]) == (0, [True])


def test_a_wrong_answer_fails_the_smoke_test(sparkctl, cluster):
    cluster["spark-a"].reply = {"text": "a lot"}
    assert sparkctl("smoke", on=cluster).code == Exit.STEP_FAILED


def test_stop_in_json(sparkctl, cluster):
    sparkctl("start", on=cluster)
    ran = sparkctl("stop", "--json", on=cluster)
    assert (ran.code, [line["event"] for line in ran.events]) == (0, ["stage-started", "stage-ended", "stopped"])


def test_restart_in_json(sparkctl, cluster):
    sparkctl("start", on=cluster)
    ran = sparkctl("restart", "--json", on=cluster)
    assert ran.code == 0
    assert [line["event"] for line in ran.events if line["event"] in ("stopped", "served")] == ["stopped", "served"]


@pytest.mark.parametrize("words", [("plan",), ("start", "--dry-run")])
def test_plan_in_json_contacts_nobody(sparkctl, cluster, words):
    ran = sparkctl(*words, "--json", on=cluster)
    (report,) = ran.events
    assert (ran.code, [stage["stage"] for stage in report["stages"]]) == (0, ["prepare", "launch", "ranks"])
    assert [host.commands for host in cluster.hosts.values()] == [[], []]


def test_a_plan_with_memory_asks_the_nodes_and_changes_nothing(sparkctl, cluster):
    files = {name: dict(host.files) for name, host in cluster.hosts.items()}
    ran = sparkctl("plan", "--memory", "--json", on=cluster)
    fit = ran.events[-1]
    assert (ran.code, [one["event"] for one in ran.events if one["event"] in ("plan", "fit")]) == (0, ["plan", "fit"])
    assert [node["node"] for node in fit["nodes"]] == ["spark-a", "spark-b"]
    assert {name: host.files for name, host in cluster.hosts.items()} == files


def test_config_in_json_has_every_setting_with_its_origin(sparkctl, dotenv):
    ran = sparkctl("config", "--json", "--port", "9000")
    (report,) = ran.events
    shown = {one["key"]: (one["value"], one["origin"]) for one in report["settings"]}
    assert (shown["serve.port"], shown["serve.model"]) == ((9000, "option --port"), ("/models/demo", ".env:2"))
    assert shown["serve.max_model_len"] == (None, "default")


def test_a_failure_in_json_is_the_last_line(sparkctl, cluster):
    cluster["spark-a"].listening = "*:8888 nginx"
    ran = sparkctl("start", "--json", on=cluster)
    last = ran.events[-1]
    assert (ran.code, last["event"], last["error"], last["exit"]) == (Exit.REFUSED, "failed", "Refused", 4)
    assert ran.err == ""


def test_both_nodes_failures_are_told(sparkctl, cluster):
    for host in cluster.hosts.values():
        host.go()
    ran = sparkctl("start", "--json", on=cluster)
    assert ran.code == Exit.UNREACHABLE
    assert [line["where"] for line in ran.named("failed")] == ["spark-a", "spark-b"]


def test_wrong_settings_in_json(sparkctl):
    ran = sparkctl("start", "--json")
    assert (ran.code, ran.named("failed")[0]["error"]) == (Exit.SETTINGS, "SettingsError")


# ---- the boundary


def test_ctrl_c_is_told_with_its_own_exit_code(sparkctl, cluster):
    cluster["spark-a"].fails["identity"] = KeyboardInterrupt()
    ran = sparkctl("start", "--json", on=cluster)
    assert (ran.code, ran.events[-1]["error"], ran.events[-1]["what"]) == (130, "Interrupted", "interrupted")


def test_a_bug_of_ours_is_told_as_one_and_kept_whole(sparkctl, cluster, tmp_path):
    cluster["spark-a"].fails["look"] = RuntimeError("what nobody thought of")
    ran = sparkctl("status", on=cluster)
    assert ran.code == Exit.BUG
    assert "a bug in sparkctl: RuntimeError: what nobody thought of" in ran.err
    assert "Traceback" not in ran.err
    assert "Traceback" in (tmp_path / "state" / "sparkctl" / "sparkctl.log").read_text()


def test_quiet_leaves_results_and_errors(sparkctl, cluster):
    ran = sparkctl("start", "-q", on=cluster)
    assert (ran.out.count("\n"), ran.err) == (1, "")
    assert ran.out.startswith("serving demo at http://10.40.0.1:8888")


def test_verbose_shows_each_step(sparkctl, cluster):
    assert "start rank 1" in sparkctl("start", "-v", on=cluster).err


def test_progress_goes_to_stderr_and_results_to_stdout(sparkctl, cluster):
    ran = sparkctl("start", on=cluster)
    assert "connect" in ran.err
    assert ran.out.splitlines()[0] == "serving demo at http://10.40.0.1:8888"
