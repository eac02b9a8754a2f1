"""What a verb needs of the settings; apart from the rules, so that naming it does not import them."""

from enum import StrEnum


class Need(StrEnum):
    """None of it complete, the nodes, or all that a boot takes."""

    NOTHING = "nothing"
    NODES = "nodes"
    SERVE = "serve"
