"""Whose fault it was that an image did not arrive, from the last words of the programs that sent it."""

from cluster.errors import SparkctlError, StepFailed, Unreachable
from cluster.node.failures import NoSpace
from cluster.plan.image_room import EngineSaid, engine_said

AGAIN = "the same command again: what arrived is kept, and nothing of it is sent twice"


class NotTaken(StepFailed):
    """All arrived, and the engine made no image of it."""


class Said(StepFailed):
    """What the program on the head gave up with, before it is known whose fault it was."""

    kind = ""


def placed(error: SparkctlError, head: str, name: str) -> SparkctlError:
    """Whose fault it was: the way there, the worker's disk, its engine, or the head's."""
    if not isinstance(error, Said):
        return error
    words = error.evidence
    match error.kind, engine_said(1, "\n".join(words)):
        case ("ssh" | "cut", _):
            return Unreachable(f"the way from {head} broke", where=name, evidence=words, fix=AGAIN)
        case ("no_space", _) | (_, EngineSaid.NO_SPACE):
            return NoSpace(
                "no space left for the image", where=name, evidence=words, fix=f"on {name}: docker system df"
            )
        case ("digest", _):
            return StepFailed("a layer arrived damaged and was thrown away", where=name, evidence=words, fix=AGAIN)
        case ("busy", _):
            return StepFailed("another shipment is at work there", where=name, evidence=words, fix="wait for its end")
        case (_, EngineSaid.DOWN):
            fix = f"on {name}: sudo systemctl start docker; then {AGAIN}"
            return StepFailed("the engine ended while it loaded", where=name, evidence=words, fix=fix)
        case (_, EngineSaid.PERMISSION):
            return StepFailed("no permission for the engine", where=name, evidence=words, fix="join the group docker")
        case ("load" | "receiver", _):
            return NotTaken("the engine did not take the image", where=name, evidence=words)
        case _:
            return error
