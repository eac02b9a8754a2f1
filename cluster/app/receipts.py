"""Receipts and the lock's text on the head, read in one round trip."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from cluster.app.agents import agent
from cluster.app.lock import describe, lock_path
from cluster.app.observe import told
from cluster.errors import Unreadable
from cluster.model.deployment import deployment_root
from cluster.model.receipt import Receipt, from_json, to_json
from cluster.model.settings import Settings
from cluster.node.base import Node
from cluster.plan.launch import ask_address
from cluster.probe.base import Answer


@dataclass(frozen=True, slots=True)
class Kept:
    """What the head has on file: the receipt of the last start, and whose the lock is (as text; it may be stale)."""

    receipt: Receipt | None
    lock: str
    problem: str = ""


def receipt_path(settings: Settings) -> PurePosixPath:
    return deployment_root(settings.head.state_dir, settings.deployment) / "receipt.json"


def read_kept(head: Node, settings: Settings) -> Kept:
    """A receipt that cannot be read is a problem to tell, not a reason to stop looking."""
    path = receipt_path(settings)
    questions = [{"file": str(path)}, {"file": str(lock_path(settings))}]
    receipt, lock = (Answer(**one) for one in json.loads(told(head, head.run(agent("ask", questions)))))
    holder = describe(json.loads(lock.out)) if lock.exit == 0 and lock.out.strip().startswith("{") else ""
    if receipt.exit != 0:
        return Kept(None, holder)
    try:
        return Kept(from_json(receipt.out, f"{head.name}:{path}"), holder)
    except Unreadable as error:
        return Kept(None, holder, str(error))


def as_started(settings: Settings, receipt: Receipt | None) -> Settings:
    """What runs listens where it was started to, under the name it was given, whatever the settings say by now."""
    if receipt is None or receipt.stopped:
        return settings
    url, serve = urlsplit(receipt.url), settings.serve
    if url.hostname and url.hostname != ask_address(settings):
        serve = replace(serve, host=url.hostname)
    return replace(
        settings,
        serve=replace(serve, port=url.port or serve.port, served_model_name=receipt.model or serve.served_model_name),
    )


def running(head: Node, settings: Settings) -> Settings:
    """The settings to ask the API with."""
    return as_started(settings, read_kept(head, settings).receipt)


def utc_now() -> str:
    """The time as receipts write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_receipt(head: Node, settings: Settings, receipt: Receipt) -> PurePosixPath:
    """The current receipt, and the boot's own copy that stays beside its logs."""
    data = to_json(receipt)
    path = receipt_path(settings)
    head.write(str(path.parent / "boots" / receipt.boot / "receipt.json"), data, 0o600)
    head.write(str(path), data, 0o600)
    return path
