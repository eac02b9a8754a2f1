import ast
import sys
from pathlib import Path

import pytest

from cluster.model.bundle import bundle
from cluster.node.wire import WRAPPER
from cluster.plan.guard import PARTS as GUARD_PARTS
from cluster.runtime.native import LOOK_PARTS, RANK_PARTS
from cluster.weights.assembly import ASSEMBLER
from cluster.weights.packed import PACKER

AGENT = Path(__file__).parents[3] / "cluster" / "agent"
PARTS = pytest.mark.parametrize("parts", [RANK_PARTS, LOOK_PARTS, GUARD_PARTS, PACKER, ASSEMBLER, WRAPPER])


def program(parts: tuple[str, ...]) -> ast.Module:
    source = bundle((AGENT / f"{part}.py").read_bytes() for part in parts)
    return ast.parse(source, feature_version=(3, 9))


def test_parts_lose_their_imports_of_each_other():
    one = b'"""One."""\n\nfrom __future__ import annotations\n\nimport os\n\nA = os.sep\n'
    two = b"from __future__ import annotations\n\nfrom cluster.agent.one import (\n    A,\n)\n\nprint(A)\n"
    assert bundle([one, two]) == (
        b'from __future__ import annotations\n"""One."""\n\n\nimport os\n\nA = os.sep\n\n\n\nprint(A)\n'
    )


@PARTS
def test_a_program_imports_only_what_python_has(parts):
    imported = {
        name.split(".")[0]
        for node in ast.walk(program(parts))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert imported - sys.stdlib_module_names == set()


@PARTS
def test_no_name_is_defined_by_two_parts(parts):
    tree = program(parts)
    named = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    named += [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    assert sorted(named) == sorted(set(named))


@PARTS
def test_a_program_is_plain_ascii_and_small(parts):
    source = bundle((AGENT / f"{part}.py").read_bytes() for part in parts)
    assert source.isascii()
    assert len(source) < 65536
