"""What every node does, on this machine, over a real sshd, and in the fake where it applies."""

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.errors import (
    HostKeyChanged,
    HostKeyUnknown,
    LoginRefused,
    SettingsError,
    StepFailed,
    TimedOut,
    ToolMissing,
    Unreachable,
)
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.node import call, ssh, ssh_connect, ssh_keys
from cluster.node.base import Identity, Node, Result
from cluster.node.failures import NoSuchFile
from cluster.node.local import LocalNode
from cluster.node.open import open_node
from cluster.node.ssh import SshNode
from tests.contract.sshd import Sshd, free_port, new_key
from tests.fakes.node import FakeNode

pytestmark = pytest.mark.contract

ROOT = Path(__file__).parents[2]
PYTHON = sys.executable
NASTY = (
    "",
    " ",
    "two words",
    "'",
    '"',
    "'\"'",
    "$HOME `id` $(id)",
    "back\\slash\\",
    "new\nline",
    "tab\tand\rreturn",
    "!history !!",
    "-n",
    "--help",
    "*?[a]{b,c}",
    "~/not expanded",
    "; rm -rf x & | < > #",
    "größe 数字 🚀",
    "%s %n",
    "\x01\x7f",
    "^caret^",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(scope="module")
def over_ssh(server: Sshd) -> Iterator[SshNode]:
    node = reach(server)
    yield node
    node.close()


@pytest.fixture(params=["local", "ssh"])
def machine(request: pytest.FixtureRequest) -> Node:
    """A node on which real programs run."""
    node: Node = LocalNode("here") if request.param == "local" else request.getfixturevalue("over_ssh")
    return node


@pytest.fixture(params=["local", "ssh", "fake"])
def node(request: pytest.FixtureRequest) -> Node:
    if request.param == "fake":
        return FakeNode(
            answers={
                ("true",): "",
                ("false",): Result(1, b"", b""),
                ("echo",): lambda command: Result(0, " ".join(command.argv[1:]).encode() + b"\n", b""),
                ("printf",): lambda command: Result(0, command.argv[1].replace("\\n", "\n").encode(), b""),
                ("cat",): lambda command: Result(0, command.stdin, b""),
            }
        )
    real: Node = LocalNode("here") if request.param == "local" else request.getfixturevalue("over_ssh")
    return real


def reach(server: Sshd, host: str = "node", **options: bool) -> SshNode:
    node = open_node("there", host, ssh_config=server.ssh_config, **options)
    assert isinstance(node, SshNode)
    return node


def sh(script: str, **options: object) -> Command:
    return Command(("sh", "-c", script), **options)  # type: ignore[arg-type]


def processes_with(text: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return found


def eventually(claim: Callable[[], bool], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if claim():
            return True
        time.sleep(0.05)
    return claim()


def unique_nap() -> str:
    """An argument for sleep that only this test uses, to find the process by."""
    unique_nap.count += 1  # type: ignore[attr-defined]
    return f"300.{os.getpid()}{unique_nap.count:03d}"  # type: ignore[attr-defined]


unique_nap.count = 0  # type: ignore[attr-defined]


class TestRun:
    def test_exit_code_is_returned_not_raised(self, node: Node) -> None:
        assert (node.run(Command(("true",))).exit, node.run(Command(("false",))).exit) == (0, 1)

    def test_output_is_what_the_program_printed(self, node: Node) -> None:
        result = node.run(Command(("echo", "hello", "there")))
        assert (result.exit, result.out, result.err, result.noise) == (0, b"hello there\n", b"", b"")

    def test_program_reads_exactly_the_bytes_it_is_given(self, node: Node) -> None:
        data = bytes(range(256)) * 3
        assert node.run(Command(("cat",), stdin=data)).out == data

    def test_tool_that_is_nowhere_is_missing(self, node: Node) -> None:
        with pytest.raises(ToolMissing) as caught:
            node.run(Command(("no-such-tool-at-all",)))
        assert str(caught.value) == f"{node.name}: no-such-tool-at-all is not in any folder we look in"

    def test_both_streams_are_apart(self, machine: Node) -> None:
        result = machine.run(sh("echo out; echo err >&2; exit 3"))
        assert (result.exit, result.out, result.err) == (3, b"out\n", b"err\n")

    @pytest.mark.parametrize(("name", "code"), [("KILL", 137), ("TERM", 143), ("SEGV", 139)])
    def test_death_by_signal_is_128_and_its_number(self, machine: Node, name: str, code: int) -> None:
        assert machine.run(sh(f"kill -{name} $$")).exit == code

    def test_tool_that_itself_exits_127_or_124_is_no_missing_tool_and_no_timeout(self, machine: Node) -> None:
        assert [machine.run(sh(f"exit {code}")).exit for code in (124, 127)] == [124, 127]

    def test_ten_megabytes_on_both_streams_at_once(self, machine: Node) -> None:
        script = "import os,threading\n"
        script += "def put(fd, byte):\n for _ in range(160): os.write(fd, byte * 65536)\n"
        script += "t = threading.Thread(target=put, args=(2, b'e')); t.start(); put(1, b'o'); t.join()"
        result = machine.run(Command((PYTHON, "-c", script)))
        assert (len(result.out), set(result.out), len(result.err), set(result.err)) == (
            10485760,
            {ord("o")},
            10485760,
            {ord("e")},
        )

    def test_every_byte_value_comes_through(self, machine: Node) -> None:
        everything = bytes(range(256)) * 256
        assert machine.run(Command(("cat",), stdin=everything)).out == everything

    def test_ten_megabytes_of_input(self, machine: Node) -> None:
        assert machine.run(Command(("wc", "-c"), stdin=b"x" * 10_000_000)).text.strip() == "10000000"

    def test_program_that_reads_no_input_does_not_hang_or_fail(self, machine: Node) -> None:
        assert machine.run(Command(("true",), stdin=b"x" * 1_000_000)).exit == 0

    def test_input_ends_when_none_is_given(self, machine: Node) -> None:
        assert machine.run(Command(("cat",), limit=Seconds(10.0))).out == b""

    def test_nothing_in_an_argument_is_special(self, machine: Node) -> None:
        script = "import sys; sys.stdout.write('\\0'.join(sys.argv[1:]))"
        result = machine.run(Command((PYTHON, "-c", script, *NASTY), env=(("PYTHONIOENCODING", "utf-8"),)))
        assert result.out.decode().split("\0") == list(NASTY)

    def test_environment_is_added_and_never_expanded(self, machine: Node) -> None:
        command = sh('printf "%s|%s|%s" "$ONE" "$TWO" "$LC_ALL"', env=(("ONE", "a b'\"$HOME\n"), ("TWO", "")))
        assert machine.run(command).out == b"a b'\"$HOME\n||C"

    def test_command_runs_in_its_folder(self, machine: Node, tmp_path: Path) -> None:
        folder = tmp_path / "with space"
        folder.mkdir()
        assert machine.run(Command(("pwd",), cwd=PurePosixPath(folder))).text == f"{folder}\n"

    def test_missing_folder_is_named(self, machine: Node) -> None:
        with pytest.raises(StepFailed, match=r"the folder /no/such/folder does not exist"):
            machine.run(Command(("pwd",), cwd=PurePosixPath("/no/such/folder")))

    def test_file_that_cannot_be_executed_is_an_error_of_the_command(self, machine: Node, tmp_path: Path) -> None:
        broken = tmp_path / "broken"
        broken.write_text("#!/no/such/interpreter\n")
        broken.chmod(0o755)
        with pytest.raises(StepFailed, match="could not be started: No such file"):
            machine.run(Command((str(broken),)))

    def test_there_is_no_terminal(self, machine: Node) -> None:
        assert machine.run(sh("test -t 0 || test -t 1 || test -t 2 || ! (: > /dev/tty) 2>/dev/null")).exit == 0

    def test_child_that_keeps_the_output_open_does_not_hold_us_up(self, machine: Node) -> None:
        nap = unique_nap()
        began = time.monotonic()
        result = machine.run(sh(f"sleep {nap} & echo hi"))
        took = time.monotonic() - began
        survivors = processes_with(nap)
        for pid in survivors:
            os.kill(pid, signal.SIGKILL)
        assert (result.out, len(survivors)) == (b"hi\n", 1)
        assert took < 5

    def test_ssh_04_path_of_a_non_login_shell_is_extended(self, machine: Node) -> None:
        dirs = machine.run(sh("echo $PATH", env=(("PATH", "/usr/bin:/bin"),))).text.strip().split(":")
        assert dirs[:2] == ["/usr/bin", "/bin"]
        assert {"/usr/sbin", "/sbin", "/usr/local/sbin", "/snap/bin", "/usr/local/cuda/bin"} <= set(dirs)
        assert str(Path("~/.local/bin").expanduser()) in dirs

    def test_ssh_04_missing_tool_says_where_it_was_sought(self, machine: Node) -> None:
        with pytest.raises(ToolMissing) as caught:
            machine.run(Command(("no-such-zfs", "list")))
        tried = caught.value.evidence[0].removeprefix("looked in ").split(":")
        assert {"/usr/sbin", "/sbin", "/usr/local/sbin", "/snap/bin"} <= set(tried)

    def test_arguments_with_a_null_byte_are_refused_here(self, machine: Node) -> None:
        with pytest.raises(ValueError, match="not an argument list"):
            machine.run(Command(("echo", "a\0b")))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), max_size=6))
