"""A deployment as objects for LLMKube on Kubernetes: Model, InferenceService, and the volumes they claim.

Nobody is asked, and nothing is applied. Fields and their meaning: the custom resources of LLMKube
(inference.llmkube.dev/v1alpha1) with the multi-node form of September 2026.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import PurePosixPath
from typing import Any

from cluster.errors import SettingsError
from cluster.model.exl3 import Profile
from cluster.model.flags import serve_flags, variables
from cluster.model.kit import PageCache
from cluster.model.settings import NodeSettings, Settings, is_alone
from cluster.model.table import Problem
from cluster.plan.boxes import further_mount
from cluster.plan.launch import BOOT_LIMIT, fill, filled_words
from cluster.plan.pages import policy

GROUP = "inference.llmkube.dev/v1alpha1"
GPU = "nvidia.com/gpu"
RDMA = "rdma/rdma_shared_device_a"  # what the shared device plugin calls it; without it a pod sees no RDMA device
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
FOR_US = ("NCCL_", "DSV41_")  # variables of the two-node runtime, where another server is run
CPU, EPHEMERAL, SHM = "8", "40Gi", "8Gi"
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
HOST = re.compile(rf"{LABEL.pattern}(\.{LABEL.pattern})*")
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|[kMGTPE]i?)?")
IN_CONFIG = {
    "--tensor-parallel-size": ("tensorParallelSize", int),
    "--pipeline-parallel-size": ("pipelineParallelSize", int),
    "--max-model-len": ("maxModelLen", int),
    "--kv-cache-dtype": ("kvCacheDtype", str),
}

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What Kubernetes calls things: its nodes in rank order, the namespace, the claim, and the claim's size."""

    nodes: tuple[str, ...]
    namespace: str = "default"
    claim: str = ""
    storage: str = "400Gi"


def manifests(settings: Settings, cluster: Cluster) -> tuple[Object, ...]:
    """Every object, in the order to apply them. Raises one SettingsError with all that is missing."""
    wrong = tuple(_problems(settings, cluster))
    if len(wrong) == 1:
        raise SettingsError(wrong[0].what, fix=wrong[0].fix)
    if wrong:
        raise SettingsError(f"{len(wrong)} things stand in the way", evidence=tuple(map(str, wrong)))
    inside = replace(settings, serve=replace(settings.serve, host="0.0.0.0"))  # of the pod; its Service is asked
    volumes = [one for rank in range(len(settings.nodes)) for one in _volume(settings, cluster, rank)]
    jobs = [_drop_job(cluster, rank) for rank in range(len(settings.nodes))] if drops(settings) else []
    return (*volumes, *jobs, _model(settings, cluster), _service(inside, cluster))


def drops(settings: Settings) -> bool:
    """Only vLLM counts free memory; a server with its weights in the page cache would lose them."""
    return policy(settings) is not PageCache.KEEP


def _problems(settings: Settings, cluster: Cluster) -> Iterator[Problem]:
    if not settings.image.name:
        yield Problem("", "IMAGE is not set, and a pod runs nothing else", "set IMAGE")
    if len(cluster.nodes) != len(settings.nodes):
        fix = "give --node once for each, in rank order: their names in `kubectl get nodes`"
        yield Problem("", f"{len(settings.nodes)} node(s), and {len(cluster.nodes)} named for Kubernetes", fix)
    for what, name, form in (
        ("deployment", settings.deployment, LABEL),
        ("namespace", cluster.namespace, LABEL),
        ("claim", cluster.claim or settings.deployment, LABEL),
        *(("node", one, HOST) for one in cluster.nodes),
    ):
        if not form.fullmatch(name):
            yield Problem("", f"{what} {name!r} is no name for Kubernetes", "a-z, 0-9 and - inside, 63 at most")
    if not QUANTITY.fullmatch(cluster.storage):
        yield Problem("", f"{cluster.storage!r} is no quantity", "write e.g. 400Gi")
    for node in settings.nodes:
        yield from _node_problems(settings, node)
    if len({node.gid for node in settings.nodes}) > 1:
        told = ", ".join(f"{node.name} {'found at boot' if node.gid is None else node.gid}" for node in settings.nodes)
        yield Problem("", f"GID indices differ ({told}), and the multi-node form has one for all", "make them equal")


