"""A program of ours on a node runs in a copy of the wrapper; to the program that is a new interpreter."""

import json
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from cluster.errors import TimedOut
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.node.base import Node
from cluster.node.local import LocalNode
from cluster.node.open import open_node
from tests.contract.sshd import Sshd

pytestmark = pytest.mark.contract

COPY, FRESH = ("python3", "-IS", "-"), ("python3", "-SI", "-")  # the same flags; only the first is how we write them
SEEN = """
import json, os, signal, sys
from typing import NamedTuple
class Pair(NamedTuple):
    one: int
    two: "str"
print(json.dumps({
    "argv": sys.argv, "name": __name__,
    "stdin": sys.stdin.read() if sys.stdin else None, "zero": os.read(0, 10).decode(), "cwd": os.getcwd(),
    "variables": {n: v for n, v in os.environ.items() if n not in ("_", "SHLVL", "PWD", "OLDPWD")},
    "signals": [str(signal.getsignal(n)) for n in (1, 2, 13, 15, 17)],
    "encodings": [sys.stdout.encoding, sys.stderr.encoding], "leads": os.getpid() == os.getsid(0) == os.getpgid(0),
    "pair": Pair(1, "gr\\u00f6\\u00dfe"), "text": "\\udcff \\u00e9",
}, ensure_ascii=False, sort_keys=True))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(params=["local", "ssh"])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    if request.param == "local":
        opened: Node = LocalNode("here")
    else:
        opened = open_node("there", "node", ssh_config=request.getfixturevalue("server").ssh_config)
    yield opened
    opened.close()


def run(node: Node, python: tuple[str, ...], source: str, *words: str, **options):
    result = node.run(Command((*python, *words), stdin=source.encode(), **options))
    return result.exit, result.out, result.err


def test_it_sees_what_a_new_interpreter_would_show_it(node, tmp_path):
    options = {"env": (("SPARK", "größe"),), "cwd": PurePosixPath(tmp_path)}
    copied, fresh = (run(node, python, SEEN, "two words", "", **options) for python in (COPY, FRESH))
    assert copied == fresh
    assert json.loads(copied[1].decode("utf-8", "surrogateescape"))["argv"] == ["-", "two words", ""]


@pytest.mark.parametrize(
    "source",
    [
        "import sys; sys.exit()",
        "import sys; sys.exit(7)",
        "import sys; print('out'); sys.exit('its last words')",
        "print('no end of line', end='')",
        "import os; os._exit(3)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import atexit; atexit.register(print, 'at the end')",
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()",
        "raise OSError(28, 'No space left on device')",
        "def broken(:",
    ],
)
def test_it_ends_as_in_a_new_interpreter(node, source):
    copied, fresh = run(node, COPY, source), run(node, FRESH, source)
    assert (copied[:2], copied[2].splitlines()[-1:]) == (fresh[:2], fresh[2].splitlines()[-1:])


def test_the_last_words_of_a_bug_are_its_own_not_the_wrappers(node):
    code, _, err = run(node, COPY, "def act():\n    raise KeyError('what')\nact()\n")
    lines = [line for line in err.decode().splitlines() if "File" in line]
    assert (code, lines[-2:]) == (1, ['  File "<stdin>", line 3, in <module>', '  File "<stdin>", line 2, in act'])


def test_a_limit_ends_it_and_what_it_started(node, tmp_path):
    source = (
        "import subprocess, sys, time\n"
        "with open(sys.argv[1], 'w') as file:\n"
        "    file.write(str(subprocess.Popen(['sleep', '60']).pid))\n"
        "time.sleep(60)\n"
    )
    began = time.monotonic()
    with pytest.raises(TimedOut):
        run(node, COPY, source, str(tmp_path / "pid"), limit=Seconds(1.0))
    assert time.monotonic() - began < 10
    stat = Path("/proc", (tmp_path / "pid").read_text(), "stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_much_output_comes_whole(node):
    assert len(run(node, COPY, "import sys; sys.stdout.write('x' * 10_000_000)")[1]) == 10_000_000
