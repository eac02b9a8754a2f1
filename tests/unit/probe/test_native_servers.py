"""Native ExLlamaV3 servers among the processes of a node."""

from cluster.probe.base import Answer
from cluster.probe.native_servers import SERVERS, parse_servers

LINES = """\
    1 /sbin/init
  812 /opt/venv/bin/python3 -m spark_exl3 --model /srv/models/dsv41-flash-sage-exl3-1.59bpw-a64 --name dsv41-flash
  990 python3 -m uvicorn server.app:app --host 0.0.0.0 --port 5000
 1024 sh -c python3 -m spark_exl3 --model /m
 1100 vim exllamav3/notes.md
 1200 python3 /opt/exllamav3/examples/chat.py -m /m
 1300 python3 -m vllm serve --model /models/exllamav3
"""


def test_only_python_processes_that_say_so_are_servers():
    assert parse_servers(LINES) == (
        "812 /opt/venv/bin/python3 -m spark_exl3 --model /srv/models/dsv41-flash-sage-exl3-1.",
        "990 python3 -m uvicorn server.app:app --host 0.0.0.0 --port 5000",
        "1200 python3 /opt/exllamav3/examples/chat.py -m /m",
    )


def test_without_ps_nothing_is_known():
    assert SERVERS.read(Answer(None, err="No such file")) is None
