import subprocess
import sys

from cluster.agent.ask import hear, run, ticks

BUSY = "import time; end = time.process_time() + 1.5\nwhile time.process_time() < end: pass\nprint('done')"
WAITS = "import time; time.sleep(600)"


def asked(program: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen((sys.executable, "-IS", "-c", program), stdin=pipe, stdout=pipe, stderr=pipe)


def test_what_works_is_awaited_although_nothing_comes():
    with asked(BUSY) as process:
        assert hear(process, b"", idle=1.0, longest=60.0) == ("", b"done\n", b"")


def test_work_of_a_child_counts():
    with asked(f"import subprocess, sys; subprocess.run((sys.executable, '-c', {BUSY!r}))") as process:
        assert hear(process, b"", idle=1.0, longest=60.0) == ("", b"done\n", b"")


def test_what_does_nothing_is_given_up_and_ended():
    with asked(WAITS) as process:
        given_up, out, err = hear(process, b"", idle=0.5, longest=60.0)
        assert (given_up[:12], out, err) == ("no answer in", b"", b"")
    assert process.returncode == -9


def test_what_works_for_ever_is_given_up_too():
    with asked("while True: pass") as process:
        assert hear(process, b"", idle=0.5, longest=1.0)[0] == "no answer in 1 s"
    assert process.returncode == -9


def test_an_answer_and_a_tool_that_is_absent_are_told_apart():
    assert run(["sh", "-c", "cat; exit 3"], "words") == {"exit": 3, "out": "words", "err": ""}
    assert run(["no-such-tool"]) == {"exit": None, "out": "", "err": "not found: no-such-tool"}


def test_a_process_that_is_gone_used_nothing():
    with asked("") as process:
        pass
    assert ticks(process.pid) == 0