def _node_problems(settings: Settings, node: NodeSettings) -> Iterator[Problem]:
    staged = node.model or settings.serve.model
    if not staged.startswith("/") or not settings.serve.model.startswith("/"):
        yield Problem(
            "", f"{node.name}: {staged or 'no model'} has no absolute path", "set MODEL_DIR to the whole path"
        )
    elif settings.exl3.profile is not Profile.NONE and staged != settings.serve.model:
        what = f"{node.name}: the pack lies at {staged} and would be mounted at {settings.serve.model}"
        yield Problem("", f"{what}; its links are absolute and would lead nowhere", "set MODEL_DIR to where it lies")
    for one in settings.container.mounts:
        if not one.startswith("/"):
            yield Problem("", f"MOUNTS has {one}, and Kubernetes knows no home", "write the whole path")
    if not is_alone(settings):
        for name, value in (("HEAD_CX7_IF", node.interface), ("HEAD_CX7_IB", node.hca)):
            if not value:
                what = f"{node.name}: its {'interface' if name.endswith('IF') else 'RDMA device'} is not set"
                yield Problem("", what, f"set {name} and the worker's: nothing is found at boot there")


def _claim(settings: Settings, cluster: Cluster, rank: int) -> str:
    name = cluster.claim or settings.deployment
    return name if is_alone(settings) else f"{name}-{rank}"


def _staged(settings: Settings, rank: int) -> PurePosixPath:
    return PurePosixPath(settings.nodes[rank].model or settings.serve.model)


def _meta(name: str, cluster: Cluster | None = None) -> Object:
    return {"name": name, **({"namespace": cluster.namespace} if cluster else {})}


def _volume(settings: Settings, cluster: Cluster, rank: int) -> tuple[Object, Object]:
    """The folder above the pack on its node, as a volume of its own: nothing is copied or provisioned."""
    name, modes = _claim(settings, cluster, rank), ["ReadOnlyMany"]
    place = {"key": "kubernetes.io/hostname", "operator": "In", "values": [cluster.nodes[rank]]}
    volume = {
        "capacity": {"storage": cluster.storage},
        "accessModes": modes,
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "hostPath": {"path": str(_staged(settings, rank).parent), "type": "Directory"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}},
    }
    claim = {
        "accessModes": modes,
        "storageClassName": "",
        "volumeName": f"{cluster.namespace}-{name}",
        "resources": {"requests": {"storage": cluster.storage}},
    }
    return (
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": _meta(f"{cluster.namespace}-{name}"),
         "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": _meta(name, cluster), "spec": claim},
    )  # fmt: skip


def _drop_job(cluster: Cluster, rank: int) -> Object:
    """Before a start, on one node: vLLM refuses to load while read files fill what it takes for its own."""
    shell = "sync; grep MemFree /host/meminfo; echo 3 > /host/sys/vm/drop_caches; grep MemFree /host/meminfo"
    container = {
        "name": "drop",
        "image": "busybox:1.37",
        "command": ["sh", "-c", shell],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "proc", "mountPath": "/host"}],
    }
    pod = {
        "nodeName": cluster.nodes[rank],
        "restartPolicy": "Never",
        "tolerations": [_toleration()],
        "containers": [container],
        "volumes": [{"name": "proc", "hostPath": {"path": "/proc"}}],
    }
    job = {"backoffLimit": 0, "ttlSecondsAfterFinished": 600, "template": {"spec": pod}}
    name = f"drop-page-cache-{rank}"
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _meta(name, cluster), "spec": job}


def _model(settings: Settings, cluster: Cluster) -> Object:
    gpu = {"enabled": True, "count": 1, "vendor": "nvidia"}
    spec = {
        "source": f"pvc://{_claim(settings, cluster, 0)}/{_staged(settings, 0).name}",
        "format": "safetensors",
        **({"quantization": _quantization(settings)} if _quantization(settings) else {}),
        "refreshPolicy": "IfNotPresent",
        "hardware": {"accelerator": "cuda", "gpu": gpu},
    }
    return {"apiVersion": GROUP, "kind": "Model", "metadata": _meta(settings.deployment, cluster), "spec": spec}


def _quantization(settings: Settings) -> str:
    named = "" if settings.serve.quantization == "none" else settings.serve.quantization
    return named or ("exl3" if settings.exl3.profile is not Profile.NONE else "")


