"""The one table: every knob of the published kits is in it, no name stands for two things, every default is allowed."""

from collections import Counter
from pathlib import Path

import pytest

from cluster.model.kit import RETIRED, RETIRED_ENDING, Sync
from cluster.model.settings import SECTIONS, NodeSettings, Settings, node_key, table
from cluster.model.table import Secret
from cluster.model.values import parse, plain_kind, show

# What the launcher of the two-Spark kits reads.
KNOBS = (Path(__file__).parents[2] / "golden" / "kit-names.txt").read_text().split()


def names() -> list[str]:
    return [name for row in table() for name in (row.meta.env, *row.meta.aliases) if name]


def test_every_knob_of_the_kits_is_known():
    known = {*names(), *RETIRED}
    assert [name for name in KNOBS if name not in known and not name.endswith(RETIRED_ENDING[0])] == []


def test_no_name_and_no_variable_stands_for_two_settings():
    variables = [row.meta.variable for row in table() if row.meta.variable]
    flags = [row.meta.flag for row in table() if row.meta.flag]
    for found in (names(), variables, flags, [row.key for row in table()]):
        assert [name for name, times in Counter(found).items() if times > 1] == []
    assert not {*names()} & {*RETIRED}


@pytest.mark.parametrize("row", table(), ids=lambda row: row.key)
def test_every_default_is_what_its_own_text_means(row):
    if row.key in ("serve.flags", "launch.environment"):
        assert row.default == ()
    elif row.default is None:
        assert plain_kind(row.kind)[1]
        assert parse(row, "") is None
    else:
        assert parse(row, show(row.default)) == row.default


@pytest.mark.parametrize("row", table(), ids=lambda row: row.key)
def test_every_setting_says_what_it_is(row):
    assert row.meta.help
    assert not row.meta.help.endswith(".")
    assert not row.meta.pattern or row.meta.allowed


def test_the_tree_of_the_table_can_be_made_from_its_defaults():
    sections = {name: cls() for name, cls in SECTIONS.items()}
    settings = Settings(deployment="x", recipe="", nodes=(NodeSettings(), NodeSettings()), **sections)
    assert (settings.head, settings.workers) == (NodeSettings(), (NodeSettings(),))
    assert hash(settings) == hash(settings)


def test_nodes_are_called_head_and_worker_then_by_number():
    assert [node_key(index) for index in range(4)] == ["head", "worker", "nodes.2", "nodes.3"]


def test_a_secret_shows_itself_to_nobody():
    secret = Secret("hf_abc")
    assert [str(secret), repr(secret), f"{secret}", f"{(secret,)}"] == ["***", "Secret(***)", "***", "(Secret(***),)"]
    assert secret.reveal() == "hf_abc"
    assert (secret == Secret("hf_abc"), secret == Secret("x"), secret == "hf_abc") == (True, False, False)


def test_the_older_name_of_nfs_still_means_nfs():
    assert Sync("share") is Sync.NFS
