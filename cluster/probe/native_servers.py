"""Which native ExLlamaV3 servers run on a node, by what their command lines say."""

from cluster.probe.base import Ask, Probe

SIGNS = ("spark_exl3", "server.app:app", "exllamav3")  # ours, the published image's, and scripts over the library
SHOWN = 80


def parse_servers(text: str) -> tuple[str, ...]:
    """`PID command line` of each Python process that says so; a shell that only names one is none."""
    found = []
    for line in text.splitlines():
        pid, _, command = line.strip().partition(" ")
        words = command.split()
        is_python = bool(words) and words[0].rpartition("/")[2].startswith("python")
        # What is run stands at the beginning; further on are folders, which may be called anything.
        if is_python and any(sign in word for word in words[1:4] for sign in SIGNS):
            found.append(f"{pid} {command[:SHOWN].rstrip()}")
    return tuple(found)


SERVERS: Probe[tuple[str, ...] | None] = Probe(
    "native servers", Ask(("ps", "-eww", "-o", "pid=,args=")), parse_servers, None
)
