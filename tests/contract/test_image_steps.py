"""The scripts that images are built with, run here: on small packages, a small repository, an index in a folder."""

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract

STEPS = Path(__file__).parents[2] / "images/steps"
# A build backend that is in the package itself, so that nothing has to be downloaded to build it.
BACKEND = """\
import os
import sysconfig
import zipfile

NAME = "{name}"


def build_wheel(folder, settings=None, metadata=None):
    file = NAME.replace("-", "_")
    wheel, info = f"{{file}}-1.0-py3-none-any.whl", f"{{file}}-1.0.dist-info"
    with zipfile.ZipFile(os.path.join(folder, wheel), "w") as made:
        made.writestr(f"{{info}}/METADATA", f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: 1.0\\n")
        made.writestr(f"{{info}}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        made.writestr(f"{{file}}.py", "__version__ = '1.0'\\n")
        made.writestr(f"{{info}}/RECORD", "")
    {more}
    return wheel
"""
EXTENSION = """open(os.path.join(sysconfig.get_path("platlib"), "exllamav3_ext.so"), "w").close()"""
STRANGER = """stranger = os.path.join(sysconfig.get_path("purelib"), "stranger-1.0.dist-info")
    os.makedirs(stranger)
    with open(os.path.join(stranger, "METADATA"), "w") as made:
        made.write("Metadata-Version: 2.1\\nName: stranger\\nVersion: 1.0\\n")"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = "{name}"\n'


@dataclass(frozen=True)
class Bench:
    """A folder, an environment with a Python of its own, and a script run in it."""

    folder: Path

    def __call__(self, script: str, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{self.folder}/bin:{self.folder}/venv/bin:/usr/bin:/bin", "HOME": str(self.folder)}
        environment |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull} | variables
        argv = (STEPS / script, *words)
        return subprocess.run(argv, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=300)

    def package(self, folder: str, name: str, more: str = "") -> Path:
        made = self.folder / folder
        made.mkdir()
        (made / "pyproject.toml").write_text(PROJECT.format(name=name))
        (made / "backend.py").write_text(BACKEND.format(name=name, more=more))
        return made

    def tool(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def installed(self) -> dict[str, str]:
        words = (self.folder / "venv/bin/python3", "-m", "pip", "list", "--format=freeze")
        lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        return dict(line.split("==") for line in lines)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with pip, made once; each test that changes it takes a copy of its own."""
    folder = tmp_path_factory.mktemp("python") / "venv"
    venv.create(folder, with_pip=True, symlinks=True)
    return folder


@pytest.fixture
def with_pip(bench: Bench, python: Path) -> Bench:
    shutil.copytree(python, bench.folder / "venv", symlinks=True)
    return bench


def test_packages_are_installed_alone_and_their_lists_do_not_stay(bench):
    bench.tool("apt-get", 'echo "$DEBIAN_FRONTEND $*" >> apt.log')
    bench.tool("rm", 'echo "rm $*" >> apt.log')
    done = bench("packages.sh", "gcc", "python3-dev")
    assert (done.returncode, done.stderr) == (0, "")
    *asked, removed = (bench.folder / "apt.log").read_text().splitlines()
    assert asked == [
        "noninteractive -q update",
        "noninteractive -q install --yes --no-install-recommends gcc python3-dev",
    ]
    assert removed.startswith("rm -rf /var/lib/apt/lists/")


def test_packages_without_a_name_are_refused_and_a_failure_ends_it(bench):
    bench.tool("apt-get", "exit 100")
    assert (bench("packages.sh").returncode, bench("packages.sh", "gcc").returncode) == (2, 100)


def test_a_package_is_installed_beside_what_is_there(with_pip):
    before = with_pip.installed()
    done = with_pip("package.sh", with_pip.package("ours", "ours-1"))
    assert done.returncode == 0, done.stderr
    assert with_pip.installed() == before | {"ours-1": "1.0"}
    assert with_pip("package.sh", with_pip.folder / "ours").returncode == 0, "a second time"


def test_a_package_that_changes_others_fails_the_build(with_pip):
    done = with_pip("package.sh", with_pip.package("ours", "ours", more=STRANGER))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "ours changed other packages")


def test_a_folder_without_a_package_is_refused(bench):
    (bench.folder / "none").mkdir()
    (bench.folder / "none/pyproject.toml").write_text("[tool.x]\n")
    assert bench("package.sh", "none").stderr == "none/pyproject.toml has no name\n"


def commit_of(folder: Path) -> str:
    git = ("git", "-C", folder, "-c", "user.name=x", "-c", "user.email=x@example.org")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "x")):
        subprocess.run((*git, *words), check=True)
    return subprocess.run((*git, "rev-parse", "HEAD"), check=True, capture_output=True, text=True).stdout.strip()


def repository_of(bench: Bench, more: str) -> dict[str, str]:
    commit = commit_of(bench.package("repository", "exllamav3", more=more))
    return {"EXLLAMAV3_REPOSITORY": f"file://{bench.folder}/repository", "EXLLAMAV3_COMMIT": commit}


