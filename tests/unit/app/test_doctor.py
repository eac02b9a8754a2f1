"""The bundle holds what was seen, without secrets, and says what it could not have."""

import tarfile
from dataclasses import replace
from pathlib import Path

from cluster.app.doctor import QUESTIONS, doctor
from cluster.model.settings import Serve
from cluster.model.table import Secret
from cluster.report import Redactor
from tests.build import pair
from tests.fakes.cluster import AT_ONCE, FakeCluster


def examine(cluster: FakeCluster, folder: Path, *secrets: str):
    redact = Redactor(*secrets).text
    return doctor(cluster.settings, cluster.open, cluster.emit, redact, folder, cluster.pace)


def contents(path: str) -> dict[str, str]:
    with tarfile.open(path) as bundle:
        found = {}
        for member in bundle.getmembers():
            file = bundle.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read().decode()
        return found


def test_a_bundle_has_checks_settings_nodes_and_logs(tmp_path):
    cluster = FakeCluster(course=AT_ONCE)
    cluster.start()
    checked, bundle = examine(cluster, tmp_path)
    files = contents(bundle.path)
    assert checked is not None
    assert set(files) == set(bundle.files)
    assert {"preflight.json", "settings.json", "status.json", "receipt.json", "sparkctl.txt"} <= set(files)
    assert {f"{node}/{name}.txt" for node in ("spark-a", "spark-b") for name in QUESTIONS} <= set(files)
    assert len([name for name in files if name.endswith(".log")]) == 2
    assert (bundle.missing, Path(bundle.path).stat().st_mode & 0o777) == ((), 0o600)


def test_no_secret_is_in_it(tmp_path):
    key = "very-secret-key-17"
    cluster = FakeCluster(pair(serve=replace(Serve(model="/models/demo"), api_key=Secret(key))))
    cluster["spark-b"].says = {"hostname": key}
    cluster.plays(1, f"0 says started with {key} and HF_TOKEN=hf_abcdefghijklmnopqrst; 1 exits 1")
    _, bundle = examine(cluster, tmp_path, key)
    everything = "".join(contents(bundle.path).values())
    assert key not in everything
    assert "hf_abcdefghijklmnopqrst" not in everything


def test_a_node_out_of_reach_is_named_and_the_rest_is_there(tmp_path):
    cluster = FakeCluster()
    cluster["spark-b"].gone = True
    checked, bundle = examine(cluster, tmp_path)
    assert checked is None
    assert bundle.missing == (
        "spark-b: no route to host",
        "the checks: they need every node",
        "the receipt of a start: there was none",
    )
    assert "spark-a/addresses.txt" in contents(bundle.path)


def test_a_start_is_not_needed_and_nothing_is_changed(tmp_path):
    cluster = FakeCluster()
    before = {name: dict(host.files) for name, host in cluster.hosts.items()}
    examine(cluster, tmp_path)
    assert {name: dict(host.files) for name, host in cluster.hosts.items()} == before
