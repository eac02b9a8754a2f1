"""What a server with its weights in the page cache needs of a node: a GPU that can read them there, and the memory."""

import re

from cluster.model.events import Finding, Severity
from cluster.model.exl3 import COPY, Profile, copied
from cluster.model.facts import NodeFacts
from cluster.model.memory import GIB, ModelShape
from cluster.model.settings import Settings
from cluster.model.units import Bytes

ATS = "ATS"
HEADROOM = Bytes(6 * GIB)  # cache, workspaces and the drafter's pages, as measured on a GB10
ENGRAM = ".engram."  # tables of rows, which are looked up in the page cache under every profile


def keeps_pages(settings: Settings) -> bool:
    """Whether the weights live in the page cache, so that nothing may drop it."""
    return settings.exl3.profile is not Profile.NONE


def resident(settings: Settings, shape: ModelShape) -> Bytes:
    """Bytes that are copied to the GPU: what the expression finds in the names. All else is mapped, and may go."""
    given = dict(settings.launch.environment)
    expression = given.get(COPY, copied(settings.exl3))
    if not expression:
        return Bytes(0)
    wanted = re.compile(expression)
    # In a group's name a number is `#`, and every name of a group fits an expression on its beginning alike.
    return Bytes(
        sum(
            group.size
            for group in shape.groups
            if ENGRAM not in group.name and wanted.search(group.name.replace("#", "0").replace("*", "0"))
        )
    )


def check_addressing(settings: Settings, facts: NodeFacts) -> tuple[Finding, ...]:
    """EXL3.ATS. Without it the driver copies every page that the GPU touches, and a box runs out of memory."""
    if not keeps_pages(settings):
        return ()
    mode, node = facts.addressing, facts.node
    if mode == ATS:
        return (Finding("EXL3.ATS", Severity.OK, node, "addressing mode ATS"),)
    if mode:
        fix = "use a recipe for vLLM on this node: a GPU reads files in the page cache only with ATS (GB10)"
        return (Finding("EXL3.ATS", Severity.REFUSAL, node, f"addressing mode {mode}", ATS, fix),)
    told = "there is no nvidia-smi" if mode is None else "nvidia-smi does not say the addressing mode"
    return (Finding("EXL3.ATS", Severity.WARNING, node, told, ATS, "nvidia-smi -q | grep Addressing"),)


def check_alone(settings: Settings, facts: NodeFacts) -> tuple[Finding, ...]:
    """EXL3.ALONE. Two such servers on one box hold two models, and its memory is that of one."""
    if not keeps_pages(settings) or facts.servers is None:
        return ()
    if not facts.servers:
        return (Finding("EXL3.ALONE", Severity.OK, facts.node, "no other native ExLlamaV3 server runs"),)
    first = facts.servers[0]
    told = f"a native ExLlamaV3 server runs already: {first}"
    fix = f"stop it with what started it, or kill {first.partition(' ')[0]}   (on {facts.node})"
    return (Finding("EXL3.ALONE", Severity.REFUSAL, facts.node, told, "one such server per box", fix),)
