"""Recorded deaths, hangs and good boots of real vLLM (gloo on CPU, NCCL on a GPU), fed to the rule second by second.

A case is a folder of tests/captured/{vllm,nccl}: the ranks' logs and a timeline of what was done and seen from outside.
What the recording lacks and a watcher would have seen is in the case's row: `missing` for a rank that was never
started, `busy` for the token counters of a request in hand.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from cluster.plan.boot import (
    Alive,
    Answered,
    Boot,
    Completion,
    Died,
    Exited,
    Gone,
    HeadSight,
    Health,
    HttpError,
    Hung,
    Limits,
    Loading,
    LogLine,
    Member,
    Observation,
    Process,
    RankSight,
    Serving,
    Silence,
    TimedOut,
    Verdict,
)
from cluster.plan.readiness import advance
from cluster.probe.ras import RasReport, RasVerdict
from cluster.probe.vllm_metrics import Counters

CAPTURED = Path(__file__).resolve().parents[2] / "captured"
MEMBERS = (Member(0, "spark-a", "10.77.0.1"), Member(1, "spark-b", "10.77.0.2"))
NEVER = float("inf")


@dataclass(frozen=True)
class Case:
    """What must be said of a recording: which verdict, blaming whom, with which words, by which second."""

    name: str
    verdict: type[Verdict]
    rank: int | None = None
    says: str = ""
    by: float = NEVER
    exit: int | None = None
    missing: tuple[int, Literal["gone", "silent"]] | None = None
    busy: tuple[float, float, float] | None = None  # a request runs from, its tokens stop at, and go on at
    limits: Limits = field(default_factory=Limits)
    until: float | None = None


QUICK = Limits(quiet=60.0)  # mismatched boots were watched for 160 s only
BELOW_20 = Limits(stalled=12.0)  # where vLLM's own execute-model timeout was set to 20 s, ours must be below it

CASES = (
    # Boots and runs with nothing wrong, or a fault that passes by itself.
    Case("vllm/good", Serving, by=40, until=39),
    Case("vllm/late_worker", Serving, by=97),
    Case("vllm/noisolate", Serving, by=86),
    Case("vllm/match600", Serving, by=28),
    Case("vllm/slowload_ok", Serving, by=90, until=89),
    Case("vllm/link_idle", Serving, by=51),
    Case("vllm/link_busy_short", Serving, by=39, busy=(37, 39.3, 60)),
    Case("vllm/stop_busy_resume", Serving, by=74, busy=(72, 73.9, 134.5), limits=Limits(stalled=70)),
    Case("nccl/good_eager", Serving, by=70, until=83.9),
    Case("nccl/good_graph", Serving, by=40, until=53.6),
    Case("nccl/match_len", Serving, by=92),
    Case("nccl/mism_kv", Serving, by=47),
    Case("nccl/mism_len", Serving, by=92),
    Case("nccl/mism_batched", Serving, by=56),
    Case("nccl/stop_resume", Serving, by=42, busy=(40, 42.4, 72.7), until=84),
    # A rank that never comes.
    Case("vllm/never_default", Died, 1, "not running", 4, missing=(1, "gone")),
    Case("vllm/never_fast", Died, 1, "not running", 4, missing=(1, "gone")),
    Case("nccl/never_fast", Died, 1, "not running", 4, missing=(1, "gone")),
    Case("vllm/headless_alone_default", Died, 0, "not running", 4, missing=(0, "gone")),
    Case("vllm/headless_alone_fast", Died, 0, "not running", 4, missing=(0, "gone")),
    Case("nccl/headless_alone_fast", Died, 0, "not running", 4, missing=(0, "gone")),
    Case("vllm/never_default", Hung, 1, "waits for rank 1 (spark-b)", 470, missing=(1, "silent")),
    Case("vllm/never_fast", Died, 1, "had not joined after 41 s", 80, missing=(1, "silent")),
    Case("nccl/never_fast", Died, 1, "had not joined after 21 s", 60, missing=(1, "silent")),
    Case("vllm/headless_alone_default", Hung, 0, "waits for rank 0 (spark-a)", 460, missing=(0, "silent")),
    Case("vllm/headless_alone_fast", Died, 0, "nobody answered at its master address", 78, missing=(0, "silent")),
    Case("nccl/headless_alone_fast", Died, 0, "nobody answered at its master address", 64, missing=(0, "silent")),
    # Death while loading.
    Case("vllm/kill_loading", Died, 1, "ended while starting and left no reason", 51, exit=1),
    Case("vllm/kill_loading_tree", Died, 1, "killed by SIGKILL", 46, exit=-9),
    Case("vllm/kill_loading_head", Died, 0, "killed by SIGKILL", 42, exit=-9),
    Case("nccl/kill_boot", Died, 1, "killed by SIGKILL", 49, exit=-9),
    Case("nccl/head_kill_boot", Died, 0, "killed by SIGKILL", 50, exit=-9),
    Case("vllm/port_api", Died, 0, "port", 16),
    Case("vllm/port_master", Died, 0, "port 29511 is already in use", 30),
    Case("vllm/nogloo", Died, 0, "GLOO_SOCKET_IFNAME", 53),
    Case("vllm/neither", Died, 1, "GLOO_SOCKET_IFNAME", 150),
    Case("vllm/wrong_master_head", Died, None, "no route to the master address 10.77.0.9:29511", 45),
    Case("nccl/mism_dtype", Died, 0, "KV cache layouts differ", 39),
    # Boots that hang.
    Case("vllm/wrong_master_port", Hung, 0, "different addresses", 90),
    Case("vllm/wrong_master_unreach", Hung, 0, "rank 1 at tcp://10.77.0.9:29511", 90),
    Case("vllm/nohostip", Hung, 0, "VLLM_HOST_IP is not set", 130, limits=QUICK),
    Case("nccl/mism_eager", Hung, None, "only rank 1 has compiled", 120, limits=QUICK, until=160),
    Case("nccl/mism_seqs", Hung, 1, "no rank has said anything new", 115, limits=QUICK, until=160),
    # Death while serving.
    Case("vllm/kill_serving_busy", Died, 1, "killed by SIGKILL", 36),
    Case("vllm/kill_serving_idle", Died, 1, "worker process VllmWorker-1 died", 30),
    Case("vllm/kill_tree_serving_busy", Died, 1, "killed by SIGKILL", 51, exit=-9),
    Case("vllm/kill_tree_serving_idle", Died, 1, "killed by SIGKILL", 60, exit=-9),
    Case("vllm/stop_worker_first", Died, 1, "shutting down", 38),
    Case("vllm/head_kill_api", Died, 0, "killed by SIGKILL", 87, exit=-9),
    Case("vllm/head_kill_core", Died, 0, "its engine process died", 57),
    Case("vllm/head_kill_worker", Died, 0, "VllmWorker-0 died: killed by SIGKILL", 65),
    Case("vllm/head_kill_tree", Died, 0, "killed by SIGKILL", 33, exit=-9),
    Case("vllm/head_kill_tree_busy", Died, 0, "killed by SIGKILL", 138, exit=-9),
    Case("vllm/mismatch", Died, 1, "Sampled token IDs exceed the max model length", 40, until=42),
    Case("nccl/kill_idle", Died, 1, "VllmWorker-1 died", 56),
    Case("nccl/kill_busy", Died, 1, "VllmWorker-1 died", 58),
    Case("nccl/kill_busy40", Died, 1, "VllmWorker-1 died", 58),
    Case("nccl/kill_busy_graph", Died, 1, "VllmWorker-1 died", 74),
    Case("nccl/keepalive40", Died, 1, "VllmWorker-1 died", 61),
    Case("nccl/kill_tree_busy", Died, 1, "killed by SIGKILL", 58, exit=-9),
    Case("nccl/kill_parent", Died, 1, "the parent of its worker process is gone", 56),
    Case("nccl/head_worker_busy", Died, 0, "VllmWorker-0 died", 55),
    Case("nccl/head_tree_idle", Died, 0, "SIGKILL", 55, exit=-9),
    Case("nccl/head_tree_busy", Died, 0, "SIGKILL", 58, exit=-9),
    Case("nccl/term_idle", Died, 0, "told to stop", 65),
    Case("nccl/good_eager", Died, 0, "told to stop", 86),
    Case("nccl/good_graph", Died, 0, "told to stop", 56),
    # Hangs while serving.
    Case("vllm/stop_busy", Hung, None, "no token was made", 135, busy=(71, 73.3, NEVER)),
    Case("vllm/stop_busy_fast", Hung, None, "no token was made", 56, busy=(39, 42.1, NEVER), limits=BELOW_20),
    Case("vllm/stop_main_idle", Hung, None, "one-token completion was not answered", 58),
    Case("vllm/link_busy_long", Hung, None, "no token was made", 191, busy=(127.4, 129.7, NEVER)),
    Case("nccl/stop40_mid_graph", Hung, 1, "does not answer NCCL's RAS", 104, busy=(81, 89.2, NEVER)),
    Case("nccl/stop_idle40", Hung, None, "no token was made", 80, busy=(56.5, 56.6, NEVER), limits=Limits(stalled=20)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.verdict.__name__}")
def test_recording_gets_its_verdict_and_first_cause_in_time(case: Case) -> None:
    recording = Recording.load(case)
    at, boot = recording.replay(case.limits)
    said = (type(boot.verdict), rank_named(boot.verdict), exit_named(boot.verdict))
    assert said == (case.verdict, case.rank if case.rank is not None else said[1], case.exit or said[2]), boot.verdict
    assert case.says in words_of(boot.verdict)
    assert at <= case.by
    if case.verdict is not Serving:
        assert at < recording.own_end(), "vLLM itself had ended before we said so"


def test_every_recording_has_a_case() -> None:
    folders = {
        f"{kind}/{path.name}" for kind in ("vllm", "nccl") for path in (CAPTURED / kind).iterdir() if path.name != "ras"
    }
    assert folders == {case.name for case in CASES}


@pytest.mark.parametrize("name", ["vllm/never_default", "vllm/wrong_master_unreach"])
def test_waiting_for_a_peer_is_said_once_after_half_a_minute(name: str) -> None:
    case = Case(name, Loading, missing=(1, "silent") if name == "vllm/never_default" else None, until=120)
    told = Recording.load(case).notes(Limits(peer_note=5.0))
    waits = [(at, text) for at, text in told if "wait" in text]
    assert len({text.split(" (since")[0] for _, text in waits}) == len(waits) >= 1


# ---- the recording, as a watcher would have seen it

_STAMP = re.compile(r"(?:(?:INFO|WARNING|ERROR) \d\d-\d\d |[IWE]\d{4} |^\[\d{4}-\d\d-\d\d )(\d\d):(\d\d):(\d\d)")
_EVENT = re.compile(r"^\[\s*(?P<at>[\d.]+)\](?:\[fault[^\]]*\])? (?:\d\d:\d\d:\d\d )?(?P<what>.*)$")
_CLOCK = re.compile(r"clock at 0\.00: (\d\d):(\d\d):(\d\d)")
_NOT_LOGGED = re.compile(r"^\s*\.\.\. \d+ |^# ")
_BOOT_AS_GOOD = "... boot as in good/ ..."


@dataclass(frozen=True)
class Recording:
    case: Case
    lines: tuple[tuple[LogLine, ...], tuple[LogLine, ...]]
    events: tuple[tuple[float, str], ...]

    @classmethod
    def load(cls, case: Case) -> "Recording":
        folder = CAPTURED / case.name
        text = (folder / "timeline.txt").read_text()
        start = seconds(_CLOCK.search(text))
        events = tuple((float(m["at"]), m["what"]) for m in map(_EVENT.match, text.splitlines()) if m)
        up = next((at for at, what in events if what.startswith("health 200")), 0.0)
        return cls(case, (read_log(folder, 0, start, up), read_log(folder, 1, start, up)), events)

    def replay(self, limits: Limits) -> tuple[float, Boot]:
        """The first verdict that is not Loading, nor Serving when something else is expected."""
        passing = (Loading,) if self.case.verdict is Serving else (Loading, Serving)
        first: float | None = None
        boot = Boot.begin(MEMBERS, 0.0)
        for now in self.seconds():
            boot = advance(boot, self.seen(now), limits)
            if not isinstance(boot.verdict, passing):
                first = now if first is None else first
                if not isinstance(boot.verdict, Serving):
                    return now, boot
        assert first is not None, f"nothing but {boot.verdict} was ever said"
        return first, boot

    def notes(self, limits: Limits) -> list[tuple[float, str]]:
        boot = Boot.begin(MEMBERS, 0.0)
        told: list[tuple[float, str]] = []
        for now in self.seconds():
            boot = advance(boot, self.seen(now), limits)
            told += [(now, note) for note in boot.notes]
        return told

    def seconds(self) -> range:
        last = max(at for at, _ in self.events) if self.case.until is None else self.case.until
        return range(1, int(last) + 2 if self.case.until is None else int(last) + 1)

    def own_end(self) -> float:
        """When vLLM ended by itself: the head's exit, unless killed; else the last rank's; never, if one stays."""
        exits = [re.match(r"rank(\d) main process exited \{'rc': (-?\d+)", what) for _, what in self.events]
        ended = {int(m[1]): (int(m[2]), at) for m, (at, _) in zip(exits, self.events, strict=True) if m}
        if 0 in ended and ended[0][0] >= 0:
            return ended[0][1]
        started = {int(what[4]) for _, what in self.events if re.match(r"rank\d started", what)}
        return max(at for _, at in ended.values()) if started == set(ended) else NEVER

    def seen(self, now: float) -> Observation:
        recent = [what for at, what in self.events if now - 1 < at <= now]
        past = [what for at, what in self.events if at <= now]
        return Observation(
            now=now,
            ranks=tuple(self.rank_seen(rank, now, past, recent) for rank in (0, 1)),
            head=HeadSight(health_in(past), completion_in(recent), self.counters(now)),
        )

    def rank_seen(self, rank: int, now: float, past: list[str], recent: list[str]) -> RankSight:
        lines = tuple(line for line in self.lines[rank] if now - 1 < line.at <= now)
        return RankSight(rank, self.process(rank, past), lines, ras_in(recent, rank))

    def process(self, rank: int, past: list[str]) -> Process:
        if self.case.missing == (rank, "gone"):
            return Gone()
        for what in past:
            match = re.match(rf"rank{rank} main process exited \{{'rc': (-?\d+)", what)
            if match:
                return Exited(int(match[1]))
        return Alive()

    def counters(self, now: float) -> Counters | None:
        if self.case.busy is None:
            return None
        begin, stop, resume = self.case.busy
        if now < begin:
            return Counters(8, 8, 0, 0)
        return Counters(16, 8 + min(now, stop) - begin + max(0.0, now - resume), 1, 0)


def read_log(folder: Path, rank: int, start: float, up: float) -> tuple[LogLine, ...]:
    path = folder / f"rank{rank}.log"
    if not path.exists():
        return ()
    texts = path.read_text().splitlines()
    stamped = [_STAMP.search(text) for text in texts]
    at = seconds(next((stamp for stamp in stamped if stamp), None)) - start
    lines: list[LogLine] = []
    for text, stamp in zip(texts, stamped, strict=True):
        at = max(at, seconds(stamp) - start) if stamp else at
        if text == _BOOT_AS_GOOD:
            lines += good_boot(up)
            at = max(at, up)
        elif not _NOT_LOGGED.match(text):
            lines.append(LogLine(at, text))
    return tuple(lines)


def good_boot(up: float) -> list[LogLine]:
    """The head's lines of the good boot, moved so that it is up when this recording's head was."""
    folder = CAPTURED / "vllm/good"
    texts = (folder / "rank0.log").read_text().splitlines()
    last = next(i for i, text in enumerate(texts) if "Application startup complete" in text)
    lines = read_log(folder, 0, seconds(_CLOCK.search((folder / "timeline.txt").read_text())), up)
    kept = [line for line in lines if line.at <= 39.5][: last + 1]
    return [LogLine(line.at + up - kept[-1].at, line.text) for line in kept]


def seconds(stamp: re.Match[str] | None) -> float:
    return 0.0 if stamp is None else int(stamp[1]) * 3600 + int(stamp[2]) * 60 + int(stamp[3])


def health_in(past: list[str]) -> Health:
    codes = []
    for what in past:
        match = re.match(r"health (\d+)|health .*?'code': (\d+)|sample \{'health': (\d+)", what)
        if match:
            codes.append(int(next(code for code in match.groups() if code)))
    return codes[-1] if codes and codes[-1] else Silence.REFUSED


def completion_in(recent: list[str]) -> Completion:
    for what in recent:
        match = re.match(r"chat(?: after(?: fault)?)? \{(?:'code': |'r': \()(\d+)(?:, ([\d.]+))?", what)
        if match:
            code = int(match[1])
            return Answered() if code == 200 else HttpError(code) if code else TimedOut(float(match[2]))
    return None


def ras_in(recent: list[str], rank: int) -> RasReport | None:
    for what in recent:
        match = re.match(r"RAS (\w+) port (\d+) txt (.*)", what)
        if match and (0 if match[2] == "28028" else int(match[2]) % 2) == rank:
            said = re.search(r"RUNNING\s+([A-Z,]+)", match[3])
            words = set(said[1].split(",")) if said else set()
            verdict = next((v for v in (RasVerdict.ERROR, RasVerdict.INCOMPLETE) if v.name in words), RasVerdict.OK)
            return RasReport(
                verdict if words else RasVerdict.UNREACHABLE, (1 - rank,) if verdict is not RasVerdict.OK else ()
            )
    return None


def rank_named(verdict: Verdict) -> int | None:
    match verdict:
        case Died(rank):
            return rank
        case Hung(ranks):
            return ranks[0]
        case _:
            return None


def exit_named(verdict: Verdict) -> int | None:
    return verdict.exit if isinstance(verdict, Died) else None


def words_of(verdict: Verdict) -> str:
    return verdict.cause if isinstance(verdict, Died | Hung) else ""
