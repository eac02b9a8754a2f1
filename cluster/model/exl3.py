"""How a native ExLlamaV3 server holds its weights on a GPU that shares the page cache (ATS), as settings and variables.

Of the environment that its loader reads: `EXL3_ATS_MMAP` maps tensors out of their files, and `EXL3_ATS_COPY` is a
regular expression on tensor names; what it matches is copied to the GPU all the same. Without the variable nothing is.
"""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from cluster.model.table import setting


class Profile(StrEnum):
    """What is copied to the GPU, and whether tokens are drafted."""

    NONE = "none"
    MEASURED = "measured"
    ALIASED = "aliased"
    NODRAFT = "nodraft"


NOTHING = "nothing"  # how settings say the empty expression: an empty setting is one that is not set
COPY = "EXL3_ATS_COPY"


@dataclass(frozen=True, slots=True)
class Exl3:
    """Holding weights in the page cache: for a native ExLlamaV3 server alone."""

    profile: Profile = setting(
        Profile.NONE,
        "Weights of a native ExLlamaV3 server: `measured` copies the model and maps its drafter, `aliased` maps all, "
        "`nodraft` copies all",
        env="EXL3_PROFILE",
    )
    copy: str = setting(
        "",
        "Expression for the tensors that are copied to the GPU, `nothing` for none; the profile's if empty",
        env="EXL3_ATS_COPY",
    )
    confidence: Decimal | None = setting(
        None,
        "How sure the drafter must be of a token",
        env="EXL3_DSPARK_CONF",
        variable="EXL3_DSPARK_CONF",
        low=0,
        high=1,
    )


@dataclass(frozen=True, slots=True)
class Held:
    """What a profile stands for. `chunk` is the most tokens of one step: 4096 do not fit beside copied weights."""

    copy: str
    drafts: bool
    chunk: int


HELD = {
    Profile.MEASURED: Held(r"^(?!mtp\.)", True, 2048),
    Profile.ALIASED: Held("", True, 4096),
    Profile.NODRAFT: Held(".*", False, 2048),
}


def copied(exl3: Exl3) -> str:
    """The expression that the server gets; empty: nothing is copied."""
    if exl3.copy:
        return "" if exl3.copy == NOTHING else exl3.copy
    return HELD[exl3.profile].copy if exl3.profile in HELD else ""


def exl3_variables(exl3: Exl3, context: int | None) -> dict[str, str]:
    """The variables of a profile; an empty expression is a value too. The published servers differ in what they read
    for the context, so both names are given."""
    if exl3.profile not in HELD:
        return {}
    held = HELD[exl3.profile]
    said = {"EXL3_ATS_MMAP": "1", COPY: copied(exl3), "EXL3_MTP": "1" if held.drafts else "0", "CHUNK": str(held.chunk)}
    return said | ({"CTX": str(context), "EXL3_CACHE_TOKENS": str(context)} if context else {})
