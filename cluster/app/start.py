"""`start`: check, prepare, launch, and wait until it serves; whatever fails leaves nothing half-done behind."""

import secrets
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from cluster import __version__
from cluster.app.boxes import in_containers
from cluster.app.bring import bring_weights, download
from cluster.app.check import Checked, bring_image, check, compare_written, try_image
from cluster.app.execute import Transaction
from cluster.app.guard import guard_of
from cluster.app.ledger import Meter, enter
from cluster.app.lock import held
from cluster.app.pace import REAL, Pace
from cluster.app.pages import after_serving, before_launch
from cluster.app.ranks import RUNTIME, launcher, newest, where
from cluster.app.ready import STAGE, Times, wait
from cluster.app.receipts import read_kept, receipt_path, utc_now, write_receipt
from cluster.app.session import OpenNode, Session
from cluster.app.stages import Stages
from cluster.app.status import examine
from cluster.errors import Interrupted, Refused, SparkctlError, Unreachable
from cluster.model.deployment import DeploymentId, State
from cluster.model.events import Emit, Served, Severity, StatusReport, Told
from cluster.model.receipt import RankReceipt, Receipt
from cluster.model.settings import Settings
from cluster.model.steps import Stage
from cluster.plan.launch import Wiring, api_url, environment_digest, key_step, launch_spec
from cluster.plan.transport import differences
from cluster.probe.rank_acts import parse_launch
from cluster.runtime.base import LaunchSpec
from cluster.runtime.native import UNDO_GRACE


def start(
    settings: Settings,
    open_one: OpenNode,
    emit: Emit,
    forced: frozenset[str] = frozenset(),
    pace: Pace = REAL,
) -> Served:
    """Serving at the end, or an error that says why not. A second start has nothing to do."""
    stages, session = Stages(emit, pace.clock), Session(settings, open_one, emit)
    try:
        download(settings, open_one, emit)
        with stages.stage("connect", tuple(node.name for node in settings.nodes)):
            session.open().need_all()
        with held(session.head, settings, "start", emit):
            return begin(session, emit, stages, forced, pace)
    finally:
        session.close()


def begin(session: Session, emit: Emit, stages: Stages, forced: frozenset[str], pace: Pace) -> Served:
    """Start on an open session whose lock is held: serve what is asked, or say that it is served already."""
    running = _already(session, emit, stages, pace)
    if running is not None:
        return running
    bring_weights(session, emit, stages, forced)
    with stages.stage("check"):
        checked = check(session, emit, forced, pace=pace)
    if in_containers(session.settings):
        with stages.stage("image"):
            checked = replace(checked, boxes=bring_image(session, emit, forced))
            if not session.settings.image.skip_verify:
                try_image(session, emit, forced)
    which = DeploymentId(session.settings.deployment, new_boot())
    spec = launch_spec(session.settings, which, checked.wiring, checked.boxes)
    transaction, guard = Transaction(session, emit), guard_of(session.settings, spec, checked.memory)
    try:
        with stages.stage("prepare"):
            ranks = launcher(session.settings).prepare(spec)
            transaction.run(Stage("prepare", (*key_step(session.settings), *ranks, *guard.prepare)))
            compare_written(session, spec, checked, emit, forced)
            receipt = new_receipt(session, spec, checked, forced)
            write_receipt(session.head, session.settings, receipt)
            before_launch(session, checked.memory, emit)
        with stages.stage("launch"):
            steps = (*guard.launch, *launcher(session.settings).launch(spec))  # a guard sees what was before us
            launched = transaction.run(Stage("launch", steps, in_order=True))
            receipt = _with_identities(receipt, spec, {name: out[-1].text for name, out in launched.items()})
            write_receipt(session.head, session.settings, receipt)
    except BaseException:
        transaction.undo()
        raise
    meter = Meter()
    served = _wait_and_serve(session, receipt, emit, stages, transaction, pace, meter)
    after_serving(session, emit)
    if checked.memory is not None:
        enter(session, receipt, checked.memory, meter, emit)
    return served


