"""What to say of a node's memory before a boot: enough of it, who would end our ranks, room for shared memory."""

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.model.events import Finding, Severity
from cluster.model.fit import Fit
from cluster.model.kit import PageCache
from cluster.model.memory import GIB, MemInfo, MemoryFacts, SharedMemory
from cluster.model.settings import Settings
from cluster.model.units import Bytes, format_bytes
from cluster.plan.exl3_checks import keeps_pages
from cluster.plan.memory import NodePlan, capacity, gib, held_by
from cluster.plan.pages import policy

SHM_NEEDED = GIB  # vLLM's message queues and NCCL's segments
FIRST_TO_GO = 1000  # oom_score_adj of a rank: the kernel ends it before a login or a desktop
DROP_PAGE_CACHE = "drop_page_cache"
DROP = "sudo sh -c 'sync; echo 1 > /proc/sys/vm/drop_caches'"


def judge(plan: NodePlan) -> Fit:
    """TIGHT: the prediction does not fit, but predictions are no measurements and nobody asked for a margin."""
    have = capacity(plan.facts.info)
    if plan.floor > plan.facts.info.total or (plan.margin is not None and plan.needed > plan.facts.info.total):
        return Fit.NEVER
    if plan.floor > have or (plan.margin is not None and plan.needed > have):
        return Fit.SHORT
    return Fit.TIGHT if max(plan.boot, plan.peak) > have else Fit.FITS


def check_memory(settings: Settings, plan: NodePlan) -> tuple[Finding, ...]:
    """All there is to say of one node; every finding says what was seen."""
    found = [_margin(settings, plan), _free(settings, plan), *_killers(plan.facts), *_shm(plan.facts)]
    if plan.problems:
        some = "one file" if len(plan.problems) == 1 else f"{len(plan.problems)} files"
        told = f"{some} of the model cannot be counted: {plan.problems[0]}"
        fix = f"look at {settings.serve.model}; download those files again"
        found.append(Finding("MEM.WEIGHTS", Severity.WARNING, plan.facts.node, told, "whole files", fix))
    return tuple(found)


def _margin(settings: Settings, plan: NodePlan) -> Finding:
    observed, fix = describe(plan), remedy(settings, plan)
    severity = {Fit.FITS: Severity.OK, Fit.TIGHT: Severity.WARNING}.get(judge(plan), Severity.REFUSAL)
    if severity is Severity.OK:
        return Finding("MEM.BOOT_MARGIN", severity, plan.facts.node, observed)
    expected = f"{gib(max(plan.needed, plan.boot))} GiB available"
    return Finding("MEM.BOOT_MARGIN", severity, plan.facts.node, observed, expected, fix)


def describe(plan: NodePlan) -> str:
    """`96.2 GiB available, 111.5 GiB needed (99.5 weights + 12.0 margin); held by jupyter (3.1 GiB)`."""
    if plan.margin is not None:
        how = f"{gib(plan.weights)} weights + {gib(plan.margin)} margin"
    elif plan.measured:
        how = f"as boot {plan.measured.boot} took"
    else:
        how = f"predicted, {gib(plan.weights)} of it weights"
    text = f"{gib(capacity(plan.facts.info))} GiB available, {gib(plan.needed)} GiB needed ({how})"
    held = held_by(plan.facts) if judge(plan) is not Fit.FITS else ""
    return f"{text}; held by {held}" if held else text


