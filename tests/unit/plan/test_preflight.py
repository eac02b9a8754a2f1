"""What would make a boot fail is seen beforehand, with the reason and the fix."""

from dataclasses import replace

import pytest

from cluster.model.events import Finding, Severity
from cluster.model.facts import ModelSeen
from cluster.model.kit import Container
from cluster.model.settings import Launch, RuntimeKind, Serve
from cluster.model.units import Bytes
from cluster.plan.preflight import check_equal, check_key, check_node, check_ports, refusals
from tests.build import facts, identity, pair


@pytest.mark.parametrize(
    ("listening", "refused"),
    [
        ("", []),
        ("*:22 sshd", []),
        ("*:8888 nginx", ["API port 8888 is taken by nginx on all addresses"]),
        ("10.40.0.1:8888", ["API port 8888 is taken on 10.40.0.1"]),
        ("127.0.0.1:8888", []),  # another address: the API listens on the fabric only
        ("127.0.0.1:29521", ["rendezvous port 29521 is taken on 127.0.0.1"]),
    ],
)
def test_ports_are_read_from_the_socket_table(listening, refused):
    found = check_ports(pair(), facts("spark-a", listening=listening))
    assert [one.observed for one in refusals(found)] == refused


def test_a_sound_node_has_nothing_against_it():
    assert refusals(check_node(pair(), "spark-b", identity())) == ()


@pytest.mark.parametrize(
    ("changes", "check", "says"),
    [
        ({"has_server": False}, "SERVER.PRESENT", "no program /opt/vllm/bin/vllm"),
        ({"model": None}, "MODEL.PRESENT", "no config.json in /models/demo"),
        (
            {"model": ModelSeen(True, 4, Bytes(9), "", "contents", ("a: denied",))},
            "MODEL.PRESENT",
            "1 unreadable: a: denied",
        ),
        ({"state_free": Bytes(1000)}, "DISK.STATE", "1000 B free at /home/op"),
        ({"state_writable": False}, "DISK.STATE", "cannot write to /home/op"),
    ],
)
def test_what_a_node_lacks_is_refused_by_name(changes, check, says):
    (found,) = refusals(check_node(pair(), "spark-b", identity(**changes)))
    assert (found.id, found.node, found.observed) == (check, "spark-b", says)


def test_a_model_that_no_setting_names_is_asked_for():
    unnamed = replace(pair(), serve=replace(pair().serve, model=""))
    (found,) = refusals(check_node(unnamed, "spark-b", identity(model=None)))
    assert (found.observed, found.fix) == ("nothing says where the model is", "set MODEL_DIR")


def test_links_that_lead_where_a_container_does_not_see_are_refused():
    """HF-03: the host sees all files, the container says "No such file"."""
    linked = identity(model=ModelSeen(True, 4, Bytes(9), "", "contents", (), ("/home/b/models",)))
    boxed = replace(pair(), launch=Launch(runtime=RuntimeKind.CONTAINER))
    (found,) = refusals(check_node(boxed, "spark-b", linked))
    assert found.observed == "links lead to /home/b/models, which a container does not see"
    assert found.fix == "copy the files into the folder, or MOUNTS=/home/b/models:/home/b/models"
    mounted = replace(boxed, container=Container(mounts=("/home/b:/home/b",)))
    assert refusals(check_node(mounted, "spark-b", linked)) == ()
    assert refusals(check_node(pair(), "spark-b", linked)) == ()


def test_equal_ranks_are_said_to_be_equal_and_by_what():
    seen = {"spark-a": identity(argv_digest="x"), "spark-b": identity(argv_digest="x")}
    assert check_equal(pair(), seen) == (
        Finding("RANKS.VERSIONS", Severity.OK, "", "2 packages equal on all 2 ranks"),
        Finding("RANKS.MODEL", Severity.OK, "", "contents equal on all 2 ranks (d1d1d1d1d1d1)"),
        Finding("RANKS.ARGV", Severity.OK, "", "one command line on all 2 ranks, read back from each node"),
    )


def test_headers_are_never_called_contents():
    big = replace(identity(), model=ModelSeen(True, 40, Bytes(9), "d" * 64, "headers", ()))
    assert "not the contents" in check_equal(pair(), {"a": big, "b": big})[1].observed


def test_another_vllm_on_one_node_is_refused_naming_both():
    other = identity(packages=(("torch", "2.13.0"), ("vllm", "0.33.0")))
    (found,) = refusals(check_equal(pair(), {"spark-a": identity(), "spark-b": other}))
    assert (found.id, found.observed) == ("RANKS.VERSIONS", "vllm 0.32.0 on spark-a, 0.33.0 on spark-b")


def test_a_difference_in_a_bystander_package_only_warns():
    other = identity(packages=(("rich", "15"), ("torch", "2.13.0"), ("vllm", "0.32.0")))
    versions = check_equal(pair(), {"spark-a": identity(), "spark-b": other})[0]
    assert (versions.severity, versions.observed) == (Severity.WARNING, "rich absent on spark-a, 15 on spark-b")


def test_another_model_on_one_node_is_refused():
    other = replace(identity(), model=ModelSeen(True, 4, Bytes(9), "ee" * 32, "contents", ()))
    (found,) = refusals(check_equal(pair(), {"spark-a": identity(), "spark-b": other}))
    assert found.id == "RANKS.MODEL"


def test_another_command_line_on_one_node_is_refused():
    seen = {"spark-a": identity(argv_digest="x"), "spark-b": identity(argv_digest="y")}
    assert [one.id for one in refusals(check_equal(pair(), seen))] == ["RANKS.ARGV"]


def test_a_command_line_nobody_read_is_not_called_equal():
    assert check_equal(pair(), {"a": identity(), "b": identity()})[2].severity is Severity.NOT_CHECKED


@pytest.mark.parametrize(
    ("serve", "problem", "severity", "says"),
    [
        (Serve(host="loopback"), "", Severity.OK, "127.0.0.1 only"),
        (Serve(), "", Severity.NOTE, "without a key"),
        (Serve(api_key_file="/k"), "", Severity.NOTE, "/invocations"),
        (Serve(api_key_file="/k"), "can be read by others (mode 0644)", Severity.REFUSAL, "mode 0644"),
        (Serve(api_key_file="/k"), "is empty", Severity.REFUSAL, "is empty"),
    ],
)
def test_what_stays_open_is_said(serve, problem, severity, says):
    (found,) = check_key(pair(serve=serve), identity(key_problem=problem))
    assert found.severity is severity
    assert says in found.observed


def test_a_forced_refusal_no_longer_refuses():
    found = check_ports(pair(), facts("spark-a", listening="*:8888 nginx"))
    assert refusals(found, frozenset({"PORT.FREE"})) == ()


def test_a_rank_alone_needs_no_rendezvous_port():
    alone = pair(nodes=pair().nodes[:1])
    assert [one.observed for one in check_ports(alone, facts("spark-a", listening="*:29521 torch"))] == [
        "API port 8888 is free"
    ]


def test_the_program_of_another_server_is_looked_for():
    settings = pair(launch=replace(pair().launch, command=("{venv}/bin/serve",)))
    found = check_node(settings, "spark-a", identity(has_server=False))[0]
    assert (found.id, found.observed) == ("SERVER.PRESENT", "no program /opt/vllm/bin/serve")
