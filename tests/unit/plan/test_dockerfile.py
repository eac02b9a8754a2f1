"""What a Dockerfile says before it is built."""

import pytest

from cluster.plan.dockerfile import (
    Argument,
    BuildStep,
    Dockerfile,
    build_step,
    faults,
    read_dockerfile,
    read_given,
    takes,
    unpinned,
)

TEXT = """\
# What this image is for.
#
# The engine, by digest:
# name@sha256:...
ARG BASE
FROM ${BASE} AS made
ARG VERSION=1.2 EXTRA
# its packages
COPY steps/ /steps/
COPY --chmod=755 "overlay/a.py" \\
    # between
    files/*.txt /opt/
RUN /steps/one.sh
FROM made
COPY --from=made /opt /opt
ADD https://example.org/x /x
"""


def test_a_dockerfile_is_read_as_the_builder_reads_it():
    assert read_dockerfile(TEXT) == Dockerfile(
        (
            Argument("BASE", None, "The engine, by digest: name@sha256:..."),
            Argument("VERSION", "1.2"),
            Argument("EXTRA", None),
        ),
        ("${BASE}",),
        ("steps", "overlay/a.py", "files"),
    )


@pytest.mark.parametrize(
    "line",
    ["COPY . /src", "COPY ./ /src", "COPY $FOLDER /src", "ADD *.tar /", "RUN --mount=type=bind,target=/src make"],
)
def test_what_may_take_anything_takes_everything(line):
    file = read_dockerfile(f"FROM scratch\nCOPY steps/ /steps/\n{line}\n")
    assert file.copied is None
    assert takes(file, "Dockerfile", "anything/at/all")


@pytest.mark.parametrize(
    "line", ['COPY ["steps/a b.sh", "/steps/"]', "COPY ./steps/ /steps/", "COPY steps/*.sh /steps/"]
)
def test_sources_are_found_however_they_are_written(line):
    (copied,) = read_dockerfile(f"FROM scratch\n{line}\n").copied or ()
    assert copied.startswith("steps")


def test_a_file_in_the_text_comes_from_no_folder():
    assert read_dockerfile("FROM scratch\nCOPY <<EOF /etc/a\n").copied == ()


@pytest.mark.parametrize(
    ("path", "taken"),
    [("images/x/Dockerfile", True), ("steps/one.sh", True), ("stepsister", False), ("README.md", False)],
)
def test_only_what_is_copied_matters_and_the_dockerfile_itself(path, taken):
    assert takes(read_dockerfile("FROM scratch\nCOPY steps/ /steps/\n"), "images/x/Dockerfile", path) is taken


COMMIT = "954a8ca6e59d48c3e3462068ecf083fe9990f4dc"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("BASE=a@sha256:1 EXTRA=", ()),
        ("EXTRA=x", ("BASE is not given: The engine, by digest: name@sha256:...",)),
        ("BASE=a", ("EXTRA is not given: it has no default",)),
        ("BASE=a EXTRA=b OTHER=c", ("OTHER is no argument of it; it has BASE, EXTRA, VERSION",)),
        ("BASE=a EXTRA=b HTTPS_PROXY=http://10.0.0.1:3128 TARGETARCH=arm64", ()),
        (
            "BASE=a EXTRA=b HF_TOKEN=x",
            ("HF_TOKEN looks like a secret: everybody who has the image can read its arguments",),
        ),
    ],
)
def test_what_is_missing_unknown_or_secret_is_said(given, told):
    assert faults(read_dockerfile(TEXT), read_given(given.split())) == told


@pytest.mark.parametrize(("commit", "count"), [(COMMIT, 0), (COMMIT[:8], 1), ("v1.4.5", 1), (COMMIT.upper(), 1)])
def test_a_commit_is_a_whole_one(commit, count):
    file = read_dockerfile("FROM scratch\nARG EXL_COMMIT\n")
    assert len(faults(file, {"EXL_COMMIT": commit})) == count


@pytest.mark.parametrize(
    ("base", "told"),
    [("debian@sha256:11", ()), ("debian:bookworm", ("debian:bookworm",)), ("scratch", ()), ("", ("",))],
)
def test_a_base_without_a_digest_may_be_another_one_tomorrow(base, told):
    assert unpinned(read_dockerfile("ARG BASE=debian:bookworm\nFROM ${BASE}\n"), {"BASE": base}) == told


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("#7 [3/9] RUN /steps/one.sh", BuildStep(3, 9, "RUN /steps/one.sh")),
        ("#7 [made 2/4] COPY steps/ /steps/", BuildStep(2, 4, "COPY steps/ /steps/")),
        ("Step 2/7 : RUN x", BuildStep(2, 7, "RUN x")),
        ("#7 0.512 [55/120] nvcc kernel.cu", None),
        ("#1 [internal] load build definition from Dockerfile", None),
    ],
)
def test_steps_are_seen_in_what_builders_say(line, step):
    assert build_step(line) == step
