"""The standard registry, Debian's docker-registry, on a free loopback port: what sparkctl starts too."""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from tests.contract.sshd import free_port

USER, PASSWORD = "spark", "open-sesame"
# Of that password, as `htpasswd -B` writes it.
HASH = "$2b$05$raad6C0n7Zl0pAFzOz3GcuIJmRHFjZQplVhUADXRmXAMHJ1./W1Qy"


def missing() -> str | None:
    return None if shutil.which("docker-registry") else "not installed: docker-registry (Debian: docker-registry)"


class Registry:
    """`with Registry(folder) as registry: registry.address`. With `closed` it asks for the user above."""

    def __init__(self, folder: Path, *, closed: bool = False) -> None:
        self.folder, self.closed = folder, closed
        self.address = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        config: dict[str, object] = {
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": str(self.folder / "blobs")}},
            "http": {"addr": self.address},
        }
        if self.closed:
            (self.folder / "users").write_text(f"{USER}:{HASH}\n")
            config["auth"] = {"htpasswd": {"realm": "here", "path": str(self.folder / "users")}}
        (self.folder / "config.yml").write_text(json.dumps(config))
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                ("docker-registry", "serve", str(self.folder / "config.yml")), stdout=log, stderr=log
            )
        for _ in range(100):
            if self._answers():
                return self
            time.sleep(0.05)
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{self.address}/v2/", timeout=5)
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def blobs(self) -> list[Path]:
        """The largest first."""
        return sorted(self.folder.rglob("blobs/sha256/*/*/data"), key=lambda one: -one.stat().st_size)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
