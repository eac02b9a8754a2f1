"""From a folder, an environment and a command line to resolved settings: reads every layer, then resolves them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.config import dotenv, sources
from cluster.config.document import Document
from cluster.config.layers import PREFIX, Given, Layer, Rank, did_you_mean
from cluster.config.resolve import Resolved, resolve
from cluster.config.texts import Option, env_file_layer, environment_layer, option_layer
from cluster.errors import SettingsError
from cluster.model.need import Need

ENV_FILE, CLUSTER_FILE = ".env", "cluster.yaml"


def load(
    cwd: Path,
    *,
    environ: Mapping[str, str],
    env_file: Path | None = None,
    config: Path | None = None,
    options: Sequence[Option] = (),
    recipe: str | None = None,
    need: Need = Need.SERVE,
) -> Resolved:
    """Every layer that is there, resolved. A file that is named must be there; `.env` and cluster.yaml need not."""
    if recipe is not None:
        options = (*options, Option("RECIPE", recipe, "option --recipe"))
    strong = [
        *_cluster_layer(cwd, config or _named(environ, "CONFIG", cwd)),
        *_env_file_layer(cwd, env_file or _named(environ, "ENV_FILE", cwd)),
        environment_layer(environ),
        option_layer(options),
    ]
    return resolve([*_recipe_layer(cwd, strong), *strong], need)


def _named(environ: Mapping[str, str], what: str, cwd: Path) -> Path | None:
    name = environ.get(f"{PREFIX}{what}", "")
    return cwd / Path(name).expanduser() if name else None


def _cluster_layer(cwd: Path, named: Path | None) -> list[Layer]:
    path = cwd / (named or CLUSTER_FILE)
    if not named and not path.exists():
        return []
    where = sources.shown(path, cwd)
    tree = sources.parse_yaml(sources.read(path, where), where)
    return [Document(where, where, Rank.CLUSTER).layer(tree)]


def _env_file_layer(cwd: Path, named: Path | None) -> list[Layer]:
    path = cwd / (named or ENV_FILE)
    if not named and not path.exists():
        return []
    where = sources.shown(path, cwd)
    parsed = dotenv.parse(sources.read(path, where), where)
    return [env_file_layer(parsed, where, sources.readable_by_others(path))]


def _recipe_layer(cwd: Path, strong: Sequence[Layer]) -> list[Layer]:
    asked = [given for layer in strong for given in layer.given if given.key == "recipe"]
    if not asked or not asked[-1].raw:
        return []
    data, where = _recipe_text(cwd, asked[-1])
    tree = sources.parse_yaml(data, where)
    return [Document(where, where.removeprefix("recipe "), Rank.RECIPE).layer(tree)]


def _recipe_text(cwd: Path, asked: Given) -> tuple[bytes, str]:
    """The text of a recipe, and what to call it. A name with a slash or an ending is a file."""
    name = str(asked.raw)
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = cwd / Path(name).expanduser()
        where = sources.shown(path, cwd)
        return sources.read(path, where), where
    known = sources.recipe_names()
    if name not in known:
        hint = did_you_mean(name, known)
        what = f"there is no recipe {name}"
        raise SettingsError(what, where=asked.origin, evidence=(f"recipes: {', '.join(known)}",), fix=hint)
    return sources.packaged_recipe(name), f"recipe {name}"