def test_any_arguments_arrive_unchanged(arguments: list[str]) -> None:
    script = "import sys; sys.stdout.buffer.write('\\0'.join([*sys.argv[1:], '']).encode('utf-8', 'surrogateescape'))"
    result = LocalNode("here").run(Command((PYTHON, "-ISc", script, *arguments)))
    assert result.out.decode().split("\0")[:-1] == arguments


class TestEnding:
    def test_time_limit_ends_the_program_and_its_children(self, machine: Node) -> None:
        nap, group = unique_nap(), unique_nap()
        own_group = "import os, sys; os.setpgid(0, 0); os.execvp('sleep', ['sleep', sys.argv[1]])"
        script = f"sleep {nap} & {PYTHON} -c {shlex.quote(own_group)} {group} & wait"
        began = time.monotonic()
        with pytest.raises(TimedOut) as caught:
            machine.run(sh(f"echo last words >&2; {script}", limit=Seconds(1.5)))
        assert 1.4 < time.monotonic() - began < 8
        assert caught.value.evidence == ("last words",)
        assert eventually(lambda: not processes_with(nap) and not processes_with(group), 1.0)

    def test_program_that_ignores_the_request_to_end_is_killed(self, machine: Node) -> None:
        nap = unique_nap()
        began = time.monotonic()
        with pytest.raises(TimedOut):
            machine.run(sh(f"trap '' TERM; sleep {nap}; sleep {nap}", limit=Seconds(0.5)))
        assert time.monotonic() - began < 8
        assert eventually(lambda: not processes_with(nap), 1.0)

    def test_program_may_tidy_up_when_its_time_is_over(self, machine: Node, tmp_path: Path) -> None:
        tidied = tmp_path / "tidied"
        with pytest.raises(TimedOut):
            machine.run(sh(f"trap 'touch {tidied}; exit' TERM; while :; do sleep 0.1; done", limit=Seconds(0.5)))
        assert tidied.exists()

    @pytest.mark.parametrize("way", ["local", "ssh"])
    def test_lost_parent_ends_the_program_on_the_node(self, way: str, server: Sshd) -> None:
        nap = unique_nap()
        parent = a_parent(way, server, f"node.run(Command(('sh', '-c', 'sleep {nap}; sleep {nap}'), limit=600.0))")
        try:
            assert eventually(lambda: len(processes_with(nap)) == 1)
            parent.kill()
            parent.wait()
            assert eventually(lambda: not processes_with(nap), 8.0)
        finally:
            parent.kill()
            parent.wait()

    def test_parent_that_says_nothing_for_a_minute_counts_as_lost(self, server: Sshd) -> None:
        nap = unique_nap()
        code = f"call.PATIENCE = 3.0; call.BEAT = 0.5; node.run(Command(('sleep', '{nap}'), limit=600.0))"
        parent = a_parent("ssh", server, code)
        try:
            assert eventually(lambda: len(processes_with(nap)) == 1)
            time.sleep(4.0)
            assert processes_with(nap), "signs of life keep it running"
            parent.send_signal(signal.SIGSTOP)  # its connection stays open, as with a cut cable
            assert eventually(lambda: not processes_with(nap), 10.0)
        finally:
            parent.kill()
            parent.wait()

    def test_close_from_another_thread_ends_what_runs(self, server: Sshd) -> None:
        for node in (LocalNode("here"), reach(server)):
            nap = unique_nap()
            outcome: list[BaseException] = []
            thread = threading.Thread(target=keep_error, args=(node, Command(("sleep", nap)), outcome))
            thread.start()
            assert eventually(lambda nap=nap: len(processes_with(nap)) == 1)  # type: ignore[misc]
            node.close()
            thread.join(8)
            assert [str(error) for error in outcome] == [f"{node.name}: this node was closed while a command ran"]
            assert eventually(lambda nap=nap: not processes_with(nap))  # type: ignore[misc]
            node.close()
            with pytest.raises(Unreachable, match="was closed"):
                node.run(Command(("true",)))

    def test_interrupt_in_the_caller_ends_the_program(self, machine: Node) -> None:
        nap = unique_nap()

        def interrupt(line: str) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            machine.stream(sh(f"echo go; sleep {nap}"), interrupt)
        assert eventually(lambda: not processes_with(nap))


