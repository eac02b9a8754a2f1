"""Which folders of weights may go: none that somebody needs, wants kept or changes just now."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cluster.errors import Unreadable
from cluster.model.weights import HeldFolder


def parse_holdings(node: str, text: str, deployment: str) -> tuple[HeldFolder, ...]:
    """What the holdings program says of a node; folders that are not there are left out."""
    try:
        return tuple(_held(node, one, deployment) for one in json.loads(text) if one["present"] or "freed" in one)
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable("the answer about the weights cannot be read", where=node, evidence=[text[:200]]) from error


def _held(node: str, said: dict[str, Any], deployment: str) -> HeldFolder:
    own = (f"the settings of {deployment}",) if said["named"] else ()
    return HeldFolder(
        node,
        said["path"],
        said["repo"],
        said["revision"],
        said["files"],
        said["size"],
        said["partial"],
        (*own, *said["claims"]),
        said["pin"],
        said["lease"],
        said["blind"],
        None if said.get("detail") else said.get("freed"),
        said.get("detail", ""),
    )


def may_go(one: HeldFolder) -> bool:
    """Only what sparkctl has fetched, and nobody claims, pins or changes."""
    return bool(one.repo) and not one.claims and not one.pin and not one.lease


def preview(folders: Iterable[HeldFolder], only: str = "") -> tuple[HeldFolder, ...]:
    """What a prune would free, by folder; `only` narrows it to one."""
    return tuple(
        replace(one, freed=one.size + one.partial) if may_go(one) and only in ("", one.path) else one for one in folders
    )
