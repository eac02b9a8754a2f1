"""A node's container engine through the Docker SDK, over the node's own session; its errors become ours here."""

import contextlib
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from secrets import token_hex
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import DeviceRequest, LogConfig, Ulimit
from docker.types import Mount as DockerMount

from cluster.errors import (
    EngineDown,
    EngineRefused,
    SparkctlError,
    TimedOut,
    Unreachable,
)
from cluster.model.containers import ContainerSeen, ContainerSpec, EngineSeen, ImageSeen, Mount, shipped_name
from cluster.model.steps import Command
from cluster.model.table import Secret
from cluster.model.units import Bytes
from cluster.node.base import Node
from cluster.node.engine_said import keeps, meant

SOCKET = "/var/run/docker.sock"
ANSWER = 60
DIGEST = re.compile(r" digest: (sha256:[0-9a-f]{64}) ")
MOVED = ("Download complete", "Pushed")  # a small layer's only words, from an engine with containerd's store
Moved = Callable[[str, int, int], None]  # layer, bytes done, bytes in all, as the engine tells them; no size is 0
Login = tuple[str, Secret]

# Asked when the engine does not answer: errno of a connect tells a missing engine from a missing permission.
WHY = """import os,socket,sys
s=socket.socket(socket.AF_UNIX)
try: s.connect(sys.argv[1])
except OSError as e: print(e.errno)
else: print(0)
"""


