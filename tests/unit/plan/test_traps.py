"""Known traps are seen where they are, not where they are not, and not judged where nothing was seen."""

from dataclasses import replace

import pytest

from cluster.model.events import Severity
from cluster.model.facts import Memory
from cluster.model.host import Cache, Gpu, Host
from cluster.model.settings import Launch, RuntimeKind, Serve
from cluster.model.tuning import Tuning
from cluster.model.units import Bytes
from cluster.plan.contracts import contract, contracts, is_asked, unknown
from cluster.plan.traps import TRAPS, check_traps
from tests.build import GIB, facts, pair
from tests.fabric import HEAD, fabric

HEALTHY = Host(
    kernel="6.17.0-1032-nvidia",
    memlock="unlimited",
    uid=1000,
    user="op",
    removes_ipc=True,
    lingers=True,
    firewall_on=False,
    min_free=Bytes(GIB),
    swap_total=Bytes(16 * GIB),
    swap_free=Bytes(16 * GIB),
)
GPU = Gpu("NVIDIA GB10", "580.95.05", "P8", 4.0)


def judged(settings=None, rdma=True, gpus=(GPU,), **changes):
    settings = settings or pair()
    seen = replace(facts("spark-a", "10.40.0.1@enp1s0f1np1"), host=replace(HEALTHY, **changes), gpus=gpus)
    seen = replace(seen, fabric=fabric(HEAD)) if rdma else seen
    return check_traps(settings, settings.nodes[0], seen)


def told(findings) -> list[tuple[str, str]]:
    return [(one.id, one.observed) for one in findings if one.severity not in (Severity.OK, Severity.NOT_CHECKED)]


def test_a_healthy_node_has_none():
    assert told(judged()) == []
    assert {one.severity for one in judged()} == {Severity.OK}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kernel": "7.0.0-1019-nvidia"}, ("HOST.KHO", "kernel 7.0.0-1019-nvidia without kho=off")),
        ({"lingers": False}, ("HOST.REMOVE_IPC", "RemoveIPC is on and op does not linger")),
        ({"memlock": "8192"}, ("HOST.MEMLOCK", "ulimit -l is 8192 KiB")),
        ({"min_free": Bytes(69206016)}, ("HOST.MIN_FREE", "vm.min_free_kbytes is 67584 (66.0 MiB)")),
        ({"swap_free": Bytes(9 * GIB)}, ("HOST.SWAP", "7.0 GiB of swap in use")),
        ({"swap_total": Bytes(0), "swap_free": Bytes(0)}, ("HOST.SWAP", "no swap")),
        ({"firewall_on": True}, ("HOST.FIREWALL", "a firewall is on")),
        ({"caches": (Cache("/c", "nfs"),)}, ("HOST.JIT_NFS", "/c is on nfs")),
        (
            {"caches": (Cache("/c", "ext4", 5),), "driver_since": 9, "driver": "580"},
            ("HOST.JIT_STALE", "/c has entries older than driver 580"),
        ),
        (
            {"nccl_files": (("/etc/nccl.conf", "NCCL_IB_GID_INDEX=3"),)},
            ("HOST.NCCL_CONF", "/etc/nccl.conf sets NCCL_IB_GID_INDEX"),
        ),
    ],
)
def test_each_trap_is_seen_by_its_own_mark(changes, expected):
    assert told(judged(**changes)) == [expected]


def test_a_proved_trap_is_refused():
    (found,) = [one for one in judged(kernel="7.0.0-31", cma_free=Bytes(963178496)) if one.id == "HOST.KHO"]
    assert (found.severity, found.observed) == (
        Severity.REFUSAL,
        "kernel 7.0.0-31 keeps memory for kexec handover: CmaFree 918.6 MiB, CmaTotal 0 B",
    )


@pytest.mark.parametrize("line", ["quiet kho=off", "kho=0"])
def test_a_trap_that_was_defused_is_none(line):
    assert told(judged(kernel="7.0.0-31", command_line=line, cma_free=Bytes(963178496))) == []
    assert told(judged(kernel="7.0.0-31", rdma=False)) == []


def test_a_gpu_that_is_held_down_is_told_with_the_reason():
    held = replace(GPU, limits=("power brake",))
    assert told(judged(gpus=(held,))) == [("HOST.GPU_CLOCK", "NVIDIA GB10 (P8): power brake")]
    assert [one.severity for one in judged(gpus=()) if one.id == "HOST.GPU_CLOCK"] == [Severity.NOT_CHECKED]


def test_figures_made_for_a_spark_do_not_judge_a_small_machine():
    settings = pair()
    small = replace(
        facts("spark-a"),
        host=replace(HEALTHY, min_free=Bytes(1), swap_total=Bytes(0), swap_free=Bytes(0)),
        memory=Memory(Bytes(24 * GIB), Bytes(GIB), Bytes(GIB)),
        gpus=(GPU,),
    )
    assert told(check_traps(settings, settings.nodes[0], small)) == []


def test_a_node_whose_set_up_was_not_read_is_not_judged():
    settings = pair()
    found = check_traps(settings, settings.nodes[0], facts("spark-a"))
    assert {one.severity for one in found if one.id.startswith("HOST.")} == {Severity.NOT_CHECKED}