def a_parent(way: str, server: Sshd, code: str) -> "subprocess.Popen[bytes]":
    """Another sparkctl, so to speak, which has a node open."""
    control = "local" if way == "local" else "node"
    script = f"""
        from pathlib import Path
        from cluster.model.steps import Command
        from cluster.node import call
        from cluster.node.open import open_node
        node = open_node("n", {control!r}, ssh_config=Path({str(server.ssh_config)!r}))
        {code}
    """
    return subprocess.Popen(
        [PYTHON, "-c", textwrap.dedent(script)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


def keep_error(node: Node, command: Command, outcome: list[BaseException]) -> None:
    try:
        node.run(command)
    except BaseException as error:
        outcome.append(error)


class TestStream:
    def test_lines_come_one_by_one_and_not_in_the_result(self, node: Node) -> None:
        lines: list[str] = []
        result = node.stream(Command(("printf", "one\\ntwo\\n\\nlast")), lines.append)
        assert (result.exit, result.out, lines) == (0, b"", ["one", "two", "", "last"])

    def test_line_is_handed_over_while_the_program_runs(self, machine: Node) -> None:
        times: list[float] = []
        began = time.monotonic()
        machine.stream(sh("echo now; sleep 1.5; echo later"), lambda _: times.append(time.monotonic() - began))
        assert times[1] - times[0] > 1.0

    @pytest.mark.parametrize("size", range(4_280_000, 4_640_000, 40_000))
    def test_slow_reader_gets_the_last_line_of_a_program_that_has_ended(self, size: int) -> None:
        script = f"import os\nfor _ in range({size // 50}): os.write(1, b'x' * 49 + bytes([10]))"
        count = 0

        def on_line(_: str) -> None:
            nonlocal count
            count += 1
            if count == 1:
                time.sleep(0.7)

        LocalNode("here").stream(Command((PYTHON, "-ISc", script)), on_line)
        assert count == size // 50

    def test_character_cut_in_two_is_whole_in_its_line(self, machine: Node) -> None:
        lines: list[str] = []
        machine.stream(sh(r"printf '\303'; sleep 0.2; printf '\274\n\377\n'"), lines.append)
        assert lines == ["ü", "\ufffd"]

    def test_stop_ends_the_program_within_a_second(self, machine: Node) -> None:
        nap = unique_nap()
        stop = threading.Event()
        threading.Timer(1.0, stop.set).start()
        began = time.monotonic()
        lines: list[str] = []
        result = machine.stream(sh(f"echo hi; exec sleep {nap}"), lines.append, stop)
        assert (result.exit, result.out, lines) == (143, b"", ["hi"])
        assert time.monotonic() - began < 2.5
        assert eventually(lambda: not processes_with(nap), 1.0)

    def test_stop_does_not_wait_for_a_program_that_ignores_it(self, machine: Node) -> None:
        nap = unique_nap()
        stop = threading.Event()
        began: list[float] = []

        def on_line(_: str) -> None:
            began.append(time.monotonic())
            stop.set()

        machine.stream(sh(f"trap '' TERM; echo hi; sleep {nap}; sleep {nap}"), on_line, stop)
        assert time.monotonic() - began[0] < 1.5
        assert eventually(lambda: not processes_with(nap), 3.0)

    def test_stop_that_is_set_already_returns_at_once(self, node: Node) -> None:
        stop = threading.Event()
        stop.set()
        assert node.stream(Command(("cat",)), lambda _: None, stop).out == b""


class TestFiles:
    def test_what_was_written_is_read(self, node: Node, tmp_path: Path) -> None:
        path = str(tmp_path / "new" / "folder" / "it's a file")
        data = bytes(range(256)) * 5000
        node.write(path, data, 0o640)
        assert (node.read(path), node.read(path, 250, 10), node.read(path, 1279990), node.read(path, 9999999)) == (
            data,
            data[250:260],
            data[-10:],
            b"",
        )

    def test_second_write_replaces_the_first(self, node: Node, tmp_path: Path) -> None:
        path = str(tmp_path / "file")
        node.write(path, b"first, and longer", 0o600)
        node.write(path, b"second", 0o600)
        assert node.read(path) == b"second"

    def test_empty_file_is_no_missing_file(self, node: Node, tmp_path: Path) -> None:
        node.write(str(tmp_path / "empty"), b"", 0o600)
        assert node.read(str(tmp_path / "empty")) == b""

    def test_missing_file_names_node_and_path(self, node: Node) -> None:
        with pytest.raises(NoSuchFile) as caught:
            node.read("/no/such/file")
        assert str(caught.value) == f"{node.name}: cannot read /no/such/file: No such file or directory"

    def test_mode_is_as_asked_and_parents_are_private(self, machine: Node, tmp_path: Path) -> None:
        machine.write(str(tmp_path / "a" / "b" / "file"), b"x", 0o750)
        modes = [oct((tmp_path / part).stat().st_mode & 0o7777) for part in ("a", "a/b", "a/b/file")]
        assert modes == ["0o700", "0o700", "0o750"]

    def test_failed_write_leaves_nothing_behind(self, machine: Node, tmp_path: Path) -> None:
        (tmp_path / "taken").mkdir()
        with pytest.raises(StepFailed, match="cannot write"):
            machine.write(str(tmp_path / "taken"), b"x", 0o600)
        assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]

    def test_tilde_is_the_home_of_the_node(self, machine: Node) -> None:
        name = f".sparkctl-contract-{os.getpid()}"
        machine.write(f"~/{name}", b"at home", 0o600)
        file = Path("~").expanduser() / name
        assert file.read_bytes() == b"at home"
        assert machine.read(f"~/{name}") == b"at home"
        file.unlink()


def test_eight_run_at_once_and_the_ninth_waits(machine: Node, tmp_path: Path) -> None:
    (tmp_path / "on").mkdir()
    # Each leaves when eight have met, and half a second more, in which a ninth would be seen.
    script = f"""d={shlex.quote(str(tmp_path))}; touch $d/on/$$; tries=0
        until [ -e $d/met ] || [ $tries -gt 300 ]; do
            [ "$(ls $d/on | wc -l)" -lt 8 ] || touch $d/met
            sleep 0.1; tries=$((tries + 1))
        done
        sleep 0.5; ls $d/on | wc -l; sleep 0.5; rm $d/on/$$"""
    results: list[Result] = []
    threads = [threading.Thread(target=lambda: results.append(machine.run(sh(script)))) for _ in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    at_once = [int(result.text) for result in results]
    assert (len(at_once), max(at_once)) == (9, 8)


def test_closed_fake_and_lost_fake_are_unreachable() -> None:
    node = FakeNode(answers={("true",): ""})
    node.gone = True
    with pytest.raises(Unreachable, match="lost"):
        node.run(Command(("true",)))
    node.gone = False
    node.close()
    with pytest.raises(Unreachable, match="closed"):
        node.read("/x")


class TestConnection:
    def test_identity_is_what_answered(self, over_ssh: SshNode, server: Sshd) -> None:
        shown = subprocess.run(
            ["ssh-keygen", "-lf", str(server.folder / "host_key.pub")], capture_output=True, text=True, check=True
        )
        user = Path("~").expanduser().owner()
        assert over_ssh.identity == Identity("127.0.0.1", server.port, user, shown.stdout.split()[1])

    def test_address_with_port_needs_no_alias(self, server: Sshd) -> None:
        text = f"Host *\n IdentityFile {server.folder / 'id'}\n UserKnownHostsFile {server.known_hosts}\n"
        config = server.folder / "plain_config"
        config.write_text(text)
        node = open_node("there", f"{Path('~').expanduser().owner()}@127.0.0.1:{server.port}", ssh_config=config)
        assert node.run(Command(("echo", "hi"))).out == b"hi\n"
        node.close()

    def test_alias_may_come_from_an_included_file(self, server: Sshd) -> None:
        outer = server.folder / "outer_config"
        outer.write_text(f'Host other\n  Port 1\nInclude "{server.ssh_config}"\n')
        node = open_node("there", "node", ssh_config=outer)
        assert node.run(Command(("true",))).exit == 0
        node.close()

    def test_connection_that_dies_mid_command_is_lost_and_made_anew(self, server: Sshd) -> None:
        node = reach(server)
        nap = unique_nap()
        outcome: list[BaseException] = []
        thread = threading.Thread(target=keep_error, args=(node, Command(("sleep", nap)), outcome))
        thread.start()
        assert eventually(lambda: len(processes_with(nap)) == 1)
        began = time.monotonic()
        server.kill_sessions()
        thread.join(10)
        assert [(type(error), str(error)) for error in outcome] == [(Unreachable, "there: the connection was lost")]
        assert time.monotonic() - began < 5
        assert eventually(lambda: not processes_with(nap))
        assert node.run(Command(("echo", "again"))).out == b"again\n"
        node.close()

    def test_node_that_no_longer_answers_is_lost(self, server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ssh, "SILENCE", 1.5)
        monkeypatch.setattr(ssh, "PROBE", 0.3)
        with Sshd(server.folder / "silent") as silent:
            node = reach(silent)
            outcome: list[BaseException] = []
            thread = threading.Thread(target=keep_error, args=(node, Command(("sleep", "60")), outcome))
            thread.start()
            time.sleep(1.0)
            pids = silent.session_pids()
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            began = time.monotonic()
            thread.join(10)
            assert [str(error) for error in outcome] == ["there: the connection was lost"]
            assert outcome[0].evidence[0].startswith("no answer for ")  # type: ignore[attr-defined]
            assert time.monotonic() - began < 5
            node.close()

    def test_wrapper_that_was_killed_is_no_exit_code(self, machine: Node) -> None:
        nap = unique_nap()
        outcome: list[BaseException] = []
        thread = threading.Thread(target=keep_error, args=(machine, Command(("sleep", nap)), outcome))
        thread.start()
        assert eventually(lambda: len(processes_with(nap)) == 1)
        [pid] = processes_with(nap)
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        thread.join(10)
        os.kill(pid, signal.SIGKILL)
        assert [type(error) for error in outcome] == [Unreachable]

    def test_fewer_sessions_than_we_need_say_which_setting(self, server: Sshd) -> None:
        with Sshd(server.folder / "narrow", options=("MaxSessions 1",)) as narrow:
            node = reach(narrow)
            stop = threading.Event()
            started = threading.Event()
            thread = threading.Thread(target=node.stream, args=(sh("echo; sleep 20"), lambda _: started.set(), stop))
            thread.start()
            started.wait(10)
            with pytest.raises(Unreachable) as caught:
                node.run(Command(("true",)))
            stop.set()
            thread.join(5)
            node.close()
        assert "MaxSessions" in caught.value.fix

    def test_a_session_that_is_still_counted_for_a_moment_is_waited_for(self, server: Sshd) -> None:
        with Sshd(server.folder / "tight", options=("MaxSessions 1",)) as tight:
            node = reach(tight)
            started, stop = threading.Event(), threading.Event()
            thread = threading.Thread(target=node.stream, args=(sh("echo; sleep 20"), lambda _: started.set(), stop))
            thread.start()
            started.wait(10)
            threading.Timer(0.5, stop.set).start()
            assert node.run(Command(("echo", "then"))).out == b"then\n"
            thread.join(5)
            node.close()

    def test_login_goes_through_a_jump_host(self, server: Sshd) -> None:
        with Sshd(server.folder / "behind") as behind:
            config = behind.folder / "both"
            jump = server.ssh_config.read_text().replace("Host node", "Host jump")
            config.write_text(f"{behind.ssh_config.read_text()}  ProxyJump jump\n{jump}")
            node = open_node("there", "node", ssh_config=config)
            assert node.run(Command(("echo", "far"))).out == b"far\n"
            assert node.identity.port == behind.port
            node.close()

    def test_jump_host_with_an_unknown_key_is_refused_by_its_name(self, server: Sshd) -> None:
        with Sshd(server.folder / "behind2") as behind:
            config = behind.folder / "both"
            jump = server.ssh_config.read_text().replace("Host node", "Host jump")
            jump = jump.replace(str(server.known_hosts), str(behind.folder / "empty"))
            config.write_text(f"{behind.ssh_config.read_text()}  ProxyJump jump\n{jump}")
            with pytest.raises(HostKeyUnknown, match=rf"the host key of \[127.0.0.1\]:{server.port} is not known"):
                open_node("there", "node", ssh_config=config)

    def test_jump_host_that_cannot_reach_the_node_says_so(self, server: Sshd) -> None:
        config = server.folder / "nowhere"
        jump = server.ssh_config.read_text().replace("Host node", "Host jump")
        port = free_port()
        config.write_text(f"Host node\n HostName 127.0.0.1\n Port {port}\n ProxyJump jump\n{jump}")
        with pytest.raises(Unreachable, match=rf"\[127.0.0.1\]:{server.port} could not reach \[127.0.0.1\]:{port}"):
            open_node("there", "node", ssh_config=config)

    def test_login_goes_through_a_proxy_command(self, server: Sshd) -> None:
        relay = server.folder / "relay.py"
        relay.write_text(RELAY)
        server.write_ssh_config(f"ProxyCommand {PYTHON} {relay} %h %p")
        try:
            node = reach(server)
            assert node.run(Command(("echo", "piped"))).out == b"piped\n"
            node.close()
        finally:
            server.write_ssh_config()


RELAY = """
import os, select, socket, sys
far = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    ready = select.select([0, far], [], [])[0]
    if far in ready:
        data = far.recv(65536)
        if not data:
            break
        os.write(1, data)
    if 0 in ready:
        data = os.read(0, 65536)
        if not data:
            break
        far.sendall(data)
"""


class TestShell:
    @pytest.mark.parametrize("shell", ["dash", "bash", "fish", "tcsh", "zsh"])
    def test_any_login_shell_will_do(self, shell: str, server: Sshd) -> None:
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is missing: install it to test it as a login shell")
        with Sshd(server.folder / shell, forced=f'exec {shell} -c \\"$SSH_ORIGINAL_COMMAND\\"') as strange:
            node = reach(strange)
            assert node.run(Command(("printf", "%s\\0", *NASTY))).out.decode().split("\0")[:-1] == list(NASTY)
            node.close()

    def test_ssh_01_what_the_login_shell_prints_is_noise(self, server: Sshd) -> None:
        forced = "echo '*** maintenance Sunday ***'; echo oops >&2; exec sh -c \\\"$SSH_ORIGINAL_COMMAND\\\""
        with Sshd(server.folder / "noisy", forced=forced) as noisy:
            node = reach(noisy)
            first, second = node.run(Command(("echo", "3"))), node.run(Command(("echo", "4")))
            node.write(str(noisy.folder / "f"), b"clean", 0o600)
            assert node.read(str(noisy.folder / "f")) == b"clean"
            node.close()
        assert (first.out, first.err, second.out) == (b"3\n", b"", b"4\n")
        assert first.noise == b"*** maintenance Sunday ***\noops\n"
        assert node.noise == first.noise

    def test_shell_that_prints_after_us_too_changes_nothing(self, server: Sshd) -> None:
        forced = 'printf before; sh -c \\"$SSH_ORIGINAL_COMMAND\\"; echo after'
        with Sshd(server.folder / "after", forced=forced) as noisy:
            node = reach(noisy)
            result = node.run(sh("echo 3; exit 5"))
            node.close()
        assert (result.exit, result.out, result.noise) == (5, b"3\n", b"before")

    def test_banner_before_the_login_is_not_output(self, server: Sshd) -> None:
        banner = server.folder / "banner"
        banner.write_text("AUTHORIZED USE ONLY\n" * 50)
        with Sshd(server.folder / "banner_node", options=(f"Banner {banner}",)) as polite:
            node = reach(polite)
            result = node.run(Command(("echo", "3")))
            node.close()
        assert (result.out, result.noise) == (b"3\n", b"")

    def test_account_without_a_shell_is_a_refused_login(self, server: Sshd) -> None:
        with Sshd(server.folder / "nologin", forced="echo This account is not available.; exit 1") as closed:
            node = reach(closed)
            with pytest.raises(LoginRefused) as caught:
                node.run(Command(("true",)))
            node.close()
        assert caught.value.evidence == ("This account is not available.",)

    def test_node_without_python_says_what_to_install(self, server: Sshd) -> None:
        with Sshd(server.folder / "bare", forced="exec sh -c 'exec no-python3 -c pass'") as bare:
            node = reach(bare)
            with pytest.raises(ToolMissing) as caught:
                node.run(Command(("true",)))
            node.close()
        assert (caught.value.what, caught.value.fix) == (
            "python3 is not in the PATH of a non-login shell",
            "install it on there: `sudo apt-get install python3`",
        )

    def test_files_need_no_sftp(self, server: Sshd) -> None:
        assert "sftp" not in (server.folder / "sshd_config").read_text()


class TestHostKeys:
    def test_unknown_key_is_refused_with_the_command_that_accepts_it(self, tmp_path: Path) -> None:
        with Sshd(tmp_path / "s") as server:
            known = server.known_hosts
            known.unlink()
            with pytest.raises(HostKeyUnknown) as caught:
                reach(server)
            fix = caught.value.fix
            assert caught.value.evidence[0].startswith("ssh-ed25519 SHA256:")
            assert f"`ssh-keyscan -p {server.port} 127.0.0.1 >> {known}`, or add --accept-new-host-key" in fix
            assert not known.exists()
            subprocess.run(fix.split("`")[3], shell=True, check=True, capture_output=True)
            reach(server).close()

    def test_new_key_is_taken_when_asked_and_said(self, tmp_path: Path) -> None:
        with Sshd(tmp_path / "s") as server:
            server.known_hosts.write_text("# no newline at the end")
            node = reach(server, accept_new_host_key=True)
            print_of_it = node.identity.host_key
            node.close()
            assert server.known_hosts.read_text() == f"# no newline at the end\n{server.known_line()}"
            added = (
                f"added the host key of [127.0.0.1]:{server.port} to {server.known_hosts}: ssh-ed25519 {print_of_it}"
            )
            assert node.accepted_keys == (added,)
            reach(server).close()

    @pytest.mark.parametrize("accept_new", [False, True])
    def test_ssh_02_changed_key_names_the_line_and_is_never_accepted(self, tmp_path: Path, accept_new: bool) -> None:
        with Sshd(tmp_path / "s") as server:
            other = new_key(tmp_path / "other").with_suffix(".pub").read_text().split()
            text = f"# a comment\n[127.0.0.1]:{server.port} {other[0]} {other[1]}\n"
            server.known_hosts.write_text(text)
            with pytest.raises(HostKeyChanged) as caught:
                reach(server, accept_new_host_key=accept_new)
            assert server.known_hosts.read_text() == text
            assert caught.value.evidence[0].startswith(f"{server.known_hosts}:2 has ssh-ed25519 SHA256:")
            command = caught.value.fix.split("`")[1]
            assert command == f"ssh-keygen -R '[127.0.0.1]:{server.port}' -f {server.known_hosts}"
            subprocess.run(command, shell=True, check=True, capture_output=True)
            with pytest.raises(HostKeyUnknown):
                reach(server)

    def test_hashed_names_are_understood(self, tmp_path: Path) -> None:
        with Sshd(tmp_path / "s") as server:
            subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(server.known_hosts)], check=True, capture_output=True)
            assert server.known_hosts.read_text().startswith("|1|")
            reach(server).close()

    def test_key_we_know_is_asked_for_when_the_host_has_several(self, tmp_path: Path) -> None:
        rsa = new_key(tmp_path / "rsa", kind="rsa")
        with Sshd(tmp_path / "s", options=(f"HostKey {rsa}",)) as server:
            kind, key = rsa.with_suffix(".pub").read_text().split()[:2]
            server.known_hosts.write_text(f"[127.0.0.1]:{server.port} {kind} {key}\n")
            reach(server).close()

    def test_second_known_hosts_file_counts(self, tmp_path: Path) -> None:
        with Sshd(tmp_path / "s") as server:
            second = tmp_path / "second file"
            server.known_hosts.rename(second)
            text = server.ssh_config.read_text()
            wanted = f'UserKnownHostsFile {server.known_hosts} "{second}"'
            server.ssh_config.write_text(text.replace(f"UserKnownHostsFile {server.known_hosts}", wanted))
            reach(server).close()

    def test_alias_of_the_key_is_looked_up(self, tmp_path: Path) -> None:
        with Sshd(tmp_path / "s") as server:
            server.known_hosts.write_text(server.known_line().replace(f"[127.0.0.1]:{server.port}", "spark-b"))
            server.write_ssh_config("HostKeyAlias spark-b")
            reach(server).close()


