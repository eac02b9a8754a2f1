"""How a node's GPU addresses memory: with ATS it reads the page tables of the CPU, and so files in the page cache."""

from cluster.probe.base import Ask, Probe

KEY = "Addressing Mode"


def parse_addressing(text: str) -> str:
    """The mode of the first GPU in `nvidia-smi -q`; empty when it says none, as an output that was cut short does."""
    for line in text.splitlines():
        name, found, value = line.partition(":")
        if found and name.strip() == KEY:
            return value.strip()
    return ""


ADDRESSING: Probe[str | None] = Probe("addressing mode", Ask(("nvidia-smi", "-q")), parse_addressing, None)
