"""Apply a check's safe fix on the nodes that need it, remember exactly what changed, and take exactly that back."""

import json
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Any

from cluster.app.check import findings_of
from cluster.app.lock import held
from cluster.app.observe import told
from cluster.app.pace import REAL, Pace
from cluster.app.receipts import utc_now
from cluster.app.session import OpenNode, Session
from cluster.app.stages import Stages
from cluster.errors import SettingsError, SparkctlError, StepFailed, Unreadable
from cluster.model.checks import Change, FixReport, Severity
from cluster.model.events import Emit
from cluster.model.settings import Settings
from cluster.model.steps import Command
from cluster.node.base import Node
from cluster.node.failures import NoSuchFile
from cluster.plan.contracts import contract, unknown
from cluster.plan.fixes import FIXABLE, wish

_SOUND = (Severity.OK, Severity.NOT_CHECKED)


def fix(settings: Settings, open_one: OpenNode, emit: Emit, check: str, pace: Pace = REAL) -> FixReport:
    """The record is written before a value is changed, so that no change is without one."""
    _must_be_fixable(check)
    stages, session = Stages(emit, pace.clock), Session(settings, open_one, emit)
    try:
        with stages.stage("connect", tuple(node.name for node in settings.nodes)):
            session.open().need_all()
        with held(session.head, settings, "preflight", emit), stages.stage("fix"):
            checked, found = findings_of(session, emit, ports=False, pace=pace)
            nodes = [one.node for one in found if one.id == check and one.severity not in _SOUND]
            changes, left = [], []
            for name in nodes:
                wanted = wish(check, checked.facts[name])
                node = session.node(name)
                change = wanted.change(_value(node, wanted.read), utc_now())
                _write(session.head, settings, (*_read(session.head, settings), change))
                try:
                    _run(node, change.do)
                    _must_be(node, change.read, change.after)
                    changes.append(change)
                except SparkctlError as error:
                    _drop(session.head, settings, change)
                    left.append(f"{name}: {error.what}")
            return FixReport(check, False, tuple(changes), tuple(left))
    finally:
        session.close()


def undo(settings: Settings, open_one: OpenNode, emit: Emit, check: str, pace: Pace = REAL) -> FixReport:
    """Only what is recorded, and only where the value is still ours: somebody may have changed it since."""
    _must_be_fixable(check)
    stages, session = Stages(emit, pace.clock), Session(settings, open_one, emit)
    try:
        with stages.stage("connect", tuple(node.name for node in settings.nodes)):
            session.open().need_all()
        with held(session.head, settings, "preflight", emit), stages.stage("undo"):
            changes, left = [], []
            for change in reversed(_read(session.head, settings)):
                if change.check == check and change.node in session.nodes:
                    problem = _take_back(session, change)
                    left += [problem] if problem else []
                    changes += [] if problem else [change]
            return FixReport(check, True, tuple(changes), tuple(left))
    finally:
        session.close()


def _take_back(session: Session, change: Change) -> str:
    """Why it was left alone; empty when it is as it was before."""
    node, settings = session.node(change.node), session.settings
    now = _value(node, change.read)
    if now not in (change.after, change.before):
        return f"{change.node}: {change.what} is {now} now, not the {change.after} that was set; left alone"
    if now != change.before:
        try:
            _run(node, change.undo)
            _must_be(node, change.read, change.before)
        except SparkctlError as error:
            return f"{change.node}: {error.what}"
    _drop(session.head, settings, change)
    return ""


def _must_be_fixable(check: str) -> None:
    if check in FIXABLE:
        return
    known = contract(check)
    fix_by_hand = known.fix if known else ""
    raise SettingsError(
        unknown((check,)) or f"{check} has no fix that is safe to apply for you",
        evidence=[f"by hand: {fix_by_hand}"] if fix_by_hand else (),
        fix=f"--fix can do: {', '.join(FIXABLE)}",
    )


def _value(node: Node, read: tuple[str, ...]) -> str:
    return told(node, node.run(Command(read))).strip()


def _run(node: Node, argv: tuple[str, ...]) -> None:
    result = node.run(Command(argv))
    if result.exit != 0:
        said = (result.err_text or result.text).strip().splitlines()[-1:]
        raise StepFailed(f"`{' '.join(argv)}` failed: {said[0] if said else result.exit}", where=node.name)


def _must_be(node: Node, read: tuple[str, ...], wanted: str) -> None:
    now = _value(node, read)
    if now != wanted:
        raise StepFailed(f"the value is {now} afterwards, not {wanted}", where=node.name)


def _path(settings: Settings) -> PurePosixPath:
    return PurePosixPath(settings.head.state_dir) / "fixes.json"


def _read(head: Node, settings: Settings) -> tuple[Change, ...]:
    path = str(_path(settings))
    try:
        return tuple(_change(one) for one in json.loads(head.read(path)))
    except NoSuchFile:
        return ()
    except (ValueError, TypeError, KeyError) as error:
        raise Unreadable(f"cannot read the record of fixes: {error}", where=f"{head.name}:{path}") from error


def _change(seen: dict[str, Any]) -> Change:
    for key in ("do", "undo", "read"):
        seen[key] = tuple(seen[key])
    return Change(**seen)


def _write(head: Node, settings: Settings, changes: tuple[Change, ...]) -> None:
    head.write(str(_path(settings)), json.dumps([asdict(one) for one in changes], indent=1).encode() + b"\n", 0o600)


def _drop(head: Node, settings: Settings, change: Change) -> None:
    _write(head, settings, tuple(one for one in _read(head, settings) if one != change))