class TestLogin:
    def test_ssh_03_refused_key_is_a_clear_error_and_never_a_question(self, tmp_path: Path) -> None:
        with Sshd(tmp_path / "s", authorize=False) as server:
            began = time.monotonic()
            with pytest.raises(LoginRefused) as caught:
                reach(server)
        assert time.monotonic() - began < 15
        assert str(tmp_path / "s" / "id") in caught.value.evidence[1]
        assert caught.value.fix.startswith(f"`ssh-copy-id -p {server.port} ")

    def test_ssh_03_key_with_a_passphrase_and_no_agent_says_ssh_add(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        with Sshd(tmp_path / "s") as server:
            key = server.folder / "id"
            subprocess.run(
                ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(key)], check=True, capture_output=True
            )
            with pytest.raises(LoginRefused) as caught:
                reach(server)
        assert caught.value.fix == f"{key} has a passphrase and no agent runs: `eval $(ssh-agent); ssh-add {key}`"

    def test_key_with_a_passphrase_works_through_an_agent(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if shutil.which("ssh-agent") is None:
            pytest.skip("ssh-agent is missing: install openssh-client")
        with Sshd(tmp_path / "s") as server:
            key = server.folder / "id"
            agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
            try:
                assert eventually((tmp_path / "agent").exists)
                monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
                subprocess.run(["ssh-add", "-q", str(key)], check=True, capture_output=True)
                subprocess.run(
                    ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(key)],
                    check=True,
                    capture_output=True,
                )
                reach(server).close()
            finally:
                agent.terminate()
                agent.wait()

    def test_missing_identity_file_is_skipped(self, tmp_path: Path) -> None:
        with Sshd(tmp_path / "s") as server:
            text = server.ssh_config.read_text()
            server.ssh_config.write_text(
                text.replace("  IdentityFile", "  IdentityFile /no/such/key\n  IdentityFile", 1)
            )
            reach(server).close()


