"""Known traps as a dated table: how each is seen, what it does, what to do, who reported it, when it is none."""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.model.events import Finding, Severity
from cluster.model.facts import NodeFacts
from cluster.model.host import NO_HOST
from cluster.model.settings import NodeSettings, Settings
from cluster.plan import trap_sights as see


@dataclass(frozen=True, slots=True)
class Trap:
    """One rule.

    seen     how it is seen
    does     what it does to a boot or to a server
    unless   when it does not apply
    source   who reported it, and `date` when it was last looked at
    look     the evidence on one node: a sentence when it is there, "" when it is not, None when it could not be seen
    proof    evidence that raises it to a refusal, where there is one
    """

    id: str
    severity: Severity
    seen: str
    does: str
    fix: str
    unless: str
    source: str
    date: str
    look: Callable[[see.Sight], str | None]
    proof: Callable[[see.Sight], bool] | None = None

    @property
    def can_refuse(self) -> bool:
        return self.proof is not None


NOTE, WARNING = Severity.NOTE, Severity.WARNING

TRAPS: tuple[Trap, ...] = (
    Trap(
        "HOST.KHO",
        WARNING,
        "kernel 7.x without kho=off on its command line; proved by CmaFree above CmaTotal in /proc/meminfo",
        "kexec handover keeps 9.3 GiB as contiguous memory that RDMA cannot pin: every boot of two ranks dies seconds "
        "after the rendezvous with ibv_reg_mr: Cannot allocate memory",
        "add kho=off to GRUB_CMDLINE_LINUX in /etc/default/grub, sudo update-grub, reboot (or boot kernel 6.17)",
        "no RDMA device, kernel before 7.0, or kho=off",
        "eugr/spark-vllm-docker 389 and 392; NVIDIA/NV-Kernels pull 591; NVIDIA/open-gpu-kernel-modules 1358",
        "2026-09-30",
        see.kexec_handover,
        see.kexec_handover_proved,
    ),
    Trap(
        "HOST.REMOVE_IPC",
        WARNING,
        "logind removes IPC objects (RemoveIPC, on by default), and the user does not linger",
        "when the user's last session closes, the semaphores of the worker are deleted and the head waits for ever",
        "loginctl enable-linger {user}",
        "a system user, RemoveIPC=no, lingering on, or no systemd-logind",
        "eugr/spark-vllm-docker 352; vllm-project/vllm 54259",
        "2026-09-30",
        see.removes_ipc,
    ),
    Trap(
        "HOST.MEMLOCK",
        WARNING,
        "ulimit -l is not unlimited in the session that starts the ranks",
        "RDMA pins its buffers: registering memory fails with ENOMEM",
        "echo '{user} - memlock unlimited' | sudo tee /etc/security/limits.d/90-memlock.conf   (then log in again)",
        "no RDMA device, or root",
        "NVIDIA/nccl documentation, troubleshooting: memory locked limit",
        "2026-09-30",
        see.memlock,
    ),
    Trap(
        "HOST.MIN_FREE",
        WARNING,
        "vm.min_free_kbytes is below 1 GiB on a machine with more than 100 GiB",
        "the GPU driver takes pages from what is free at once, and a burst of network or disk leaves it none: stalls, "
        "NV_ERR_NO_MEMORY",
        "sudo sysctl -w vm.min_free_kbytes=1048576",
        "a machine with less memory than a Spark",
        "Qwen3.8 dual-Spark kit's start-up warning; ring cluster's node settings",
        "2026-09-30",
        see.min_free,
    ),
    Trap(
        "HOST.SWAP",
        NOTE,
        "no swap on a machine with more than 100 GiB, or more than 1 GiB of it in use",
        "without swap a short peak ends in the kernel's killer; with much of it in use the server's own pages are out",
        "free it: sudo swapoff -a && sudo swapon -a   (before a boot); none: sudo fallocate -l 16G /swapfile",
        "a machine with less memory than a Spark",
        "two-Spark kit's notes on NV_ERR_NO_MEMORY",
        "2026-09-30",
        see.swap,
    ),
    Trap(
        "HOST.FIREWALL",
        NOTE,
        "ufw or firewalld is on",
        "ssh and ping work, but the rendezvous or an NFS mount over the fabric waits for minutes",
        "sudo ufw allow in on {interface}   (or: sudo firewall-cmd --zone=trusted --add-interface={interface})",
        "FABRIC.REACH reached every port",
        "eugr/spark-vllm-docker 335; NVIDIA/deepops 814",
        "2026-09-30",
        see.firewall,
    ),
    Trap(
        "HOST.JIT_NFS",
        WARNING,
        "a folder with compiled kernels is on a network file system",
        "two nodes write one cache: garbled text, or minutes of compiling in the middle of a request",
        "mv {path} {path}.nfs && mkdir -p /var/tmp/jit && ln -s /var/tmp/jit {path}   (any local disk)",
        "a cache that only this node uses",
        "tonyd2wild vision recipe 27; vllm-project/vllm 41871",
        "2026-09-30",
        see.jit_on_network,
    ),
    Trap(
        "HOST.JIT_STALE",
        NOTE,
        "a folder with compiled kernels has entries older than the GPU driver",
        "kernels of another driver or compiler are used: wrong results or a crash in the first request",
        "mv {path} {path}.old   (the next boot compiles anew, some minutes)",
        "a driver update that keeps the compiler",
        "vllm-project/vllm 41871",
        "2026-09-30",
        see.jit_stale,
    ),
    Trap(
        "HOST.GPU_CLOCK",
        WARNING,
        "nvidia-smi names a power cap, a brake or heat as the reason that holds the clock down",
        "the same model runs 1.5 to 3 times slower, with full utilisation and no error",
        "shut the node down and take its power plug out for a minute; a warm reboot does not clear it",
        "a cap that was set on purpose",
        "forum reports of the stuck low-power state; tonyd2wild DeepSeek V4.1 1",
        "2026-09-30",
        see.gpu_held_down,
    ),
    Trap(
        "HOST.CDI",
        WARNING,
        "the container device file was written for another driver version than the one that is loaded",
        "a container starts without its GPU, or fails to start with a missing library",
        "sudo nvidia-ctk cdi generate --output={file}",
        "the native runtime",
        "NVIDIA container toolkit documentation: regenerate after a driver update",
        "2026-09-30",
        see.stale_cdi,
    ),
    Trap(
        "HOST.NCCL_CONF",
        WARNING,
        "/etc/nccl.conf or ~/.nccl.conf sets NCCL variables on this node",
        "NCCL reads them where the environment says nothing: one rank runs with other values than the other",
        "move {file} away, or make it the same on all nodes",
        "the same lines on all nodes on purpose",
        "NCCL documentation, environment variables: nccl.conf",
        "2026-09-30",
        see.nccl_file,
    ),
    Trap(
        "HOST.DEVICE_CGROUP",
        NOTE,
        "the container runtime without device nodes of its own",
        "any `systemctl daemon-reload` on the node takes the GPU away from running containers: operation not permitted",
        "use CDI, or name the device nodes: --device /dev/nvidia0 and the others",
        "the native runtime; CDI; containers that sparkctl starts, for it names the nodes",
        "NVIDIA/nvidia-container-toolkit: notice on systemd cgroup drivers",
        "2026-09-30",
        see.device_cgroup,
    ),
    Trap(
        "SERVE.VISION_CHUNK",
        WARNING,
        "vision is on and MAX_NUM_BATCHED_TOKENS is below 1536; proved when it is below 1025",
        "one image takes 1025 tokens: below that the boot fails after minutes, close to it one request loops for ever",
        "set MAX_NUM_BATCHED_TOKENS=1536, or LANGUAGE_MODEL_ONLY=1",
        "a model without vision, or LANGUAGE_MODEL_ONLY=1",
        "two-Spark EXL3 kit 28",
        "2026-09-30",
        see.vision_chunk,
        see.vision_chunk_proved,
    ),
    Trap(
        "SERVE.EXL3_STREAMS",
        WARNING,
        "EXL3 with the shared experts on a stream of their own; proved when more than one request may run",
        "two kernels share one lock buffer: two requests at once stall the engine, and it is killed after minutes",
        "set VLLM_DISABLE_SHARED_EXPERTS_STREAM=1 and DSV41_EXL3_SERIAL_STREAMS=1",
        "another quantization; MAX_NUM_SEQS=1",
        "two-Spark EXL3 kit 22",
        "2026-09-30",
        see.exl3_streams,
        see.exl3_streams_proved,
    ),
)


def check_traps(settings: Settings, node: NodeSettings, facts: NodeFacts) -> tuple[Finding, ...]:
    """Every trap on one node. A node whose set-up was not read is not judged: nothing seen is not nothing there."""
    sight = see.Sight(settings, node, facts)
    return tuple(_finding(trap, sight) for trap in TRAPS)


def _finding(trap: Trap, sight: see.Sight) -> Finding:
    is_of_settings = trap.id.startswith("SERVE.")
    evidence = None if sight.facts.host == NO_HOST and not is_of_settings else trap.look(sight)
    node = "" if is_of_settings else sight.node.name
    if evidence is None:
        return Finding(trap.id, Severity.NOT_CHECKED, node, "could not be seen")
    if not evidence:
        return Finding(trap.id, Severity.OK, node, "not here")
    severity = Severity.REFUSAL if trap.proof and trap.proof(sight) else trap.severity
    return Finding(trap.id, severity, node, evidence, fix=see.filled(trap.fix, sight))