def _already(session: Session, emit: Emit, stages: Stages, pace: Pace) -> Served | None:
    """What to do about ranks that live already: nothing, go on waiting for them, or refuse with the reason."""
    settings = session.settings
    kept = read_kept(session.head, settings)
    report, looks = examine(session, kept)
    _see_all(report)
    if report.state is State.ABSENT:
        return None
    receipt = kept.receipt if kept.receipt and kept.receipt.boot == newest(looks) else None
    if receipt is None:
        raise Refused(
            "ranks of this deployment run, but the head has no receipt of their start",
            where=settings.deployment,
            evidence=report.reasons,
            fix="sparkctl stop, then sparkctl start",
        )
    match report.state:
        case State.SERVING | State.LOADING:
            _same_as_asked(settings, receipt)
        case _:
            raise Refused(
                f"this deployment is {report.state}; a start would not mend it",
                where=settings.deployment,
                evidence=report.reasons,
                fix="sparkctl restart",
            )
    if report.state is State.SERVING:
        return Served(settings.deployment, receipt.boot, receipt.url, receipt.model, (), "", already=True)
    emit(Told(Severity.NOTE, f"boot {receipt.boot} is loading already; waiting for it"))
    return _wait_and_serve(session, receipt, emit, stages, _adopted(session, receipt, emit), pace, Meter())


def _adopted(session: Session, receipt: Receipt, emit: Emit) -> Transaction:
    """The launch of whoever started them: who waits for a boot also removes it when it fails."""
    settings, transaction = session.settings, Transaction(session, emit)
    for rank, node in reversed(list(enumerate(settings.nodes))):
        ending = RUNTIME.stop_boot(where(settings, node), receipt.boot, (rank,), UNDO_GRACE)
        transaction.adopt(node.name, f"start rank {rank}", ending)
    return transaction


def _see_all(report: StatusReport) -> None:
    """A node that was lost since we connected may run anything."""
    lost = [one for one in report.nodes if not one.reachable]
    if lost:
        raise Unreachable(
            f"cannot tell what runs on {', '.join(one.node for one in lost)}",
            where=report.deployment,
            evidence=[f"{one.node}: {one.detail}" for one in lost],
            fix="sparkctl start again, once the node answers",
        )


def _same_as_asked(settings: Settings, receipt: Receipt) -> None:
    wiring = tuple(Wiring(node.address, node.interface) for node in settings.nodes)
    wanted = launch_spec(settings, receipt.which, wiring)
    asked, runs = tuple(rank.argv for rank in wanted.ranks), tuple(rank.argv for rank in receipt.ranks)
    environment = receipt.environment_digest in ("", environment_digest(settings))
    if asked != runs or not environment:
        differing = list(_differences(asked[0], runs[0])) if runs else []
        differing += [] if environment else ["environment variables"]
        raise Refused(
            "it runs already, with other settings than asked for now",
            where=settings.deployment,
            evidence=differing or ["the nodes differ"],
            fix="sparkctl restart, to apply them",
        )


def _differences(asked: tuple[str, ...], runs: tuple[str, ...]) -> Iterator[str]:
    wanted, there = _by_flag(asked), _by_flag(runs)
    for flag in dict.fromkeys((*wanted, *there)):
        if wanted.get(flag) != there.get(flag):
            now, before = (found.get(flag, "not") or "on" for found in (wanted, there))
            yield f"{flag}: {now} asked for, {before} given to what runs"


def _by_flag(argv: tuple[str, ...]) -> dict[str, str]:
    """What stands behind each flag; the program with its model stands behind none."""
    found, flag = {"command": ""}, "command"
    for word in argv:
        if word.startswith("--"):
            flag, found[word] = word, ""
        else:
            found[flag] = f"{found[flag]} {word}".strip()
    return found


