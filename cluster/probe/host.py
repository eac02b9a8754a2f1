"""How a node is set up, read in one command, and what its GPU says."""

import re
from collections.abc import Mapping, Sequence

from cluster.errors import Unreadable
from cluster.model.host import NO_HOST, Cache, Gpu, Host, Owner
from cluster.model.units import Bytes
from cluster.probe.base import Ask, Probe

# Every line is KEY TAB VALUE. What is absent has no line; nothing here needs root, and nothing waits.
_SCRIPT = r"""
say() { [ -n "$2" ] && printf '%s\t%s\n' "$1" "$2"; }
each() { while IFS= read -r line; do say "$1" "$line"; done; }
file() { [ -r "$2" ] && while IFS= read -r line || [ -n "$line" ]; do say "$1" "$line"; done <"$2"; }
me=$(id -un); say user "$me"; say uid "$(id -u)"
file kernel /proc/sys/kernel/osrelease; file cmdline /proc/cmdline
say min_free "$(cat /proc/sys/vm/min_free_kbytes)"  # a shell reads it byte by byte, and only the first byte is given
say watermark "$(cat /proc/sys/vm/watermark_scale_factor)"
printf 'memlock\t'; ulimit -l
while IFS= read -r line; do
  case $line in CmaTotal:*|CmaFree:*|SwapTotal:*|SwapFree:*) say meminfo "$line";; esac
done </proc/meminfo
[ -d /var/lib/systemd ] && { [ -e "/var/lib/systemd/linger/$me" ] && say linger yes || say linger no; }
if [ -d /run/systemd/system ]; then
  set -- firewalld systemd-networkd NetworkManager networking systemd-logind
  systemctl is-active "$@" 2>/dev/null | while read -r state; do
    [ "$state" = active ] && say service "$1"; shift
  done
  cat /usr/lib/systemd/logind.conf /etc/systemd/logind.conf /usr/lib/systemd/logind.conf.d/*.conf \
    /etc/systemd/logind.conf.d/*.conf 2>/dev/null | grep -i '^RemoveIPC=' | each remove_ipc
fi
for l in /run/systemd/netif/links/*; do
  [ -r "$l" ] && f=$(sed -n 's/^NETWORK_FILE=//p' "$l") && [ -n "$f" ] || continue
  for n in /sys/class/net/*; do
    read -r index <"$n/ifindex" && [ "$index" = "${l##*/}" ] && say owner "${n##*/} networkd $f"
  done
done
if [ -d /run/NetworkManager ]; then
  nmcli -t -f DEVICE,STATE,CONNECTION device 2>/dev/null | each nmcli
  nmcli -t -f AUTOCONNECT,FILENAME,NAME connection show --active 2>/dev/null | each connection
fi
for f in /etc/network/interfaces /etc/network/interfaces.d/*; do
  [ -r "$f" ] && grep -E '^[[:space:]]*iface ' "$f" | each ifupdown
done
[ -r /etc/ufw/ufw.conf ] && grep '^ENABLED=' /etc/ufw/ufw.conf | each ufw
for f in /etc/ssh/ssh_host_*_key.pub; do file host_key "$f"; done
file driver /sys/module/nvidia/version
for l in /usr/lib/*/libcuda.so.1; do [ -e "$l" ] && say driver_since "$(stat -Lc %Z "$l")"; done
for f in /etc/cdi/*nvidia*.y*ml /var/run/cdi/*nvidia*.y*ml; do
  [ -r "$f" ] && say cdi "$f $(grep -o -m1 'libcuda\.so\.[0-9][0-9.]*[0-9]' "$f" | sed 's/.*\.so\.//')"
done
for d in ~/.cache/vllm ~/.triton/cache ~/.cache/flashinfer ~/.cache/torch; do
  [ -d "$d" ] && say cache "$d $(stat -f -c %T "$d") $(find "$d" -mindepth 1 -maxdepth 1 -printf '%T@\n' 2>/dev/null \
    | sort -n | head -1 | cut -d. -f1)"
done
file product /sys/class/dmi/id/product_name; file firmware /sys/class/dmi/id/bios_version
file firmware /sys/class/dmi/id/bios_date
for f in /etc/nccl.conf ~/.nccl.conf; do [ -r "$f" ] && grep -H '^[^#]' "$f" | each nccl; done
exit 0
"""

_Seen = Mapping[str, Sequence[str]]