def test_exllamav3_is_built_at_its_commit_for_gb10(with_pip):
    variables = repository_of(with_pip, EXTENSION)
    with_pip.tool("cuobjdump", "echo ELF file 1: exllamav3_ext.1.sm_121a.cubin")
    done = with_pip("exllamav3.sh", **variables)
    assert done.returncode == 0, done.stderr
    assert with_pip.installed()["exllamav3"] == "1.0"
    with_pip.tool("cuobjdump", "echo ELF file 1: exllamav3_ext.1.sm_90.cubin")
    other = with_pip("exllamav3.sh", **variables)
    assert (other.returncode, other.stderr.splitlines()[-1]) == (1, "the extension has no code for GB10")
    wrong = with_pip("exllamav3.sh", **variables | {"EXLLAMAV3_COMMIT": "1" * 40})
    assert wrong.returncode != 0
    assert "1" * 40 in wrong.stderr


def test_exllamav3_without_its_extension_fails_the_build(with_pip):
    done = with_pip("exllamav3.sh", **repository_of(with_pip, ""))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "no extension was built")


@pytest.mark.parametrize(
    ("commit", "said"),
    [("master", "is no commit"), ("", "is no commit"), ("e648f1a1", "is not a whole commit")],
)
def test_exllamav3_of_no_whole_commit_is_refused(bench, commit, said):
    done = bench("exllamav3.sh", EXLLAMAV3_COMMIT=commit)
    assert (done.returncode, done.stderr) == (2, f"EXLLAMAV3_COMMIT={commit} {said}\n")


def index_of(bench: Bench, *names: str) -> str:
    """A package index in a folder, with these packages."""
    for name in names:
        place = bench.folder / "index" / name
        place.mkdir(parents=True)
        sys.path.insert(0, str(bench.package(f"{name}-source", name)))
        try:
            wheel = __import__("backend").build_wheel(str(place))
        finally:
            sys.path.pop(0)
            sys.modules.pop("backend")
        (place / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')
    return f"file://{bench.folder}/index"


def test_torch_is_the_version_that_was_asked_for_and_what_goes_beside_it_is_pinned(bench, python):
    bench.tool("python3", f'test "$2" = venv && cp -a {python} "$3"')  # as it would make one, without the half minute
    index = index_of(bench, "torch", "beside")
    (bench.folder / "requirements.txt").write_text("beside==1.0\n")
    more = {"PIP_NO_INDEX": "", "PIP_EXTRA_INDEX_URL": index, "TORCH_INDEX": index}
    done = bench("torch.sh", "venv", "requirements.txt", TORCH="1.0.0", **more)
    assert done.returncode == 1, "pip takes 1.0 for 1.0.0, and the build ends"
    assert done.stderr.splitlines()[-1] == "another torch than 1.0.0 was installed"
    assert {"torch", "beside"} <= bench.installed().keys()
    missing = bench("torch.sh", "venv", "requirements.txt", TORCH="2.0.0", **more)
    assert missing.returncode == 1
    assert "torch==2.0.0" in missing.stderr


def test_torch_without_a_version_is_refused(bench):
    assert bench("torch.sh", "venv", "requirements.txt", TORCH="latest").stderr == "TORCH=latest is no version\n"


def test_the_self_test_compiles_against_pythons_headers_and_names_what_is_missing(bench):
    """With the Python that runs this, whose headers are here."""
    bench.tool("python3", f'exec {sys.executable} "$@"')
    if shutil.which("cc") is None:
        pytest.skip("not run: no C compiler here (Debian: gcc)")
    done = bench("self-test.sh", "pytest")
    assert (done.returncode, done.stdout.splitlines()) == (
        0, ["compiler, headers and HOME: ok", f"pytest {pytest.__version__}"],
    )  # fmt: skip
    assert "No package metadata was found for nobody-has-this" in bench("self-test.sh", "nobody-has-this").stderr
    assert bench("self-test.sh", HOME="/nowhere").stderr == "HOME=/nowhere cannot be written\n"
    bench.tool("cc", "echo 'Python.h: No such file or directory' >&2; exit 1")
    without = bench("self-test.sh")
    assert (without.returncode, "Python.h" in without.stderr) == (1, True)


@pytest.mark.parametrize(
    ("clients", "options", "said"),
    [
        ("", "", "NFS_CLIENTS is empty: name who may mount"),
        ("*", "", "NFS_CLIENTS: * is no address"),
        ("0.0.0.0/0", "", "NFS_CLIENTS: 0.0.0.0/0 is everybody"),
        ("10.0.0.2,::/0", "", "NFS_CLIENTS: ::/0 is everybody"),
        ("10.0.0.2", "rw,sync", "NFS_OPTS has rw, and weights are only read"),
    ],
)
def test_the_exporter_refuses_nobody_everybody_and_writers(bench, clients, options, said):
    done = bench("exporter.sh", "write", NFS_CLIENTS=clients, NFS_OPTS=options, EXPORTS="exports")
    assert (done.returncode, done.stderr) == (2, f"{said}\n")
    assert not (bench.folder / "exports").exists()


def test_the_exporter_names_each_client_with_its_options(bench):
    done = bench("exporter.sh", "write", NFS_CLIENTS="10.77.0.2,10.78.0.0/24,fd00::2", EXPORTS="exports")
    assert (done.returncode, done.stderr) == (0, "")
    options = "ro,sync,no_subtree_check,root_squash,fsid=0"
    assert (bench.folder / "exports").read_text() == (
        f"/export 10.77.0.2({options}) 10.78.0.0/24({options}) fd00::2({options})\n"
    )
