"""Join the parts of a node program into the one file that is sent."""

import re
from collections.abc import Iterable

_OWN_IMPORT = re.compile(r"^from cluster\.agent\.\w+ import (?:\([^)]*\)|.*)\n", re.MULTILINE)
_FUTURE = "from __future__ import annotations\n"


def bundle(parts: Iterable[bytes]) -> bytes:
    """The parts one after another, without their imports of each other: names are unique across parts.

    A node has no sparkctl; a program for it must be one file of standard Python.
    """
    texts = [_OWN_IMPORT.sub("", part.decode()).replace(_FUTURE, "") for part in parts]
    return (_FUTURE + "\n".join(texts)).encode()
