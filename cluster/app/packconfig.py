"""`packconfig`: put the quantization block that a mixed-width pack needs into its config.json, after a backup."""

import difflib

from cluster.app.packs import json_object, pack, pack_node, shards
from cluster.app.session import OpenNode
from cluster.model.packs import PackConfigReport
from cluster.model.settings import Settings
from cluster.weights.packconfig import Route, as_text, expert_bits, layer_bits, repaired

CONFIG, BACKUP = "config.json", "config.json.bak"
MOST_LINES = 60


def packconfig(
    settings: Settings, open_one: OpenNode, path: str, route: Route, *, dry: bool = False
) -> PackConfigReport:
    """The first state is kept once, and never again: a second run must not take ours for it."""
    with pack_node(settings, open_one) as node:
        lying = pack(node, path)
        config = json_object(node, lying.path / CONFIG)
        bits = expert_bits((one.header for one in shards(node, lying)), f"{node.name}:{lying.path}")
        made = repaired(config, bits, route)
        changed = made != config
        backup = lying.named(BACKUP)
        if changed and not dry:
            if backup is None:
                node.write(str(lying.path / BACKUP), node.read(str(lying.path / CONFIG)), 0o644)
            node.write(str(lying.path / CONFIG), as_text(made).encode(), 0o644)
    return PackConfigReport(
        str(lying.path),
        str(route),
        changed,
        str(lying.path / BACKUP) if backup or (changed and not dry) else "",
        tuple((layer, str(width)) for layer, width in layer_bits(bits).items()),
        _changes(as_text(config), as_text(made)),
        not dry,
    )


def _changes(before: str, after: str) -> tuple[str, ...]:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[2:]
    told = [one for one in lines if not one.startswith("@@")]
    more = (f"... {len(told) - MOST_LINES} more lines",) if len(told) > MOST_LINES else ()
    return (*told[:MOST_LINES], *more)