def _service(settings: Settings, cluster: Cluster) -> Object:
    port = settings.serve.port
    spec = {
        "modelRef": settings.deployment,
        "runtime": "generic" if settings.launch.command else "vllm",
        "image": settings.image.name,
        "replicas": 1,
        "containerPort": port,
        "endpoint": {"port": port, "path": "/v1/chat/completions", "type": "ClusterIP"},
        **({"nodeSelector": {"kubernetes.io/hostname": cluster.nodes[0]}} if is_alone(settings) else {}),
        "tolerations": [_toleration()],
        # No memory: older operators would make it a limit too, and the weights are mostly page cache.
        "resources": {"gpu": 1, "cpu": CPU, "ephemeralStorage": EPHEMERAL},
        "env": [{"name": name, "value": value} for name, value in sorted(_environment(settings).items())],
        "probeOverrides": _probes(settings),
        **(_generic(settings, cluster) if settings.launch.command else _vllm(settings, cluster)),
    }
    meta = _meta(settings.deployment, cluster)
    return {"apiVersion": GROUP, "kind": "InferenceService", "metadata": meta, "spec": spec}


def _toleration() -> Object:
    """`Exists` fits a taint with whatever value."""
    return {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}


def _environment(settings: Settings) -> dict[str, str]:
    told = {name: fill(value, settings) if settings.launch.command else value for name, value in variables(settings)}
    ours = FOR_US if settings.launch.command else ()
    return OFFLINE | {name: value for name, value in told.items() if name != BOOT_LIMIT and not name.startswith(ours)}


def _probes(settings: Settings) -> Object:
    """Liveness is left to the operator: a server that loads must not be ended for it."""

    def ask(path: str, failures: int) -> Object:
        get = {"path": path, "port": settings.serve.port}
        return {"httpGet": get, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": failures}

    starts = max(180, ceil(settings.watch.ready_timeout / 10))
    return {"startup": ask("/health", starts), "readiness": ask(settings.watch.ready_path, 3)}


def _generic(settings: Settings, cluster: Cluster) -> Object:
    """This runtime mounts no model by itself. Mount path and staging path are one, for links in a pack are absolute."""
    words = list(filled_words(settings))
    # The image with the native server checks memory in its own entry point, and then runs the arguments.
    command = {"args": words} if settings.exl3.profile is not Profile.NONE else {"command": words}
    further = [further_mount(one) for one in settings.container.mounts]
    volumes: list[Object] = [
        {
            "name": "pack",
            "persistentVolumeClaim": {"claimName": _claim(settings, cluster, 0), "readOnly": True},
        },
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHM}},
        *({"name": f"mount-{n}", "hostPath": {"path": one.source}} for n, one in enumerate(further)),
    ]
    mounts: list[Object] = [
        {"name": "pack", "mountPath": str(PurePosixPath(settings.serve.model).parent), "readOnly": True},
        {"name": "shm", "mountPath": "/dev/shm"},
        *(
            {"name": f"mount-{n}", "mountPath": one.target, "readOnly": one.read_only}
            for n, one in enumerate(further)
        ),
    ]  # fmt: skip
    return {**command, "extraVolumes": volumes, "extraVolumeMounts": mounts}


def _vllm(settings: Settings, cluster: Cluster) -> Object:
    config, extra = _split(serve_flags(settings))
    told = {"vllmConfig": config, "extraArgs": [*extra, *settings.serve.extra_args]}
    if is_alone(settings):
        return told
    members = [
        {
            "node": cluster.nodes[rank],
            "fabric": {"address": node.address, "socketInterface": node.interface, "ibHCA": node.hca},
            "modelCache": {"claimName": _claim(settings, cluster, rank)},
        }
        for rank, node in enumerate(settings.nodes)
    ]
    index = {} if settings.head.gid is None else {"ibGIDIndex": settings.head.gid}
    return {**told, "multiNode": {"rdmaResource": RDMA, **index, "members": members}}


def _split(flags: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
    """Flags that the resource has fields for, and the others as they are."""
    config: dict[str, Any] = {}
    extra, words = [], iter(flags)
    for word in words:
        if word in IN_CONFIG:
            name, kind = IN_CONFIG[word]
            config[name] = kind(next(words))
        else:
            extra.append(word)
    return config, extra
