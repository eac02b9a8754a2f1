"""A checkout with the recipe of a small image, and the session of a head that builds and brings it."""

import json
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from cluster.app.image import against_recipe, bring, build_once, wish_of
from cluster.app.session import Session
from cluster.model.events import Event, StepStarted, Told
from cluster.model.kit import Container, Image
from cluster.model.nodes import NodeSettings
from cluster.node.open import open_node
from cluster.plan.image import STAMP_LABEL
from tests.build import pair
from tests.contract import dockerd

DOCKERFILE = """\
# An image that is built in a test.
#
# Where to start: an image of this machine.
ARG BASE
FROM ${BASE}
ARG WORD=none
COPY steps/ /steps/
RUN /steps/say.sh "$WORD"
"""
SAY = '#!/bin/sh\nset -eu\necho "$1" > /said\n'


@dataclass
class Checkout:
    """A checkout with a recipe, and the session of a head that builds it."""

    folder: Path
    daemon: dockerd.Dockerd
    name: str = "ours:1"
    events: list[Event] = field(default_factory=list)

    def lay(self) -> Self:
        """The files, known to git."""
        self.write("images/ours/Dockerfile", DOCKERFILE)
        self.write("steps/say.sh", SAY, 0o755)
        self.write("README.md", "not of the image")
        self.git("init", "-q")
        self.git("add", ".")
        return self

    def build(self, *arguments: str, again: bool = False) -> str:
        """What the verb says at its end."""
        self.events.clear()
        with self._session(self._image(arguments or ("BASE=base:1",))) as session:
            return build_once(session.need_all(), self.events.append, again=again)

    def verify(self) -> tuple[str, ...]:
        """What `image verify` adds about the recipe."""
        with self._session(self._image(("BASE=base:1",))) as session:
            return against_recipe(session.need_all())

    def bring(self, **wishes: Any) -> str:
        """What a start does about the image, act by act."""
        self.events.clear()
        with self._session(replace(self._image(("BASE=base:1",)), **wishes)) as session:
            bring(session.need_all(), self.events.append, wish_of(session.settings))
        return self.acts

    @property
    def acts(self) -> str:
        return ", ".join(one.why.partition(" ")[0] for one in self.events if isinstance(one, StepStarted))

    def _image(self, arguments: tuple[str, ...]) -> Image:
        folder, file = str(self.folder / "recipe"), "images/ours/Dockerfile"
        return Image(name=self.name, folder=folder, file=file, build_network="none", arguments=arguments)

    def _session(self, image: Image) -> Session:
        head = NodeSettings(name="head", control="local", address="127.0.0.1")
        settings = pair(nodes=(head,), container=Container(engine=self.daemon.socket), image=image)
        return Session(settings, lambda node: open_node(node.name, node.control))

    @property
    def stamp(self) -> str:
        return str(self.image["Config"]["Labels"][STAMP_LABEL])

    @property
    def told(self) -> list[str]:
        return [one.text for one in self.events if isinstance(one, Told)]

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.folder / "recipe" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def git(self, *words: str) -> None:
        subprocess.run(("git", "-C", self.folder / "recipe", *words), check=True, capture_output=True)

    def inside(self, command: str) -> str:
        return self.daemon.run("run", "--rm", "--network=none", self.name, "sh", "-c", command).stdout.decode()

    @property
    def image(self) -> Any:
        return json.loads(self.daemon.run("image", "inspect", self.name).stdout)[0]
