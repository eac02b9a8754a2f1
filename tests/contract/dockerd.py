"""A real dockerd for tests, started by hand: its own data root, socket and pid file; no bridge, no iptables."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from io import BytesIO
from pathlib import Path
from typing import Self

from tests.contract import engine_kinds
from tests.contract.engine_kinds import Kind, chosen, daemon


def missing() -> str | None:
    """Why the engine of these tests cannot be started here, or None."""
    return engine_kinds.missing(chosen())


class Dockerd:
    """`with Dockerd(folder) as engine: engine.socket`. It ends what it started, by pid."""

    def __init__(self, folder: Path, kind: Kind | None = None) -> None:
        self.folder, self.kind = folder, kind or chosen()
        self.socket = str(folder / "docker.sock")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.again()

    def again(self) -> Self:
        """Start it, also after it was killed: on what it left."""
        places = ("--data-root", self.folder / "data", "--exec-root", self.folder / "exec")
        argv = daemon(self.kind, *places, "-H", f"unix://{self.socket}", "--pidfile", self.folder / "pid")
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._await()
        return self

    def _await(self) -> None:
        for _ in range(300):
            if self.run("version", check=False).returncode == 0:
                return
            if self._process is not None and self._process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def run(self, *words: str, data: bytes | None = None, check: bool = True) -> "subprocess.CompletedProcess[bytes]":
        done = subprocess.run(("docker", "-H", f"unix://{self.socket}", *words), input=data, capture_output=True)
        if check and done.returncode:
            raise RuntimeError(done.stderr.decode())
        return done

    def limits_memory(self) -> bool:
        return self.run("info", "--format", "{{.MemoryLimit}}").stdout == b"true\n"

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
            self._process = None
        for place in reversed(self._mounts()):  # it leaves a network namespace mounted, which nobody could remove
            subprocess.run(("umount", place), check=True)

    def kill(self) -> None:
        """As a crash of the machine would: the engine and its containerd."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None
        containerd = self.folder / "exec" / "containerd" / "containerd.pid"
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(containerd.read_text()), signal.SIGKILL)
        for stale in (containerd, self.folder / "pid"):
            stale.unlink(missing_ok=True)

    def _mounts(self) -> list[str]:
        places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return [place for place in places if place.startswith(f"{self.folder}/")]

    def __exit__(self, *_: object) -> None:
        for identity in self.run("ps", "-aq", check=False).stdout.split():
            self.run("rm", "-f", identity.decode(), check=False)
        self.stop()


def busybox_image(
    name: str, *, layers: int = 1, size: int = 1000, salt: str = "", last: str = "", architecture: str = "amd64"
) -> bytes:
    """A `docker load` archive: static busybox as /bin/sh, then layers of `size` bytes. Built here, from no registry.

    Two images of one salt that differ in `last` differ in their last layer alone.
    """
    entries: dict[str, bytes] = {}
    diffs, paths = [], []
    for index in range(layers):
        seed = f"{salt}{index}{last if index + 1 == layers else ''}"
        data = _layer(_busybox() if index == 0 else {f"data{index}": _bytes(size, seed)})
        diffs.append("sha256:" + _sha256(data))
        paths.append(f"{index:02d}{_sha256(data)[:12]}/layer.tar")
        entries[paths[-1]] = data
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Cmd": ["sh"], "Labels": {"made": "here"}},
            "rootfs": {"type": "layers", "diff_ids": diffs},
            "history": [{"created_by": f"layer {index}"} for index in range(layers)],
        }
    ).encode()
    entries[f"{_sha256(config)}.json"] = config
    entries["manifest.json"] = json.dumps(
        [{"Config": f"{_sha256(config)}.json", "RepoTags": [name], "Layers": paths}]
    ).encode()
    return _tar(entries)


def without_last_layer(archive: bytes, name: str) -> bytes:
    """The same image as an OCI archive whose last layer is named and not there."""
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        read = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}  # type: ignore[union-attr]
    (described,) = json.loads(read["manifest.json"])
    config, *layers = (read[path] for path in (described["Config"], *described["Layers"]))
    kind = "application/vnd.oci.image"
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": _blob(f"{kind}.config.v1+json", config),
            "layers": [_blob(f"{kind}.layer.v1.tar", layer) for layer in layers],
        }
    ).encode()
    named = {"annotations": {"io.containerd.image.name": f"docker.io/library/{name}"}}
    index = {"schemaVersion": 2, "manifests": [_blob(f"{kind}.manifest.v1+json", manifest) | named]}
    entries = {f"blobs/sha256/{_sha256(data)}": data for data in (config, manifest, *layers[:-1])}
    entries |= {"index.json": json.dumps(index).encode(), "oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
    return _tar(entries)


def _blob(media: str, data: bytes) -> dict[str, object]:
    return {"mediaType": media, "digest": f"sha256:{_sha256(data)}", "size": len(data)}


def _busybox() -> dict[str, bytes]:
    path = shutil.which("busybox")
    if path is None:
        raise RuntimeError("not installed: busybox (Debian: busybox-static)")
    return {"bin/busybox": Path(path).read_bytes()}


def _layer(files: dict[str, bytes]) -> bytes:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755
            tar.addfile(member, BytesIO(data))
        if "bin/busybox" in files:
            for applet in ("sh", "sleep", "cat", "true", "false", "env", "id", "ls"):
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
    return buffer.getvalue()


def _tar(entries: dict[str, bytes]) -> bytes:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in entries.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, BytesIO(data))
    return buffer.getvalue()


def _bytes(size: int, seed: str) -> bytes:
    import random

    return random.Random(seed).randbytes(size)


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def python_image(engine: "Dockerd", name: str) -> None:
    """An image with this system's Python and a shell, of the files that are installed here: from no registry."""
    program = Path("/usr/bin/python3").resolve()
    libraries = {Path("/lib64/ld-linux-x86-64.so.2")}
    modules = Path(f"/usr/lib/{program.name}/lib-dynload")
    for file in (program, *modules.glob("*.so")):
        said = subprocess.run(("ldd", file), capture_output=True, text=True).stdout
        libraries |= {Path(word) for word in said.split() if word.startswith("/")}
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        for library in libraries:
            tar.add(library, arcname=str(library).lstrip("/"))
        tar.add(program, arcname="usr/bin/python3")
        tar.add(modules.parent, arcname=str(modules.parent).lstrip("/"), filter=_without_tests)
        _add(tar, "bin/busybox", _busybox()["bin/busybox"])
        for applet in ("sh", "cat"):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    engine.run("import", "-", name, data=buffer.getvalue())


def _without_tests(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = Path(member.name).parts
    return None if {"test", "__pycache__", "idlelib", "lib2to3", "dist-packages"} & set(parts) else member


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o755
    tar.addfile(member, BytesIO(data))
