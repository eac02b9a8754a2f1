"""Which lines of known_hosts speak of a host, and the verdict on its key."""

import base64
import hashlib
import hmac
from pathlib import Path

import pytest

from cluster.node import known_hosts
from cluster.node.known_hosts import Changed, Known, KnownKey, Revoked, Unknown, judge, parse

FILE = Path("/home/op/.ssh/known_hosts")
ED = "AAAAC3NzaC1lZDI1NTE5AAAAIHYfrBC5tuAnSGY2dNOFUwZdYzTuj0LDGKVQ0exsK3j5"
SALT = "F1E1KeoE/eEWhi10WpGv4OdiO6Y="


def hashed(name: str) -> str:
    digest = hmac.new(base64.b64decode(SALT), name.encode(), hashlib.sha1).digest()
    return f"|1|{SALT}|{base64.b64encode(digest).decode()}"


def lines(text: str) -> tuple[KnownKey, ...]:
    return parse(text, FILE)


def test_same_key_is_known() -> None:
    assert (
        judge(lines("spark-b,192.168.1.2 ssh-ed25519 KEY comment here"), "spark-b", 22, "ssh-ed25519", "KEY") == Known()
    )


def test_host_that_no_line_speaks_of_is_unknown() -> None:
    assert (
        judge(lines("# spark-b ssh-ed25519 KEY\nspark-a ssh-ed25519 KEY"), "spark-b", 22, "ssh-ed25519", "KEY")
        == Unknown()
    )


def test_ssh_02_other_key_is_changed_and_names_its_line() -> None:
    text = "\n" * 6 + "spark-b ssh-ed25519 OLD"
    verdict = judge(lines(text), "spark-b", 22, "ssh-ed25519", "NEW")
    assert verdict == Changed((KnownKey(FILE, 7, "", ("spark-b",), "ssh-ed25519", "OLD"),))


def test_key_of_another_type_is_changed_too() -> None:
    assert isinstance(judge(lines("spark-b ssh-rsa OLD"), "spark-b", 22, "ssh-ed25519", "NEW"), Changed)


def test_other_port_is_another_host_unless_the_key_is_the_same() -> None:
    known = lines("spark-b ssh-ed25519 KEY")
    assert judge(known, "spark-b", 2222, "ssh-ed25519", "KEY") == Known()
    assert judge(known, "spark-b", 2222, "ssh-ed25519", "OTHER") == Unknown()


def test_line_with_a_port_is_for_that_port() -> None:
    known = lines("[spark-b]:2222 ssh-ed25519 KEY")
    assert judge(known, "spark-b", 2222, "ssh-ed25519", "KEY") == Known()
    assert judge(known, "spark-b", 22, "ssh-ed25519", "KEY") == Unknown()


def test_revoked_key_is_refused_even_when_it_is_also_known() -> None:
    known = lines("spark-b ssh-ed25519 KEY\n@revoked * ssh-ed25519 KEY")
    assert judge(known, "spark-b", 22, "ssh-ed25519", "KEY") == Revoked(known[1])


def test_certificate_authority_is_no_host_key() -> None:
    assert judge(lines("@cert-authority * ssh-ed25519 KEY"), "spark-b", 22, "ssh-ed25519", "KEY") == Unknown()


@pytest.mark.parametrize(
    ("patterns", "name", "fits"),
    [
        ("spark-?", "spark-b", True),
        ("*.lan", "spark-b.lan", True),
        ("*,!spark-b", "spark-b", False),
        ("SPARK-B", "spark-b", True),
        ("[10.0.0.*]:2222", "[10.0.0.7]:2222", True),
        ("[abc]", "a", False),
        (hashed("spark-b"), "spark-b", True),
        (hashed("spark-b"), "spark-a", False),
        (hashed("[spark-b]:2222"), "[spark-b]:2222", True),
        ("|1|broken", "spark-b", False),
    ],
)
def test_patterns_fit_as_in_ssh(patterns: str, name: str, fits: bool) -> None:
    [line] = lines(f"{patterns} ssh-ed25519 KEY")
    assert line.speaks_of(name) is fits


def test_types_on_record_come_in_their_order() -> None:
    known = lines("b ssh-rsa A\nb ssh-ed25519 B\nc ecdsa-sha2-nistp256 C\nb ssh-rsa D")
    assert known_hosts.kinds_for(known, "b") == ("ssh-rsa", "ssh-ed25519")


def test_missing_files_hold_nothing(tmp_path: Path) -> None:
    assert known_hosts.load((tmp_path / "none", tmp_path / "none" / "below")) == ()


def test_new_file_and_folder_are_private(tmp_path: Path) -> None:
    file = tmp_path / "new" / "known_hosts"
    known_hosts.remember(file, "b", "ssh-ed25519", "KEY")
    modes = (file.parent.stat().st_mode & 0o777, file.stat().st_mode & 0o777)
    assert (file.read_text(), modes) == ("b ssh-ed25519 KEY\n", (0o700, 0o600))


def test_fingerprint_is_as_ssh_keygen_prints_it() -> None:
    assert known_hosts.fingerprint(ED) == "SHA256:WoRNohepBXNoqU0NvJPEOVM5M8xlft2FT6VDkq9C7F0"
