import pytest

from cluster.agent.stacks import refusal

SYSCTL = "sudo sysctl kernel.yama.ptrace_scope=0"


@pytest.mark.parametrize(
    ("scope", "who", "way"),
    [
        ("1", "only root and a parent", SYSCTL),
        ("2", "only root", SYSCTL),
        ("3", "nobody", "a reboot without that setting"),
    ],
)
def test_a_refused_py_spy_is_told_with_the_setting_and_the_way_out(scope: str, who: str, way: str) -> None:
    reason = f"kernel.yama.ptrace_scope is {scope}, so {who} may look into a process; to allow it: {way}"
    assert refusal(scope) == f"py-spy was refused, so there are no Python stacks: {reason}"


@pytest.mark.parametrize("scope", ["0", ""])
def test_a_refusal_without_that_setting_has_another_reason(scope: str) -> None:
    assert refusal(scope).endswith("no Python stacks: not your rank, or a container forbids it; look as root")