def test_settings_can_be_traps_too():
    chunk = pair(serve=Serve(model="/m", language_model_only=False, max_num_batched_tokens=1100))
    assert ("SERVE.VISION_CHUNK", "MAX_NUM_BATCHED_TOKENS=1100 with vision on") in told(judged(chunk))
    streams = pair(serve=Serve(model="/m", quantization="exl3"))
    assert ("SERVE.EXL3_STREAMS", "EXL3 with more than one stream") in told(judged(streams))
    one = replace(streams, tuning=Tuning(no_shared_experts_stream=True, serial_streams=True))
    assert told(judged(one)) == []


def severity_of(check, settings):
    return next(one.severity for one in judged(settings) if one.id == check)


@pytest.mark.parametrize(
    ("tokens", "severity"), [(1024, Severity.REFUSAL), (1025, Severity.WARNING), (1536, Severity.OK)]
)
def test_an_image_that_cannot_fit_a_chunk_is_refused(tokens, severity):
    settings = pair(serve=Serve(model="/m", language_model_only=False, max_num_batched_tokens=tokens))
    assert severity_of("SERVE.VISION_CHUNK", settings) is severity


@pytest.mark.parametrize(("seqs", "severity"), [(None, Severity.REFUSAL), (2, Severity.REFUSAL), (1, Severity.WARNING)])
def test_two_streams_on_one_lock_buffer_are_refused_where_two_requests_may_meet(seqs, severity):
    settings = pair(serve=Serve(model="/m", quantization="exl3", max_num_seqs=seqs))
    assert severity_of("SERVE.EXL3_STREAMS", settings) is severity


def boxed(**host):
    return told(judged(pair(launch=Launch(runtime=RuntimeKind.CONTAINER)), driver="580.95.05", **host))


def test_device_files_of_another_driver_are_told_to_who_runs_containers():
    stale, fresh = (("/etc/cdi/nvidia.yaml", version) for version in ("580.82.09", "580.95.05"))
    assert boxed(devices=(fresh,)) == []
    assert boxed(devices=(stale,)) == [
        ("HOST.CDI", "/etc/cdi/nvidia.yaml is for driver 580.82.09, 580.95.05 is loaded")
    ]
    assert told(judged(devices=(stale,), driver="580.95.05")) == []


def test_containers_without_device_files_lose_the_gpu_at_a_reload():
    assert boxed() == [("HOST.DEVICE_CGROUP", "no container device files (CDI) here")]


# Everything that boots were reported to die of, by the check that sees it.
REPORTED = {
    "kernel 7.0 keeps memory for kexec handover, ib_reg_mr ENOMEM": "HOST.KHO",
    "firmware that wires the second half with 2 PCIe lanes": "FABRIC.PCIE",
    "RemoveIPC without linger": "HOST.REMOVE_IPC",
    "earlyoom": "MEM.KILLERS",
    "ufw on the rails": "HOST.FIREWALL",
    "memlock": "HOST.MEMLOCK",
    "min_free_kbytes": "HOST.MIN_FREE",
    "swap": "HOST.SWAP",
    "stale caches of compiled kernels": "HOST.JIT_STALE",
    "caches of compiled kernels on NFS": "HOST.JIT_NFS",
    "a GPU held down by a power cap": "HOST.GPU_CLOCK",
    "one machine id on two nodes": "HOST.MACHINE_ID",
    "daemon-reload and device cgroups": "HOST.DEVICE_CGROUP",
    "vision with a chunk below 1025": "SERVE.VISION_CHUNK",
    "two EXL3 streams on one lock buffer": "SERVE.EXL3_STREAMS",
}


@pytest.mark.parametrize("trap", REPORTED)
def test_what_was_reported_has_a_rule_that_is_complete(trap):
    rule = contract(REPORTED[trap])
    assert rule is not None
    assert all((rule.looks_at, rule.why, rule.fix, rule.source, rule.date, rule.unless)), rule


def test_a_fix_names_what_is_on_the_node():
    found = {one.id: one.fix for one in judged(lingers=False, firewall_on=True)}
    assert found["HOST.REMOVE_IPC"] == "loginctl enable-linger op"
    assert found["HOST.FIREWALL"].startswith("sudo ufw allow in on enp1s0f1np1 ")


def test_every_trap_is_dated_sourced_and_explained():
    for trap in TRAPS:
        assert trap.seen, trap.id
        assert trap.does, trap.id
        assert trap.fix, trap.id
        assert trap.source, trap.id
        assert trap.date.startswith("20"), trap.id
    assert len({one.id for one in contracts()}) == len(contracts())


def test_every_check_that_can_be_told_can_be_explained():
    known = {one.id for one in contracts()}
    assert {one.id for one in judged()} <= known
    assert contract("fabric.gid") in contracts()
    assert contract("NO.SUCH") is None


@pytest.mark.parametrize(
    ("check", "only", "asked"),
    [("FABRIC.GID", (), True), ("FABRIC.GID", ("fabric",), True), ("FABRIC.GID", ("FABRIC.MTU",), False)],
)
def test_a_group_or_one_check_can_be_asked_for(check, only, asked):
    assert is_asked(check, only) is asked


def test_a_misspelt_check_is_refused_with_the_likely_one():
    assert unknown(("FABRIC.GIDS",)) == "FABRIC.GIDS is no check; did you mean FABRIC.GID?"
    assert unknown(("host", "FABRIC.GID")) == ""
