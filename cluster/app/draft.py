"""`draft`: a drafting model of fewer experts out of a pack, in a folder that appears when it is complete."""

import json
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from cluster.app.packs import RESERVE, Order, carry_out, demand, folder, json_object, pack, pack_node, shards
from cluster.app.session import OpenNode
from cluster.errors import Refused, StepFailed
from cluster.model.events import Emit
from cluster.model.packs import Made, PackFile, PackReport
from cluster.model.settings import Settings
from cluster.model.steps import Command
from cluster.weights.draft import FILE, PLAN, chosen, draft, draft_config, draft_index, draft_plan, must_be
from cluster.weights.safetensors import read_header

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
ORDER = Order(sums=True)


@dataclass(frozen=True, slots=True)
class Wanted:
    """`structured` experts are taken for each kind of structured answer before the others."""

    source: str
    target: str
    plan: str
    experts: int = 64
    structured: int = 32
    order: Order = ORDER
    reserve: int = RESERVE
    dry: bool = False


def make_draft(settings: Settings, open_one: OpenNode, emit: Emit, wanted: Wanted) -> PackReport:
    """Refuses a target that is there: a server may be reading it."""
    with pack_node(settings, open_one) as node:
        source, target = pack(node, wanted.source), folder(node, wanted.target)
        where = f"{node.name}:{source.path}"
        if target.present:
            raise Refused(
                "the draft's folder is there already", where=f"{node.name}:{target.path}", fix="remove it first"
            )
        config = json_object(node, source.path / CONFIG)
        must_be(wanted.experts, config, where)
        plan = json_object(node, PurePosixPath(wanted.plan), absent="check --plan")
        kept = chosen(plan, wanted.experts, wanted.structured, f"{node.name}:{wanted.plan}")
        headers = ((str(one.path), one.header) for one in shards(node, source))
        made = draft(headers, kept, config["n_routed_experts"], where)
        report = PackReport(
            "draft", str(source.path), str(target.path), True, False, (PackFile(FILE, Made.PLANNED, made.size),),
            made.size, made.size + wanted.reserve, target.free, notes=(f"experts kept: {' '.join(map(str, kept))}",),
        )  # fmt: skip
        if wanted.dry:
            return report
        demand(node, target, made.size, wanted.reserve)
        building = target.path.with_name(f"{target.path.name}.part")
        outcome = carry_out(node, emit, "draft", building, (made,), (), wanted.order)
        if not outcome.ok:
            return replace(report, ok=False, done=True, files=outcome.files)
        names = [one.name for one in read_header(made.header, FILE).tensors]
        size = made.size - len(made.header)
        for name, tree in (
            (CONFIG, draft_config(config, wanted.experts)),
            (INDEX, draft_index(names, size)),
            (PLAN, draft_plan(str(source.path), kept, wanted.structured, made.size, outcome.sums.get(FILE, ""))),
        ):
            node.write(str(building / name), (json.dumps(tree, indent=2) + "\n").encode(), 0o644)
        result = node.run(Command(("mv", "-T", "--", str(building), str(target.path))))
        if result.exit:
            raise StepFailed(
                "the finished draft could not get its name", where=f"{node.name}:{building}",
                evidence=result.err_text.splitlines()[-3:],
            )  # fmt: skip
        return replace(report, done=True, files=outcome.files, manifest=str(target.path / PLAN))
