"""`preflight`: every check of a start, or of another verb, without one."""

from dataclasses import replace

from cluster.app.agents import agent
from cluster.app.check import gather, judge_all
from cluster.app.observe import told
from cluster.app.pace import REAL, Pace
from cluster.app.session import OpenNode, Session
from cluster.app.stages import Stages
from cluster.app.status import standing
from cluster.errors import SettingsError
from cluster.model.checks import ChecksReport, Finding, PreflightReport, Severity
from cluster.model.deployment import State
from cluster.model.events import Emit
from cluster.model.settings import Settings
from cluster.plan.contracts import Purpose, contracts, is_asked, is_needed, unknown, with_contract
from cluster.plan.imports import check_imports, is_in_venv, not_imported, wants_exl3
from cluster.plan.share import shares
from cluster.plan.share_checks import before_sharing
from cluster.probe.imports import parse_imports

IMPORT_LIMIT = 180.0  # a cold disk and a first look at the GPU
ORDER = (Severity.REFUSAL, Severity.WARNING, Severity.NOTE, Severity.NOT_CHECKED, Severity.OK)


def preflight(
    settings: Settings,
    open_one: OpenNode,
    emit: Emit,
    only: tuple[str, ...] = (),
    forced: tuple[str, ...] = (),
    purpose: Purpose = Purpose.START,
    pace: Pace = REAL,
) -> PreflightReport:
    """Changes nothing. While our own ranks run, ports and memory are theirs and are not judged."""
    _must_be_known((*only, *forced))
    stages, session = Stages(emit, pace.clock), Session(settings, open_one, emit)
    try:
        with stages.stage("connect", tuple(node.name for node in settings.nodes)):
            session.open().need_all()
        with stages.stage("check"):
            return look(session, emit, only, forced, purpose, pace)
    finally:
        session.close()


def look(
    session: Session,
    emit: Emit,
    only: tuple[str, ...] = (),
    forced: tuple[str, ...] = (),
    purpose: Purpose = Purpose.START,
    pace: Pace = REAL,
) -> PreflightReport:
    """The same on an open session."""
    state, got = session.at_once(
        lambda: standing(session),
        lambda: gather(session, emit, pace, memory=purpose is Purpose.START),
    )
    runs = state is not State.ABSENT
    _, found = judge_all(session.settings, got, ports=purpose is Purpose.START and not runs)
    found += imports_of(session) if purpose is Purpose.RUNTIME else []
    if shares(session.settings) and (not runs or purpose is Purpose.SHARE):
        from cluster.app.share import prospect  # and with it all backends: nobody else waits for them

        found = before_sharing(session.settings, found, prospect(session, emit))
    chosen = [one for one in found if is_needed(one.id, purpose) and is_asked(one.id, only)]
    shown = sorted((_unless_forced(one, forced) for one in chosen), key=lambda one: (ORDER.index(one.severity), one.id))
    return PreflightReport(
        session.settings.deployment,
        sum(one.severity is Severity.REFUSAL for one in shown),
        tuple(with_contract(one) for one in shown),
        tuple(sorted({one.id for one in chosen if one.severity is Severity.REFUSAL and one.id in _upper(forced)})),
        (f"it is {state}: its ports and its memory are its own and were not judged",) if runs else (),
        bool(only),
    )


def imports_of(session: Session) -> list[Finding]:
    """What the virtual environment of every node really imports: half a minute, so no start waits for it."""
    settings = session.settings
    if not is_in_venv(settings):
        return [not_imported(node.name) for node in settings.nodes]
    want = {"python": f"{settings.launch.venv}/bin/python", "exl3": wants_exl3(settings), "limit": IMPORT_LIMIT}
    seen = session.each(lambda node: parse_imports(told(node, node.run(agent("imports", want, IMPORT_LIMIT + 60)))))
    return [finding for name, one in seen.items() for finding in check_imports(settings, name, one)]


def _unless_forced(finding: Finding, forced: tuple[str, ...]) -> Finding:
    is_forced = finding.severity is Severity.REFUSAL and finding.id in _upper(forced)
    return replace(finding, severity=Severity.WARNING) if is_forced else finding


def explain(asked: tuple[str, ...]) -> ChecksReport:
    """Contracts of these checks or groups; `all` for every one. Contacts nobody."""
    if "ALL" not in _upper(asked):
        _must_be_known(asked)
        return ChecksReport(tuple(one for one in contracts() if is_asked(one.id, asked)))
    return ChecksReport(contracts())


def _upper(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one.upper() for one in names)


def _must_be_known(names: tuple[str, ...]) -> None:
    wrong = unknown(names)
    if wrong:
        raise SettingsError(wrong, fix="sparkctl preflight --explain all lists every check")