def remedy(settings: Settings, plan: NodePlan) -> str:
    if judge(plan) is Fit.NEVER:
        if keeps_pages(settings):
            return (
                f"{plan.facts.node} has {gib(plan.facts.info.total)} GiB in all: set EXL3_PROFILE=measured or aliased"
            )
        return f"{plan.facts.node} has {gib(plan.facts.info.total)} GiB in all: spread the model over more nodes"
    stop = "sparkctl stop" if any("vllm" in one.name.lower() for one in plan.facts.holders) else ""
    largest = next((one for one in plan.facts.holders if one.whole >= GIB // 4), None)
    end = f"end {largest.name} (pid {largest.pid}) on {plan.facts.node}" if largest else ""
    lower = "set DSV41_BOOT_MARGIN_GIB lower if you know why"
    if keeps_pages(settings):
        return ", or ".join(text for text in (end, "set EXL3_PROFILE=aliased, which copies nothing") if text)
    if plan.margin is None:
        lower = "set KV_CACHE_MEMORY_BYTES lower" if settings.serve.kv_cache_memory_bytes else "set GPU_MEM_UTIL lower"
    return ", or ".join(text for text in (stop or end, lower) if text)


@dataclass(frozen=True, slots=True)
class FreeVerdict:
    """What MemFree and MemAvailable together mean for a start."""

    free: Bytes
    available: Bytes
    severity: Severity
    action: str = ""


def judge_free(info: MemInfo, needed: Bytes, wanted_free: Bytes) -> FreeVerdict:
    """On a GB10 the driver takes from MemFree and reclaims no page cache: available memory may still not be free."""
    have = capacity(info)
    if needed > have:
        return FreeVerdict(info.free, have, Severity.REFUSAL)
    if max(needed, wanted_free) > info.free:
        return FreeVerdict(info.free, have, Severity.WARNING, DROP_PAGE_CACHE)
    return FreeVerdict(info.free, have, Severity.OK)


def wants_drop(settings: Settings, plan: NodePlan) -> bool:
    """Whether a start drops the model's files from this node's page cache: only where the settings say so."""
    wanted = Bytes(max((need.wanted_free for need in plan.needs), default=0))
    action = judge_free(plan.facts.info, plan.needed, wanted).action
    if keeps_pages(settings):
        return False
    return policy(settings) is PageCache.EVICT_CHECKPOINT and plan.facts.has_gpu and action == DROP_PAGE_CACHE


def _free(settings: Settings, plan: NodePlan) -> Finding:
    node, info = plan.facts.node, plan.facts.info
    if keeps_pages(settings):
        return Finding("MEM.FREE", Severity.OK, node, f"{gib(info.free)} GiB free; the page cache holds the weights")
    if not plan.facts.has_gpu:
        return Finding(
            "MEM.FREE", Severity.OK, node, f"{gib(info.free)} GiB free; without a GPU the page cache gives way"
        )
    wanted = Bytes(max((need.wanted_free for need in plan.needs), default=0))
    verdict = judge_free(info, plan.needed, wanted)
    observed = f"{gib(info.free)} GiB free, {gib(verdict.available)} GiB available"
    if settings.launch.command and wanted > verdict.available:  # an image for a GB10, which says so after minutes
        share = f"GPU_MEM_UTIL={settings.serve.gpu_memory_utilization} of {gib(info.total)} GiB"
        fix = f"end what takes memory on {node}: {share} must be free when the server starts"
        return Finding("MEM.FREE", Severity.REFUSAL, node, observed, f"{gib(wanted)} GiB available", fix)
    if verdict.severity is not Severity.WARNING:  # what is not even available is told by MEM.BOOT_MARGIN
        return Finding("MEM.FREE", Severity.OK, node, observed)
    told = f"{observed}: the page cache holds {gib(info.cached)} GiB, and the GPU's driver does not reclaim it"
    expected = f"{gib(max(plan.needed, wanted))} GiB free"
    if wants_drop(settings, plan):
        fix = "start drops the model's own files from the page cache"
        return Finding("MEM.FREE", Severity.NOTE, node, told, expected, fix)
    fix = f"set DSV41_DROP_PAGE_CACHE=1, and start drops the model's files; or {DROP}   (on {node})"
    return Finding("MEM.FREE", Severity.WARNING, node, told, expected, fix)


def judge_killers(score: int | None, killers: Mapping[str, str], memory_limit: int | None) -> dict[str, Severity]:
    """A rank must be the first to go when memory runs out; services with a floor of their own end it too early;
    a container's memory limit does not count what CUDA takes.
    """
    found = {}
    if score is not None:
        found["oom_score_adj"] = Severity.OK if score == FIRST_TO_GO else Severity.REFUSAL
    found |= {name: Severity.WARNING for name, state in killers.items() if state == "active"}
    if memory_limit:
        found["memory_limit"] = Severity.WARNING
    return found


def _killers(facts: MemoryFacts) -> tuple[Finding, ...]:
    """Our launcher gives ranks their score itself; what is left to look at are the services."""
    if not facts.killers:
        return (Finding("MEM.KILLERS", Severity.NOT_CHECKED, facts.node, "systemd does not answer here"),)
    active = judge_killers(None, dict(facts.killers), None)
    if not active:
        return (Finding("MEM.KILLERS", Severity.OK, facts.node, "no service ends processes for memory"),)
    names = " ".join(active)
    told = f"{' and '.join(active)} runs: a healthy server leaves 3 to 4 % available, which it takes for an emergency"
    fix = f"sudo systemctl disable --now {names}   (on {facts.node})"
    return (Finding("MEM.KILLERS", Severity.WARNING, facts.node, told, "the kernel alone decides", fix),)


def judge_shm(private: bool, container_size: Bytes, host: SharedMemory | None) -> Severity:
    """A container with its own IPC has what it was given; else it is the host's /dev/shm that counts."""
    free = container_size if private else host.free if host else Bytes(0)
    return Severity.OK if free >= SHM_NEEDED else Severity.REFUSAL


def _shm(facts: MemoryFacts) -> tuple[Finding, ...]:
    if facts.shm is None:
        return (Finding("MEM.SHM", Severity.NOT_CHECKED, facts.node, "/dev/shm cannot be asked"),)
    observed = f"/dev/shm has {format_bytes(facts.shm.free)} free of {format_bytes(facts.shm.size)}"
    if judge_shm(False, Bytes(0), facts.shm) is Severity.OK:
        return (Finding("MEM.SHM", Severity.OK, facts.node, observed),)
    fix = f"ls -lS /dev/shm (on {facts.node}) and remove what a dead process left; or remount it larger"
    severity = Severity.REFUSAL if facts.has_gpu else Severity.WARNING  # a tiny model on a CPU needs less
    return (Finding("MEM.SHM", severity, facts.node, observed, f"{gib(SHM_NEEDED)} GiB free", fix),)
