"""Build the image on the head, from its recipe: a Dockerfile, the files that it takes, and its arguments."""

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

from cluster.app.agents import agent, source
from cluster.app.observe import told
from cluster.app.session import Session
from cluster.errors import EngineDown, EngineRefused, Refused, SparkctlError, StepFailed
from cluster.model.events import Emit, Progress, Severity, StepStarted, Told
from cluster.model.settings import Settings
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.node.failures import NoSpace
from cluster.plan.dockerfile import Dockerfile, build_step, faults, read_dockerfile, read_given, unpinned
from cluster.plan.image import STAMP_LABEL, RecipeFile, belongs, stamp
from cluster.plan.image_room import EngineSaid, engine_said

STAGE = "image"
BUILD_LIMIT = Seconds(4 * 3600)
LAST_LINES = 40
CHANGED, NO_CLIENT = 71, 72
LOGS = "~/.cache/sparkctl/builds"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an image is built from, as it lay on the head. `stamp` is a hash of all of it."""

    stamp: str
    dockerfile: Dockerfile
    files: tuple[dict[str, Any], ...]
    untracked: tuple[str, ...] = ()


def read_recipe(session: Session) -> Recipe:
    image, head = session.settings.image, session.head
    if not image.folder:
        raise Refused("there is no recipe to build", where=image.name, fix="set IMAGE_FOLDER to its folder on the head")
    path = f"{image.folder.rstrip('/')}/{image.file}"
    dockerfile = read_dockerfile(head.read(path).decode("utf-8", "replace"))
    want = {"folder": image.folder, "file": image.file, "under": dockerfile.copied}
    found = json.loads(told(head, head.run(agent("recipe", want, limit=120.0))))
    files = tuple(one for one in found["files"] if belongs(one["path"]))
    counted = (RecipeFile(one["path"], one["mode"], one["digest"]) for one in files)
    left = tuple(name for name in found["untracked"] if belongs(name))
    return Recipe(stamp(counted, image.arguments), dockerfile, files, left)


def build(session: Session, emit: Emit, recipe: Recipe, why: str) -> None:
    """Through the engine's command line, which alone knows every kind of builder."""
    image, head = session.settings.image, session.head
    _judge(session.settings, recipe, emit)
    words = _words(session.settings, recipe)
    log = f"{LOGS}/{re.sub(r'[^A-Za-z0-9.-]', '_', image.name)}.log"
    shown = shlex.join(["docker", "build", *words, image.folder])
    emit(StepStarted(STAGE, head.name, f"build {image.name}: {why}", shown))
    request = {
        "folder": image.folder,
        "files": recipe.files,
        "engine": f"unix://{session.settings.container.engine}",
        "words": words,
        "log": log,
    }
    call = f"\nmain({json.dumps(request)!r})\n"  # as an argument it could be longer than one may be
    command = Command(("python3", "-IS", "-"), stdin=source("build") + call.encode(), limit=BUILD_LIMIT)
    last: list[str] = []

    def show(line: str) -> None:
        last.append(line)
        del last[:-LAST_LINES]
        step = build_step(line)
        if step is not None:
            emit(Progress(STAGE, head.name, step.at, step.total, "steps", text=step.text[:100]))
        elif line.startswith("note: "):
            emit(Told(Severity.NOTE, line.removeprefix("note: "), head.name))

    result = session.on(head.name, lambda node: node.stream(command, show))
    if result.exit:
        lines = [*(line for line in (*last, *result.err_text.splitlines()) if line.strip())][-LAST_LINES:]
        raise _failure(result.exit, lines, f"{head.name}:{log}", recipe)


def _judge(settings: Settings, recipe: Recipe, emit: Emit) -> None:
    image, head = settings.image, settings.head.name
    if "@" in image.name:
        why = "IMAGE names a digest, and what a build comes to is not known before"
        raise Refused(why, where=image.name, fix="set IMAGE to a name with a tag")
    given = read_given(image.arguments)
    wrong = faults(recipe.dockerfile, given)
    if wrong:
        raise Refused(
            f"{image.file} cannot be built as it is",
            where=f"{head}:{image.folder}",
            evidence=wrong,
            fix="set IMAGE_ARGS='NAME=value ...'",
        )
    for base in unpinned(recipe.dockerfile, given):
        emit(Told(Severity.WARNING, f"{base} has no digest: the next build may start from another image", head))
    if recipe.untracked:
        names = ", ".join(recipe.untracked[:5]) + (" and more" if len(recipe.untracked) > 5 else "")
        emit(Told(Severity.WARNING, f"git does not know {names}: not in the image, and not in its stamp", head))


def _words(settings: Settings, recipe: Recipe) -> list[str]:
    image = settings.image
    words = ["--tag", image.name, "--file", image.file, "--label", f"{STAMP_LABEL}={recipe.stamp}"]
    words += [word for one in image.arguments for word in ("--build-arg", one)]
    words += ["--platform", image.platform] if image.platform else []
    return words + (["--network", image.build_network] if image.build_network else [])


def _failure(code: int, lines: list[str], log: str, recipe: Recipe) -> SparkctlError:
    """What ended the build: a file, the client, the engine, its disk, or a step of the recipe."""
    where = log.partition(":")[0]
    text = "\n".join(lines)
    if code == CHANGED:
        return StepFailed("a file of the recipe changed while it was read", where=where, evidence=lines[-1:])
    if code == NO_CLIENT:
        return StepFailed("there is no docker command to build with", where=where, fix="apt-get install docker.io")
    match engine_said(code, text):
        case EngineSaid.DOWN:
            return EngineDown("the engine does not run", where=where, evidence=lines, fix="sudo systemctl start docker")
        case EngineSaid.PERMISSION:
            fix = "sudo usermod -aG docker $USER, then log in again"
            return EngineRefused("no permission for the engine", where=where, evidence=lines, fix=fix)
        case EngineSaid.NO_SPACE:
            return NoSpace("no space left to build in", where=where, evidence=lines, fix="docker builder prune")
        case _:
            left = [f"git does not know {', '.join(recipe.untracked)}: not sent"] if recipe.untracked else []
            fix = f"the whole log: {log}"
            return StepFailed(f"the build ended with exit code {code}", where=where, evidence=(*left, *lines), fix=fix)