def _wait_and_serve(
    session: Session,
    receipt: Receipt,
    emit: Emit,
    stages: Stages,
    transaction: Transaction,
    pace: Pace,
    meter: Meter,
) -> Served:
    """Wait, then keep the receipt. A boot of ours that fails is removed; one that is only out of sight is left."""
    try:
        with stages.stage(STAGE, tuple(node.name for node in session.settings.nodes)):
            times = wait(session, receipt.boot, emit, pace, meter.note)
    except KeyboardInterrupt as error:
        raise Interrupted(
            "stopped waiting; the ranks go on loading",
            where=session.settings.deployment,
            fix="sparkctl start waits for them again, sparkctl stop ends them",
        ) from error
    except Unreachable:
        raise
    except BaseException:
        transaction.undo()
        raise
    return _served(session, receipt, emit, stages, times)


def _served(session: Session, receipt: Receipt, emit: Emit, stages: Stages, times: Times) -> Served:
    done = (*stages.done[:-1], replace(stages.done[-1], children=times.tree()))
    ranks = tuple(replace(one, transport=times.transports.get(one.rank, one.transport)) for one in receipt.ranks)
    receipt = replace(receipt, served=utc_now(), stages=done, ranks=ranks)
    for one in ranks:
        for sentence in differences(one.transport, one.hca, one.gid, one.interface):
            emit(Told(Severity.WARNING, f"rank {one.rank}: {sentence}", one.node))
    path = receipt_path(session.settings)
    try:
        write_receipt(session.head, session.settings, receipt)
    except SparkctlError as error:  # a full disk: it serves all the same
        emit(Told(Severity.WARNING, f"the receipt does not say that it serves: {error.what}", error.where))
    return Served(
        receipt.deployment, receipt.boot, receipt.url, receipt.model, done, f"{session.settings.head.name}:{path}"
    )


def new_receipt(session: Session, spec: LaunchSpec, checked: Checked, forced: frozenset[str]) -> Receipt:
    settings, ranks = session.settings, []
    for rank, node in zip(spec.ranks, settings.nodes, strict=True):
        seen, told = checked.identities[node.name], dict(rank.environment)
        ranks.append(
            RankReceipt(
                rank=rank.rank,
                node=node.name,
                control=node.control,
                state_dir=node.state_dir,
                argv=rank.argv,
                variables=tuple(name for name, _ in rank.environment) + tuple(name for name, _ in rank.secrets),
                hostname=seen.hostname,
                machine_id=seen.machine_id,
                host_key=session.nodes[node.name].identity.host_key,
                packages=tuple(one for one in seen.packages if one[0] in ("vllm", "torch", "transformers")),
                model_digest=seen.model.digest if seen.model else "",
                model_how=seen.model.how if seen.model else "",
                memory_before=checked.facts[node.name].memory.available,
                hca=told.get("NCCL_IB_HCA", "") if told.get("NCCL_IB_DISABLE", "0") == "0" else "",
                gid=int(told["NCCL_IB_GID_INDEX"]) if told.get("NCCL_IB_GID_INDEX", "").isdigit() else None,
                interface=told.get("NCCL_SOCKET_IFNAME", ""),
            )
        )
    return Receipt(
        deployment=settings.deployment,
        boot=spec.which.boot,
        recipe=settings.recipe,
        created=utc_now(),
        url=api_url(settings),
        model=settings.serve.served_model_name or settings.serve.model,
        ranks=tuple(ranks),
        environment_digest=environment_digest(settings),
        forced=tuple(sorted(forced)),
        sparkctl=__version__,
    )


def _with_identities(receipt: Receipt, spec: LaunchSpec, told: dict[str, str]) -> Receipt:
    launched = {rank.rank: parse_launch(told[rank.node]) for rank in spec.ranks}
    ranks = tuple(
        replace(one, identity=(str(launched[one.rank].pid), launched[one.rank].started, launched[one.rank].unit))
        for one in receipt.ranks
    )
    return replace(receipt, ranks=ranks)


def new_boot() -> str:
    """Sorts by time; the tail keeps two boots of one second apart."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ") + "-" + secrets.token_hex(2)
