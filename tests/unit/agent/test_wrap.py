"""The wrapper as it is sent: every command pays for what it imports."""

import ast

from cluster.model.steps import Command
from cluster.node.wire import run_request


def test_source_is_python_3_9_and_imports_little() -> None:
    request = run_request(Command(("true",)), "", None)
    tree = ast.parse(request[8 : 8 + int(request[:8])], feature_version=(3, 9))
    modules = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    assert set(modules) == {
        "contextlib", "errno", "json", "os", "select", "signal", "struct", "subprocess", "sys", "time",
    }  # fmt: skip