def parse_host(text: str) -> Host:
    seen: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, separator, value = line.partition("\t")
        if not separator:
            raise Unreadable("cannot read a line of the node's set-up", evidence=[line])
        seen.setdefault(key, []).append(value.strip())
    memory = dict(re.findall(r"(\w+):\s+(\d+) kB", "\n".join(seen.get("meminfo", ()))))
    return Host(
        kernel=_one(seen, "kernel"),
        command_line=_one(seen, "cmdline"),
        cma_total=_kib(memory.get("CmaTotal")),
        cma_free=_kib(memory.get("CmaFree")),
        swap_total=_kib(memory.get("SwapTotal")),
        swap_free=_kib(memory.get("SwapFree")),
        min_free=_kib(_one(seen, "min_free")) if _one(seen, "min_free") else None,
        watermark_scale=_number(_one(seen, "watermark")),
        memlock=_one(seen, "memlock"),
        uid=_number(_one(seen, "uid")),
        user=_one(seen, "user"),
        removes_ipc=_removes_ipc(seen),
        lingers={"yes": True, "no": False}.get(_one(seen, "linger")),
        services=tuple(seen.get("service", ())),
        firewall_on=_firewall(seen),
        managers=_managers(seen),
        owners=_owners(seen),
        host_keys=tuple(" ".join(one.split()[:2]) for one in seen.get("host_key", ())),
        driver=_one(seen, "driver"),
        driver_since=_number(_one(seen, "driver_since")),
        devices=tuple((file, version) for file, _, version in (one.partition(" ") for one in seen.get("cdi", ()))),
        caches=tuple(_cache(one) for one in seen.get("cache", ())),
        product=_one(seen, "product"),
        firmware=" ".join(seen.get("firmware", ())),
        nccl_files=tuple((file, line) for file, _, line in (one.partition(":") for one in seen.get("nccl", ()))),
    )


def _removes_ipc(seen: _Seen) -> bool | None:
    """The last line wins, and without one it is on; without logind nothing is removed."""
    if "systemd-logind" not in seen.get("service", ()):
        return None
    last = seen.get("remove_ipc", ("RemoveIPC=yes",))[-1]
    return last.partition("=")[2].strip().lower() in ("yes", "true", "1", "on")


def _firewall(seen: _Seen) -> bool | None:
    if "firewalld" in seen.get("service", ()):
        return True
    return any(one.lower() == "enabled=yes" for one in seen["ufw"]) if "ufw" in seen else None


def _managers(seen: _Seen) -> tuple[str, ...]:
    names = {"systemd-networkd": "networkd", "NetworkManager": "NetworkManager", "networking": "ifupdown"}
    return tuple(sorted(names[one] for one in seen.get("service", ()) if one in names))


def _owners(seen: _Seen) -> tuple[Owner, ...]:
    owners = [Owner(*one.split(" ", 2)) for one in seen.get("owner", ())]
    for one in seen.get("nmcli", ()):
        device, state, connection = [*one.split(":", 2), "", ""][:3]
        if state.startswith("connected") and "externally" not in state and connection:
            owners.append(Owner(device, "NetworkManager", connection, _lost(seen, connection)))
    owners += [Owner(one.split()[1], "ifupdown") for one in seen.get("ifupdown", ()) if len(one.split()) > 1]
    return tuple(owners)


def _lost(seen: _Seen, connection: str) -> str:
    """Why a connection of NetworkManager is not there after a reboot; netplan writes its own anew at every boot."""
    rows = (one.split(":", 2) for one in seen.get("connection", ()) if one.count(":") > 1)
    for comes, file, name in rows:
        if name == connection and comes == "no":
            return "it does not connect by itself (autoconnect is off)"
        if name == connection and file.startswith("/run/") and "/netplan-" not in file:
            return f"it lies in {file}, which a reboot removes"
    return ""


def _cache(text: str) -> Cache:
    path, filesystem, oldest = [*text.split(" "), "", ""][:3]
    return Cache(path, filesystem, _number(oldest))


def _one(seen: _Seen, key: str) -> str:
    return next(iter(seen.get(key, ())), "")


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _kib(text: str | None) -> Bytes:
    return Bytes(int(text) * 1024) if text and text.isdigit() else Bytes(0)


# Bits of clocks_event_reasons.active that mean something is wrong (nvml.h); 1 is idle, 2 a clock that was set.
_REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
GPU_FIELDS = "name,driver_version,pstate,power.draw,clocks_event_reasons.active"


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """One line per GPU; `[N/A]`, `[Not Supported]` and the like are unknown. Any other words mean that it failed."""
    rows = [[word.strip() for word in line.split(",")] for line in text.splitlines() if line.count(",") >= 4]
    return tuple(_gpu(row) for row in rows)


def _gpu(row: Sequence[str]) -> Gpu:
    name, driver, state, watts, reasons = row[:5]
    bits = int(reasons, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", reasons) else 0
    return Gpu(
        name,
        driver,
        state,
        float(watts) if re.fullmatch(r"[\d.]+", watts) else None,
        tuple(text for bit, text in _REASONS.items() if bits & bit),
    )


HOST: Probe[Host] = Probe("the node's set-up", Ask(("sh", "-c", _SCRIPT)), parse_host, NO_HOST)
GPUS: Probe[tuple[Gpu, ...]] = Probe(
    "GPUs", Ask(("nvidia-smi", f"--query-gpu={GPU_FIELDS}", "--format=csv,noheader,nounits")), parse_gpus, ()
)
