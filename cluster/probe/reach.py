"""Parse what `agent/reach.py` says about the way to the other nodes."""

import json

from cluster.errors import Unreadable
from cluster.model.host import Reached


def parse_reach(text: str) -> tuple[Reached, ...]:
    if not text.strip():
        return ()  # it was ended before it had an answer
    try:
        return tuple(
            Reached(
                one["address"],
                one["interface"],
                one["mtu"],
                one["ping"],
                one["full"],
                tuple(sorted((int(port), told) for port, told in one["ports"].items())),
            )
            for one in json.loads(text)
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable("cannot read what the node reached", evidence=[text[:300], repr(error)]) from error