class Engine:
    """The engine of one node. The API version is the engine's own, never a number of ours."""

    def __init__(self, node: Node, socket_path: str = SOCKET) -> None:
        self._node = node
        self._path = socket_path
        self._client: Any = None

    @property
    def client(self) -> Any:
        if self._client is None:
            way = self._node.socket(self._path)
            self._try(way)
            with self._door("asking the engine for its version"):
                self._client = docker.APIClient(base_url=f"unix://{way}", version="auto", timeout=ANSWER)
        return self._client

    def _try(self, way: str) -> None:
        """A connect of our own first: the SDK leaves its socket open when there is nobody."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(way)
            except OSError as error:
                raise self._why("connecting to the engine", str(error)) from error

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def seen(self) -> EngineSeen:
        with self._door("reading the engine's state"):
            version, info = self.client.version(), self.client.info()
        status = {row[0]: row[1] for row in info.get("DriverStatus") or () if len(row) > 1}
        is_containerd = "io.containerd.snapshotter" in status.get("driver-type", "")
        return EngineSeen(
            version=version["Version"],
            api=version["ApiVersion"],
            architecture=version["Arch"],
            store=info["Driver"],
            containerd_store=is_containerd,
            root=info["DockerRootDir"],
            runtimes=tuple(sorted(info.get("Runtimes") or ())),
            keeps=keeps(info) if is_containerd else (),
        )

    def image(self, reference: str) -> ImageSeen | None:
        """None only when the engine itself says that there is no such image, nor one that was sent for it."""
        with self._door(f"inspecting image {reference}"):
            for name in dict.fromkeys((reference, shipped_name(reference))):
                with contextlib.suppress(ImageNotFound):
                    return _image(self.client.inspect_image(name))
        return None

    def images(self) -> tuple[ImageSeen, ...]:
        """Every image, those without a name too: their layers are what need not be sent."""
        with self._door("listing images"):
            found = [self.image(one["Id"]) for one in self.client.images()]
        return tuple(one for one in found if one is not None)

    def pull(
        self,
        reference: str,
        on_progress: Moved,
        login: Login | None = None,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> None:
        """Every layer is verified by its digest, by the engine; with a digest as reference so is the image.

        An engine tries a broken way again for minutes; `goes_on`, asked at each of its words, may tell it to end.
        """
        doing = f"pulling image {reference}"
        who = {"username": login[0], "password": login[1].reveal()} if login else None
        with self._door(doing):
            events = self.client.pull(reference, stream=True, decode=True, auth_config=who)
            self._follow(doing, events, on_progress, goes_on)

    def push(self, repository: str, tag: str, on_progress: Moved) -> str:
        """The digest of what lies in the registry then."""
        doing = f"pushing image {repository}:{tag}"
        with self._door(doing):
            # An old engine takes the header of a login that is left out for a mistake, and not for none.
            events = self.client.push(repository, tag, stream=True, decode=True, auth_config={})
            return self._follow(doing, events, on_progress, lambda: True)

    def _follow(self, doing: str, events: Any, on_progress: Moved, goes_on: Callable[[], bool]) -> str:
        """The digest at the end, where the engine tells one. An engine ends what nobody listens to any more."""
        digest, failed, sized = "", "", set[str]()
        with contextlib.closing(events):
            for event in events:
                failed = failed or str(event.get("error") or "")
                if not goes_on():
                    raise meant(doing, self._node.name, failed or str(event.get("status")), None)
                if failed:
                    continue  # to the end of what it says, which gives the connection back
                told = DIGEST.search(str(event.get("status")))  # of both stores the one place where it stands
                digest = told.group(1) if told else digest
                detail = event.get("progressDetail") or {}
                if event.get("id") and detail.get("total"):
                    sized.add(event["id"])
                    on_progress(event["id"], detail.get("current", 0), detail["total"])
                elif event.get("status") in MOVED and event["id"] not in sized:
                    on_progress(event["id"], 0, 0)
        if failed:
            raise meant(doing, self._node.name, failed, None)
        return digest

    def remove_image(self, reference: str) -> None:
        with self._door(f"removing image {reference}"), contextlib.suppress(ImageNotFound):
            self.client.remove_image(reference, force=True)

    def tag(self, reference: str, repository: str, tag: str) -> None:
        with self._door(f"naming image {reference}"):
            self.client.tag(reference, repository, tag)

    def containers(self, labels: Mapping[str, str]) -> tuple[ContainerSeen, ...]:
        """All containers, ended ones too, that carry every one of these labels."""
        wanted = [f"{name}={value}" if value else name for name, value in labels.items()]
        with self._door("listing containers"):
            found = [self._inspected(one["Id"]) for one in self.client.containers(all=True, filters={"label": wanted})]
        return tuple(one for one in found if one is not None)

    def _inspected(self, identity: str) -> ContainerSeen | None:
        try:
            seen = self.client.inspect_container(identity)
        except NotFound:  # it went away between the two questions
            return None
        state = seen["State"]
        return ContainerSeen(
            id=seen["Id"],
            name=seen["Name"].lstrip("/"),
            image=seen["Image"],
            state=state["Status"],
            exit_code=state["ExitCode"] if state["Status"] in ("exited", "dead") else None,
            restarts=seen.get("RestartCount") or 0,
            labels=tuple(sorted((seen["Config"].get("Labels") or {}).items())),
        )

    def create(self, spec: ContainerSpec) -> str:
        """The new container's id. Raises NameTaken, ImageMissing. It is not started, and never restarts by itself."""
        with self._door(f"creating container {spec.name}"):
            made = self.client.create_container(
                image=spec.image,
                command=list(spec.argv),
                entrypoint=[],
                name=spec.name,
                environment=dict(spec.environment),
                labels=dict(spec.labels),
                host_config=self._host_config(spec),
                stop_timeout=int(spec.stop_grace),
            )
        return str(made["Id"])

    def _host_config(self, spec: ContainerSpec) -> Any:
        return self.client.create_host_config(
            network_mode="host" if spec.host_network else "none",
            ipc_mode="host" if spec.host_ipc else "private",
            shm_size=None if spec.host_ipc else spec.shm,
            mounts=[_mount(one) for one in spec.mounts],
            devices=[f"{path}:{path}:rwm" for path in spec.devices],
            device_requests=[DeviceRequest(count=-1, capabilities=[["gpu"]])] if spec.gpus else None,
            cap_add=list(spec.capabilities),
            ulimits=[
                Ulimit(name=name, soft=limit, hard=limit)
                for name, limit in (("memlock", spec.memlock), ("stack", spec.stack))
                if limit is not None
            ],
            oom_score_adj=spec.oom_score,
            restart_policy={"Name": "no"},
            security_opt=_security(spec) or None,
            log_config=LogConfig(
                type="json-file", config={"max-size": str(spec.log_bytes), "max-file": str(spec.keep_logs)}
            ),
        )

    def prove(self, image: str) -> None:
        """A container is made of it, never started, and removed: an engine may show an image that it cannot run."""
        self.remove(self.create(ContainerSpec(f"sparkctl-probe-{token_hex(4)}", image, ("true",), host_ipc=False)))

    def start(self, identity: str) -> None:
        with self._door("starting a container"):
            self.client.start(identity)

    def remove(self, identity: str) -> None:
        """Gone, whatever state it was in. Idempotent."""
        with self._door("removing a container"), contextlib.suppress(NotFound):
            self.client.remove_container(identity, force=True, v=False)

    def wait(self, identity: str, limit: float) -> int:
        """Its exit code. Raises TimedOut when it runs on."""
        with self._door("waiting for a container"):
            try:
                return int(self.client.wait(identity, timeout=limit)["StatusCode"])
            except (requests.exceptions.ReadTimeout, requests.exceptions.ConnectionError) as error:
                if "timed out" not in str(error).lower():
                    raise
                raise TimedOut(f"a container did not end within {limit:.0f} s", where=self._node.name) from error

    def output(self, identity: str) -> str:
        with self._door("reading a container's output"):
            return bytes(self.client.logs(identity, stdout=True, stderr=True, tail=200)).decode("utf-8", "replace")

    @contextlib.contextmanager
    def _door(self, doing: str) -> Iterator[None]:
        try:
            yield
        except APIError as error:
            raise meant(doing, self._node.name, error.explanation or str(error), error.status_code) from error
        except (DockerException, requests.exceptions.RequestException) as error:
            raise self._why(doing, str(error)) from error

    def _why(self, doing: str, said: str) -> SparkctlError:
        """No answer at all: ask the node whether the socket is there and open to us."""
        where, name = self._node.name, PurePosixPath(self._path).name
        result = self._node.run(Command(("python3", "-IS", "-c", WHY, self._path)))
        match result.text.strip():
            case "13":
                return EngineRefused(
                    f"{doing} failed: no permission for {self._path}",
                    where=where,
                    evidence=[said],
                    fix=f"on {where}: sudo usermod -aG docker $USER, then log in again",
                )
            case "2" | "111":
                return EngineDown(
                    f"{doing} failed: the engine does not run ({name})",
                    where=where,
                    evidence=[said],
                    fix=f"on {where}: sudo systemctl start docker",
                )
            case _:
                return Unreachable(f"{doing} failed: the engine does not answer", where=where, evidence=[said])


def _image(seen: Any) -> ImageSeen:
    return ImageSeen(
        id=seen["Id"],
        tags=tuple(seen.get("RepoTags") or ()),
        digests=tuple(seen.get("RepoDigests") or ()),
        layers=tuple((seen.get("RootFS") or {}).get("Layers") or ()),
        architecture=seen.get("Architecture") or "",
        system=seen.get("Os") or "",
        labels=tuple(sorted(((seen.get("Config") or {}).get("Labels") or {}).items())),
        size=Bytes(seen.get("Size") or 0),
        driver=(seen.get("GraphDriver") or {}).get("Name") or "",
    )


def _security(spec: ContainerSpec) -> list[str]:
    return [*spec.security, *((f"seccomp={spec.seccomp.profile}",) if spec.seccomp else ())]


def _mount(mount: Mount) -> DockerMount:
    if mount.source.startswith("/"):
        return DockerMount(mount.target, mount.source, type="bind", read_only=mount.read_only)
    return DockerMount(mount.target, mount.source, type="volume", read_only=mount.read_only)
