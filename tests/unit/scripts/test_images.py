"""The rules that every image's Dockerfile keeps, where none of them can be pulled or built."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
IMAGES = ROOT / "images"
FILES = sorted(IMAGES.glob("*/Dockerfile"))
COMPILES = [one for one in FILES if one.parent.name != "nfs"]
KNOWN = {"ARG", "FROM", "ENV", "COPY", "RUN", "ENTRYPOINT", "LABEL", "WORKDIR", "USER", "CMD"}
SECRET = re.compile(r"(TOKEN|PASSWORD|SECRET|API_KEY)\b", re.IGNORECASE)


def instructions(file: Path) -> list[tuple[str, str]]:
    """As Docker reads them: comments away, continued lines joined."""
    lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in whole.splitlines() if line)]


def by_image(files: list[Path]):
    return pytest.mark.parametrize("file", files, ids=lambda file: file.parent.name)


@by_image(FILES)
def test_only_instructions_that_exist_are_used(file):
    assert {word for word, _ in instructions(file)} <= KNOWN


@by_image(FILES)
def test_the_base_is_pinned(file):
    """By a digest, or a tag that is not moved on."""
    given = dict(rest.split("=", 1) for word, rest in instructions(file) if word == "ARG" and "=" in rest)
    bases = [
        re.sub(r"\$\{(\w+)\}", lambda found: given[found[1]], rest)
        for word, rest in instructions(file)
        if word == "FROM"
    ]
    assert bases
    for base in bases:
        tag = base.rpartition(":")[2]
        assert "@sha256:" in base or (":" in base and tag not in ("latest", "stable", "nightly")), base


@by_image(FILES)
def test_no_secret_is_built_in(file):
    assert [rest for word, rest in instructions(file) if word in ("ARG", "ENV", "LABEL") and SECRET.search(rest)] == []


@by_image(FILES)
def test_the_recipe_stamp_is_a_label(file):
    assert ("ARG", "RECIPE_STAMP=") in instructions(file)
    assert ("LABEL", "sparkctl.recipe.stamp=${RECIPE_STAMP}") in instructions(file)


@by_image(COMPILES)
def test_what_compiles_at_run_time_has_been_tried_at_build_time(file):
    """Compiler, Python's headers and a writable HOME: the self-test fails the build without one of them."""
    runs = [rest for word, rest in instructions(file) if word == "RUN"]
    assert any("self-test.sh" in rest for rest in runs)
    assert any(word == "ENV" and "HOME=" in rest for word, rest in instructions(file))


@by_image(FILES)
def test_the_scripts_that_are_run_are_there(file):
    for word, rest in instructions(file):
        for name in re.findall(r"/opt/sparkctl/(?:steps/)?([\w-]+\.sh)", rest) if word == "RUN" else ():
            script = IMAGES / "steps" / name
            assert script.exists()
            assert os.access(script, os.X_OK)


@by_image(FILES)
def test_package_lists_do_not_stay_in_a_layer(file):
    for word, rest in instructions(file):
        if word == "RUN" and "apt-get install" in rest:
            assert "--no-install-recommends" in rest
            assert rest.endswith("rm -rf /var/lib/apt/lists/*")


@pytest.mark.parametrize("script", sorted((IMAGES / "steps").glob("*.sh")), ids=lambda script: script.name)
def test_a_step_is_shell_and_ends_at_the_first_failure(script):
    assert subprocess.run(("sh", "-n", script), capture_output=True).returncode == 0
    assert "\nset -eu\n" in script.read_text()


def test_a_step_refuses_what_is_no_commit():
    script = IMAGES / "steps" / "exllamav3.sh"
    done = subprocess.run(
        ("sh", script), env={"PATH": os.environ["PATH"], "EXLLAMAV3_COMMIT": "master"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, "EXLLAMAV3_COMMIT=master is no commit\n")
