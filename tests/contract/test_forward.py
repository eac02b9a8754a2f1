"""A socket on a node, reached through a socket here, over a real sshd."""

import socket
import threading

import pytest

from cluster.node.open import open_node
from tests.contract.sshd import Sshd

pytestmark = pytest.mark.contract


@pytest.fixture
def echo(tmp_path_factory):
    """A Unix socket that says back what it hears."""
    path = tmp_path_factory.mktemp("echo") / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)


def serve(listener):
    while True:
        try:
            there, _ = listener.accept()
        except OSError:
            return
        with there:
            there.sendall(there.recv(100))


def asked(way):
    with socket.socket(socket.AF_UNIX) as here:
        here.settimeout(30)
        here.connect(way)
        here.sendall(b"hello")
        return here.recv(100)


def test_a_way_that_is_taken_while_its_connection_dies_is_made_anew(echo, tmp_path):
    """Over and over: how long a broken connection counts as open is chance."""
    with Sshd(tmp_path / "sshd") as server:
        node = open_node("there", "node", ssh_config=server.ssh_config)
        way = node.socket(str(echo))
        heard = []
        for _ in range(5):
            heard.append(asked(way))
            server.kill_sessions()
        node.close()
    assert heard == [b"hello"] * 5


def test_a_way_to_a_socket_that_nobody_listens_at_ends_the_connection(tmp_path):
    with Sshd(tmp_path / "sshd") as server:
        node = open_node("there", "node", ssh_config=server.ssh_config)
        with socket.socket(socket.AF_UNIX) as here:
            here.settimeout(30)
            here.connect(node.socket(str(tmp_path / "nobody")))
            assert here.recv(100) == b""
        node.close()