class TestUnreachable:
    def test_closed_port(self, tmp_path: Path) -> None:
        port = free_port()
        with pytest.raises(Unreachable) as caught:
            open_node("there", f"127.0.0.1:{port}", ssh_config=empty_config(tmp_path))
        assert str(caught.value) == f"there: nothing answers on [127.0.0.1]:{port}"

    def test_name_that_does_not_resolve(self, tmp_path: Path) -> None:
        with pytest.raises(Unreachable) as caught:
            open_node("there", "no-such-host.invalid", ssh_config=empty_config(tmp_path))
        assert str(caught.value) == "there: the name no-such-host.invalid does not resolve"

    def test_port_of_another_service(self, tmp_path: Path) -> None:
        with a_service(b"220 mail.example ESMTP\r\n" * 200) as port, pytest.raises(Unreachable) as caught:
            open_node("there", f"127.0.0.1:{port}", ssh_config=empty_config(tmp_path))
        assert str(caught.value) == f"there: [127.0.0.1]:{port} does not answer as an SSH server"

    def test_service_that_says_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ssh_connect, "CONNECT", 1.0)
        began = time.monotonic()
        with a_service(b"") as port, pytest.raises(Unreachable) as caught:
            open_node("there", f"127.0.0.1:{port}", ssh_config=empty_config(tmp_path))
        assert time.monotonic() - began < 3
        assert f"[127.0.0.1]:{port}" in str(caught.value)

    def test_connect_timeout_of_ssh_config_is_the_limit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ssh_connect, "CONNECT", 3600.0)
        config = empty_config(tmp_path)
        with a_service(b"") as port:
            config.write_text(f"Host node\n HostName 127.0.0.1\n Port {port}\n ConnectTimeout 1\n{config.read_text()}")
            with pytest.raises(Unreachable, match=rf"127.0.0.1\]:{port}"):
                open_node("there", "node", ssh_config=config)

    def test_a_hop_has_the_time_that_ssh_config_gives_it(
        self, server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ssh_connect, "CONNECT", 0.001)
        with pytest.raises(Unreachable):
            reach(server)
        config = tmp_path / "patient"
        config.write_text(f"{server.ssh_config.read_text()}  ConnectTimeout 20\n")
        node = open_node("there", "node", ssh_config=config)
        assert node.run(Command(("echo", "in time"))).out == b"in time\n"
        node.close()

    def test_ssh_config_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match="there is no"):
            open_node("there", "node", ssh_config=tmp_path / "none")


def empty_config(folder: Path) -> Path:
    file = folder / "ssh_config"
    file.write_text(f"Host *\n UserKnownHostsFile {folder / 'known'}\n")
    return file


@contextlib.contextmanager
def a_service(greeting: bytes) -> Iterator[int]:
    """Accepts connections and says one thing to each."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client = listener.accept()[0]
                    kept.append(client)
                    client.sendall(greeting)

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for client in kept:
            client.close()


def test_limits_are_those_the_documentation_names() -> None:
    assert (call.CHANNELS, call.PATIENCE, ssh_connect.CONNECT, ssh_keys.CUT, ssh.SILENCE) == (8, 60, 15, 12, 30)
