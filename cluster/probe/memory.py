"""A node's memory as its tools tell it: /proc/meminfo, nvidia-smi where it has figures, and who holds how much."""

import json
import re
from typing import Any

from cluster.errors import Unreadable
from cluster.model.memory import Holder, MemInfo, MemoryFacts, SharedMemory
from cluster.model.units import Bytes

MIB = 2**20
MOST = 5
UNKNOWN = ("n/a", "not supported", "not found", "unknown error", "insufficient permissions", "")


def parse_meminfo(text: str) -> MemInfo:
    """Its kB are KiB; the three counts of huge pages have no unit."""
    seen = {name: int(number) for name, number in re.findall(r"^([\w()]+):\s+(\d+)", text, re.MULTILINE)}

    def kib(name: str) -> Bytes:
        return Bytes(seen.get(name, 0) * 1024)

    if "MemTotal" not in seen or "MemAvailable" not in seen or "MemFree" not in seen:
        raise Unreadable("/proc/meminfo does not say how much memory there is", evidence=text.splitlines()[:3])
    return MemInfo(
        total=kib("MemTotal"),
        free=kib("MemFree"),
        available=kib("MemAvailable"),
        cached=kib("Cached"),
        anonymous=kib("AnonPages"),
        shared=kib("Shmem"),
        unreclaimable=kib("SUnreclaim"),
        swap_total=kib("SwapTotal"),
        swap_free=kib("SwapFree"),
        huge_total=seen.get("HugePages_Total", 0),
        huge_free=seen.get("HugePages_Free", 0),
        huge_size=kib("Hugepagesize"),
        contiguous_total=kib("CmaTotal"),
        contiguous_free=kib("CmaFree"),
    )


def parse_amount(cell: str) -> Bytes | None:
    """MiB as nvidia-smi writes them; a GB10 says N/A in three spellings, and that is unknown, not 0."""
    plain = cell.strip().strip("[]").lower()
    if plain in UNKNOWN:
        return None
    found = re.fullmatch(r"(\d+)(?:\s*mib)?", plain)
    if not found:
        raise Unreadable("nvidia-smi told an amount of memory that is none", evidence=[cell])
    return Bytes(int(found[1]) * MIB)


def parse_gpu_memory(text: str) -> tuple[Bytes | None, Bytes | None]:
    """Total and used of the first GPU, from `--query-gpu=name,memory.total,memory.used`."""
    cells = text.strip().splitlines()[0].split(",") if text.strip() else []
    if len(cells) < 3:
        return None, None
    return parse_amount(cells[-2]), parse_amount(cells[-1])


def parse_gpu_processes(text: str) -> dict[int, Bytes]:
    """From `--query-compute-apps=pid,[process_name,]used_memory`; lines without a figure are left out."""
    found = {}
    for line in text.splitlines():
        cells = line.split(",")
        amount = parse_amount(cells[-1]) if len(cells) >= 2 else None
        if amount is not None and cells[0].strip().isdigit():
            found[int(cells[0])] = amount
    return found


def parse_gpu_xml(text: str) -> dict[int, Bytes]:
    """From `-q -x`. A process may stand there once as C and once as G with the same figure: it counts once."""
    entries = re.findall(r"<process_info>.*?<pid>(\d+)</pid>.*?<used_memory>([^<]*)</used_memory>", text, re.DOTALL)
    amounts = ((int(pid), parse_amount(cell)) for pid, cell in entries)
    return {pid: amount for pid, amount in amounts if amount is not None}


def parse_facts(node: str, text: str) -> MemoryFacts:
    """The answer of the program `agent/memory.py`."""
    try:
        seen: dict[str, Any] = json.loads(text)
        gpu = parse_gpu_processes(seen["gpu"] or "")
        shm = seen["shm"]
        holders = [_holder(one, gpu) for one in seen["holders"]]
        named = {pid for one in seen["holders"] for pid in one["pids"]}
        holders += [Holder(f"pid {pid}", Bytes(0), pid, amount) for pid, amount in gpu.items() if pid not in named]
        return MemoryFacts(
            node=node,
            info=_own_memory(seen["gpus"] or "") or parse_meminfo(seen["meminfo"]),
            holders=tuple(sorted(holders, key=lambda one: -one.whole)[:MOST]),
            has_gpu=bool(seen["has_gpu"]),
            shm=SharedMemory(Bytes(shm["size"]), Bytes(shm["free"])) if shm else None,
            killers=tuple(sorted(seen["killers"].items())),
            machine=seen["machine"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(
            f"cannot read what it says of its memory: {error}", where=node, evidence=[text[:200]]
        ) from error


def _own_memory(text: str) -> MemInfo | None:
    """A card's own memory is what weights go into; a GB10 has none and says N/A."""
    total, used = parse_gpu_memory(text)
    if total is None or used is None:
        return None
    return MemInfo(total, Bytes(total - used), Bytes(total - used))


def _holder(seen: dict[str, Any], gpu: dict[int, Bytes]) -> Holder:
    on_gpu = sum(gpu.get(pid, 0) for pid in seen["pids"])
    return Holder(str(seen["name"]), Bytes(int(seen["bytes"])), int(seen["pid"]), Bytes(on_gpu))
