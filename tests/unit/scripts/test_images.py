"""The rules that every image's Dockerfile keeps, where none of them can be pulled or built."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from cluster.plan.dockerfile import faults, read_dockerfile, takes, unpinned

ROOT = Path(__file__).resolve().parents[3]
IMAGES = ROOT / "images"
FILES = sorted(IMAGES.glob("*/Dockerfile"))
COMPILES = [one for one in FILES if one.parent.name != "nfs"]
KNOWN = {"ARG", "FROM", "ENV", "COPY", "RUN", "ENTRYPOINT", "LABEL", "WORKDIR", "USER", "CMD"}
SECRET = re.compile(r"(TOKEN|PASSWORD|SECRET|API_KEY)\b", re.IGNORECASE)
DIGEST = "vllm/vllm-openai@sha256:" + "1" * 64
STEP = re.compile(r"/opt/sparkctl/steps/([\w-]+\.sh)")
SELF_TEST = "/opt/sparkctl/steps/self-test.sh"


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


@pytest.mark.parametrize(
    ("image", "wanting"),
    [
        ("demo", set()),
        ("native", {"BASE", "TORCH_INDEX"}),
        ("nfs", {"BASE"}),
        ("sparkinfer", set()),
        ("tp2", {"BASE", "EXLLAMAV3_COMMIT"}),
    ],
)
def test_what_is_not_pinned_here_has_to_be_given_and_the_refusal_says_what_it_is(image, wanting):
    told = faults(read_dockerfile((IMAGES / image / "Dockerfile").read_text()), {})
    assert {line.partition(" ")[0] for line in told} == wanting
    assert all(len(line.partition(": ")[2]) > 40 for line in told)


def test_every_image_is_one_of_those():
    assert {one.parent.name for one in FILES} == {"demo", "native", "nfs", "sparkinfer", "tp2"}


@by_image([one for one in FILES if one.parent.name != "demo"])
def test_the_base_is_pinned_by_its_digest(file):
    """The demo's own is made here, and has none."""
    read = read_dockerfile(file.read_text())
    given = {one.name: DIGEST for one in read.arguments if one.name == "BASE" and one.default is None}
    assert read.bases == ("${BASE}",)
    assert unpinned(read, given) == ()


@by_image(FILES)
def test_pinned_inputs_are_whole_commits_and_versions(file):
    for one in read_dockerfile(file.read_text()).arguments:
        if one.default is not None and one.name.endswith("_COMMIT"):
            assert re.fullmatch("[0-9a-f]{40}", one.default)


def test_python_packages_are_pinned_to_a_version():
    lines = (IMAGES / "native/requirements.txt").read_text().splitlines()[1:]
    assert lines == sorted(lines)
    assert all(re.fullmatch(r"[a-z0-9_-]+==[0-9][0-9a-z.]*", line) for line in lines)


@by_image(FILES)
def test_no_secret_is_built_in(file):
    assert [rest for word, rest in instructions(file) if word in ("ARG", "ENV", "LABEL") and SECRET.search(rest)] == []


@by_image(COMPILES)
def test_what_compiles_at_run_time_has_compiler_headers_and_a_home(file):
    """Installed here or with the root that it starts from; the build fails when the self-test misses one."""
    found = instructions(file)
    packages = next((rest for word, rest in found if word == "RUN" and "packages.sh" in rest), "")
    if file.parent.name == "demo":
        packages = (ROOT / "scripts/build_images.py").read_text().partition("PACKAGES = (")[2].partition(")")[0]
    assert {"gcc", "libc6-dev", "python3-dev"} <= set(re.findall(r"[\w-]+", packages))
    assert any(word == "ENV" and "HOME=/root" in rest for word, rest in found)
    assert not any(word == "USER" for word, _ in found)  # root writes to /root
    last = [rest for word, rest in found if word == "RUN"][-1]
    assert last.startswith(SELF_TEST)
    assert ("LABEL", f'sparkctl.self-test="{last}"') in found


@by_image(FILES)
def test_each_step_is_a_script_that_is_copied_before_it_runs(file):
    copied: list[str] = []
    for word, rest in instructions(file):
        copied += re.findall(r"images/steps/([\w.-]+)", rest) if word == "COPY" else []
        if word == "RUN":
            (script,) = STEP.findall(rest)
            assert rest.startswith("/opt/sparkctl/steps/")
            assert not set(rest) & set("&|;`")
            assert script in copied
            assert os.access(IMAGES / "steps" / script, os.X_OK)


@by_image(FILES)
def test_what_is_copied_is_there_and_counts_for_the_stamp(file):
    read = read_dockerfile(file.read_text())
    assert read.copied
    for name in read.copied:
        assert (ROOT / name).exists(), name
    assert not takes(read, f"images/{file.parent.name}/Dockerfile", "README.md")


@pytest.mark.parametrize("script", sorted((IMAGES / "steps").glob("*.sh")), ids=lambda script: script.name)
def test_a_step_is_shell_and_ends_at_the_first_failure(script):
    assert subprocess.run(("sh", "-n", script), capture_output=True).returncode == 0
    assert "\nset -eu\n" in script.read_text()
