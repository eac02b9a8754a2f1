"""All layers together, from files to settings: who wins, where each value comes from, what is refused and how."""

from pathlib import Path

import pytest

from cluster.config.load import load
from cluster.config.resolve import Resolved
from cluster.config.texts import Option
from cluster.errors import SettingsError
from cluster.model.need import Need
from cluster.model.settings import NodeSettings, RuntimeKind, Sync


@pytest.fixture
def here(tmp_path):
    """`here(env=…, cluster=…, recipe=…)` writes the files and loads them."""

    def at(env=None, cluster=None, environ=None, options=(), need=Need.NOTHING, mode=0o600, **more) -> Resolved:
        for name, text in ((".env", env), ("cluster.yaml", cluster)):
            if text is not None:
                path = tmp_path / name
                path.write_text(text)
                path.chmod(mode)
        wanted = [Option(name, value, f"option --set {name}") for name, value in options]
        return load(tmp_path, environ=environ or {}, options=wanted, need=need, **more)

    return at


def refused(call, *args, **more) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        call(*args, **more)
    error = caught.value
    return list(error.evidence) or [f"{error}; {error.fix}" if error.fix else str(error)]


def codes(resolved: Resolved) -> list[str]:
    return [caution.code for caution in resolved.warnings]


def test_with_nothing_written_there_are_defaults_and_two_nodes(here):
    found = here()
    assert (found.settings.deployment, found.settings.recipe) == ("main", "")
    assert found.settings.nodes == (NodeSettings(name="head"), NodeSettings(name="worker"))
    assert (dict(found.origins), found.warnings) == ({}, ())


def test_option_beats_environment_beats_file_beats_cluster_beats_recipe_beats_default(here, tmp_path):
    names = ("PORT", "MASTER_PORT", "MAX_NUM_SEQS", "MAX_MODEL_LEN", "TP")
    (tmp_path / "r.yaml").write_text(
        "serve: {port: 1, master_port: 1, max_num_seqs: 1, max_model_len: 1, tensor_parallel: 1}"
    )
    found = here(
        cluster="serve:\n  port: 2\n  master_port: 2\n  max_num_seqs: 2\n  max_model_len: 2\n",
        env="PORT=3\nMASTER_PORT=3\nMAX_NUM_SEQS=3\n",
        environ={"SPARKCTL_PORT": "4", "SPARKCTL_MASTER_PORT": "4"},
        options=[("PORT", "5")],
        recipe="./r.yaml",
    )
    serve = found.settings.serve
    values = (serve.port, serve.master_port, serve.max_num_seqs, serve.max_model_len, serve.tensor_parallel)
    keys = ("port", "master_port", "max_num_seqs", "max_model_len", "tensor_parallel")
    assert dict(zip(names, values, strict=True)) == dict(zip(names, (5, 4, 3, 2, 1), strict=True))
    assert [found.origins[f"serve.{key}"] for key in keys] == [
        "option --set PORT",
        "environment SPARKCTL_MASTER_PORT",
        ".env:3",
        "cluster.yaml:5",
        "recipe r.yaml",
    ]
    assert serve.block_size is None


def test_a_bare_name_in_the_environment_is_ignored_and_said_once(here):
    environ = {"SPARKCTL_WEIGHT_SYNC": "zfs", "WEIGHT_SYNC": "rsync", "HF_HOME": "/var/lib/x", "SPARKCTL_BUILD": "1"}
    with_option = here(env="WEIGHT_SYNC=nfs\n", environ=environ, options=[("WEIGHT_SYNC", "inplace")])
    without = here(environ=environ)
    assert with_option.settings.weights.sync is Sync.INPLACE
    assert with_option.origins["weights.sync"] == "option --set WEIGHT_SYNC"
    assert codes(with_option) == ["bare-environment"]
    assert without.settings.weights.sync is Sync.ZFS
    assert without.origins["weights.sync"] == "environment SPARKCTL_WEIGHT_SYNC"
    assert (without.settings.image.build, without.origins["image.build"]) == (True, "environment SPARKCTL_BUILD")
    assert [str(caution) for caution in without.warnings] == [
        "environment: ignored without the prefix: WEIGHT_SYNC (use SPARKCTL_WEIGHT_SYNC)",
        ".env:1: environment SPARKCTL_WEIGHT_SYNC wins over .env:1 for WEIGHT_SYNC: 'zfs' over 'nfs'",
    ]


def test_file_and_environment_that_agree_are_not_told_apart(here):
    assert codes(here(env="PORT=1\n", environ={"SPARKCTL_PORT": "1"})) == []


def test_windows_line_ends_and_a_byte_order_mark_do_not_reach_a_value(here, tmp_path):
    (tmp_path / ".env").write_bytes(b"\xef\xbb\xbfWORKER_HOST=10.40.0.2\r\n\r\nGID=auto\r\n")
    found = here()
    assert (found.settings.nodes[1].host, found.settings.launch.gid) == ("10.40.0.2", None)
    assert codes(found) == ["bom", "crlf"]


def test_empty_and_unset_are_different(here):
    cluster = "serve: {max_model_len: 5, served_model_name: x}\n"
    assert here(cluster=cluster).settings.serve.max_model_len == 5
    found = here(env="MAX_MODEL_LEN=\nSERVED_MODEL_NAME=\n", cluster=cluster)
    assert (found.settings.serve.max_model_len, found.settings.serve.served_model_name) == (None, "")
    assert found.origins["serve.max_model_len"] == ".env:1"


def test_an_unknown_name_in_the_file_is_said_and_one_like_ours_with_what_was_meant(here):
    env = "MAX_NUM_SEQ=4\nMY_TOOL=1\nOTHER=2\nWORKER_HOME=/home/op\nSPARSE_PATCH_HOST=x\nSPARKCTL_PORT=1\n"
    found = here(env=env)
    assert [str(caution) for caution in found.warnings] == [
        ".env:1: MAX_NUM_SEQ is no setting and is ignored; did you mean MAX_NUM_SEQS?",
        ".env:4: WORKER_HOME is ignored: `~` is expanded on the node itself",
        ".env:5: SPARSE_PATCH_HOST is ignored: no file of a kit is mounted over the engine",
        ".env:6: SPARKCTL_PORT is ignored: in this file the name is PORT",
        ".env: nothing here knows MY_TOOL (line 2), OTHER (line 3)",
    ]


def test_an_unknown_name_with_our_prefix_in_the_environment_is_said(here):
    found = here(environ={"SPARKCTL_PROT": "1", "SPARKCTL_CONFIG": "", "OTHER": "x"})
    assert [str(one) for one in found.warnings] == [
        "environment SPARKCTL_PROT: is no setting and is ignored; did you mean SPARKCTL_PORT?"
    ]


def test_an_unknown_option_is_refused_with_the_nearest_name(here):
    assert refused(here, options=[("PROT", "1")]) == ["option --set PROT: there is no setting PROT; did you mean PORT?"]
    assert refused(here, options=[("serve.prot", "1")]) == [
        "option --set serve.prot: there is no setting serve.prot; did you mean serve.port?"
    ]


def test_an_option_takes_bare_names_and_dotted_keys(here):
    options = [
        ("PORT", "1"),
        ("serve.master_port", "2"),
        ("nodes.1.address", "10.0.0.9"),
        ("head.gid", "5"),
        ("serve.flags.--seed", "3"),
        ("serve.flags.trust_remote_code", "true"),
        ("launch.environment.A_B", "x y"),
    ]
    settings = here(options=options).settings
    assert (settings.serve.port, settings.serve.master_port) == (1, 2)
    assert (settings.nodes[1].address, settings.head.gid) == ("10.0.0.9", 5)
    assert settings.serve.flags == (("seed", ("3",)), ("trust-remote-code", ()))
    assert settings.launch.environment == (("A_B", "x y"),)


def test_the_same_option_twice_with_two_values_is_refused(here):
    assert here(options=[("PORT", "1"), ("serve.port", "1")]).settings.serve.port == 1
    assert refused(here, options=[("PORT", "1"), ("serve.port", "2")]) == [
        "option --set serve.port: serve.port is given twice, with two values; also by option --set PORT"
    ]


def test_everything_that_is_wrong_in_any_layer_is_said_at_once(here):
    found = refused(
        here,
        env="PORT=abc\nMAX_NUM_SEQS=2.0\nX = 5\nHEAD_IP=10.40.0.1\n",
        cluster="serve:\n  prot: 1\n  block_size: big\n",
        environ={"SPARKCTL_TP": "0"},
        options=[("GID", "03")],
        need=Need.SERVE,
    )
    assert found == [
        "cluster.yaml:2: there is no setting serve.prot; did you mean port?",
        ".env:3: X has a blank before `=`; write X=value without blanks",
        "cluster.yaml:3: KV_BLOCK_SIZE 'big' is not a whole number; write decimal digits only",
        ".env:1: PORT 'abc' is not a whole number; write decimal digits only",
        ".env:2: MAX_NUM_SEQS '2.0' is not a whole number; write decimal digits only",
        "environment SPARKCTL_TP: TP 0 is out of bounds; 1 to 1024",
        "option --set GID: NCCL_IB_GID_INDEX '03' is not a GID index; write 0 to 255 in plain decimal, or auto",
        "WORKER_IP is not set: the node's IPv4 address on the fabric; sparkctl init proposes one",
        "MODEL_DIR is not set: the model's folder on every node; set it, or choose a RECIPE",
        "VENV is not set: the virtual environment with vLLM on every node; set it, e.g. VENV=~/vllm",
    ]


def test_one_problem_is_an_error_with_its_place_and_remedy(here):
    with pytest.raises(SettingsError) as caught:
        here(env="X = 5\n")
    error = caught.value
    assert (error.where, error.what, error.fix, error.exit) == (
        ".env:1",
        "X has a blank before `=`",
        "write X=value without blanks",
        2,
    )


def test_a_worker_is_reached_at_its_login_or_its_address(here):
    nodes = [
        here(env=text).settings.nodes[1].control
        for text in (
            "WORKER_IP=10.40.0.2\n",
            "WORKER_IP=10.40.0.2\nWORKER_USER=op\n",
            "WORKER_IP=10.40.0.2\nWORKER_USER=op\nWORKER_HOST=spark-b\n",
            "WORKER_IP=10.40.0.2\nWORKER_USER=op\nWORKER_SSH=me@there:2222\n",
        )
    ]
    assert nodes == ["10.40.0.2", "op@10.40.0.2", "op@spark-b", "me@there:2222"]
    found = here(env="WORKER_IP=10.40.0.2\nWORKER_USER=op\n")
    assert found.origins["worker.control"] == ".env:2, .env:1"


def test_a_head_is_left_to_be_found_unless_it_is_said_how_to_reach_it(here):
    assert here(env="HEAD_IP=10.40.0.1\n").settings.head.control == ""
    assert here(env="HEAD_IP=10.40.0.1\nHEAD_USER=op\n").settings.head.control == "op@10.40.0.1"


def test_one_gid_index_is_the_default_of_both_nodes_and_an_empty_one_is_not_unset(here):
    def gids(text):
        found = here(env=text)
        return [
            (node.gid, found.origins.get(f"{name}.gid"))
            for name, node in zip(("head", "worker"), found.settings.nodes, strict=True)
        ]

    assert gids("NCCL_IB_GID_INDEX=3\n") == [(3, ".env:1"), (3, ".env:1")]
    assert gids("NCCL_IB_GID_INDEX=3\nHEAD_GID=4\n") == [(4, ".env:2"), (3, ".env:1")]
    assert gids("NCCL_IB_GID_INDEX=3\nHEAD_GID=\nWORKER_GID=auto\n") == [(None, ".env:2"), (None, ".env:3")]
    assert gids("") == [(None, None), (None, None)]


def test_a_pattern_of_interfaces_is_ncclls_alone(here):
    found = here(env="NCCL_SOCKET_IFNAME=^lo,docker0\nGLOO_SOCKET_IFNAME=enp1s0f1np1\n")
    assert found.settings.launch.environment == (("NCCL_SOCKET_IFNAME", "^lo,docker0"),)
    assert codes(found) == ["retired"]
    assert refused(here, env="HEAD_CX7_IF=^lo,docker0\n") == [
        ".env:1: HEAD_CX7_IF '^lo,docker0' is not one interface name: no list, no `^`, no prefix"
    ]


def test_nodes_of_cluster_yaml_count_and_have_a_head_a_worker_and_more(here):
    cluster = (
        "nodes:\n  - {address: 10.40.0.1}\n  - {address: 10.40.0.2, control: b}\n  - {address: 10.40.0.3, control: c}\n"
    )
    found = here(cluster=cluster, env="WORKER_GID=5\n", options=[("nodes.2.hca", "rocep1s0f1")])
    assert found.settings.nodes == (
        NodeSettings(name="head", address="10.40.0.1"),
        NodeSettings(name="worker", address="10.40.0.2", control="b", gid=found.settings.nodes[1].gid),
        NodeSettings(name="worker2", address="10.40.0.3", control="c", hca="rocep1s0f1"),
    )
    assert found.settings.nodes[1].gid == 5
    assert found.origins["nodes.2.address"] == "cluster.yaml:4"


def test_the_nodes_of_a_recipe_hold_until_somebody_says_where_a_node_is(here):
    by_recipe = here(recipe="demo").settings
    assert [(node.control, node.address) for node in by_recipe.nodes] == [("local", "127.0.0.1")] * 2
    by_hand = here(recipe="demo", env="HEAD_IP=10.40.0.1\nWORKER_IP=10.40.0.2\n").settings
    assert [(node.control, node.address) for node in by_hand.nodes] == [("", "10.40.0.1"), ("10.40.0.2", "10.40.0.2")]
    elsewhere = here(recipe="demo", env="HEAD_STATE_DIR=/x\n").settings
    assert [(node.control, node.state_dir) for node in elsewhere.nodes] == [
        ("local", "/x"),
        ("local", "~/.local/state/sparkctl"),
    ]


def test_a_list_of_nodes_replaces_that_of_the_recipe(here):
    found = here(recipe="demo", cluster="nodes: [{address: 10.40.0.1}]\n").settings
    assert found.nodes == (NodeSettings(name="head", address="10.40.0.1"),)


def test_names_in_a_map_are_heard_one_by_one(here, tmp_path):
    (tmp_path / "r.yaml").write_text("launch: {environment: {A: 1, B: 1, C: 1}}\nserve: {flags: {a: 1, b: true}}\n")
    found = here(
        recipe="./r.yaml",
        cluster="launch:\n  environment: {B: 2, C: null}\nserve:\n  flags: {b: false, c: [1, 2], d: {x: 1}}\n",
    )
    assert found.settings.launch.environment == (("A", "1"), ("B", "2"))
    assert found.settings.serve.flags == (("a", ("1",)), ("c", ("1", "2")), ("d", ('{"x":1}',)))
    assert found.origins["launch.environment.B"] == "cluster.yaml:2"
    assert found.origins["launch.environment.A"] == "recipe r.yaml"


def test_a_deployment_has_the_name_of_its_recipe_unless_it_has_its_own(here, tmp_path):
    (tmp_path / "My_Recipe.yaml").write_text("summary: x\n")
    assert here(recipe="demo").settings.deployment == "demo"
    assert here(recipe="./My_Recipe.yaml").settings.deployment == "my-recipe"
    assert here(recipe="demo", env="DEPLOYMENT=mine\n").settings.deployment == "mine"


def test_a_recipe_is_named_by_any_layer(here):
    for more in ({"env": "RECIPE=demo\n"}, {"environ": {"SPARKCTL_RECIPE": "demo"}}, {"cluster": "recipe: demo\n"}):
        assert here(**{"env": "", "cluster": "", **more}).settings.serve.served_model_name == "demo"
    assert here(env="RECIPE=nonsense\n", recipe="demo").settings.recipe == "demo"


def test_an_unknown_recipe_is_refused_with_those_there_are(here):
    with pytest.raises(SettingsError) as caught:
        here(env="RECIPE=dmo\n")
    assert (str(caught.value), caught.value.fix) == (".env:1: there is no recipe dmo", "did you mean demo?")
    assert caught.value.evidence == (
        "recipes: demo, dsv4-sparkinfer-1x, dsv4-vision-exl3-1x, dsv41-exl3-2x, dsv41-sage-exl3-1x",
    )


def test_the_recipe_of_the_exl3_kit_is_sound_once_the_nodes_are_named(here):
    found = here(
        env="HEAD_IP=10.40.0.1\nWORKER_IP=10.40.0.2\nWORKER_USER=op\n", recipe="dsv41-exl3-2x", need=Need.SERVE
    )
    assert (found.settings.launch.runtime, found.settings.serve.max_model_len) == (RuntimeKind.CONTAINER, 600000)
    assert found.warnings == ()
    assert found.summary.startswith("DeepSeek-V4.1-Flash")


def test_a_named_file_must_be_there_and_the_usual_ones_need_not(here, tmp_path):
    with pytest.raises(SettingsError) as caught:
        here(env_file=Path("other.env"))
    assert (str(caught.value), caught.value.evidence) == ("other.env: cannot be read", ("No such file or directory",))
    with pytest.raises(SettingsError, match=r"other\.yaml: cannot be read"):
        here(environ={"SPARKCTL_CONFIG": "other.yaml"})
    (tmp_path / "other.env").write_text("PORT=7\n")
    found = here(env="PORT=1\n", environ={"SPARKCTL_ENV_FILE": "other.env"})
    assert (found.settings.serve.port, found.origins["serve.port"]) == (7, "other.env:1")


def test_an_api_key_may_only_stand_in_a_file_that_others_cannot_read(here):
    assert refused(here, env="VLLM_API_KEY=abc\n", mode=0o644) == [
        ".env:1: VLLM_API_KEY is a secret, and other users can read this file; chmod 600 .env"
    ]
    key = here(env="VLLM_API_KEY=abc\n", mode=0o600).settings.serve.api_key
    assert key is not None
    assert key.reveal() == "abc"
    assert codes(here(env="VLLM_API_KEY=\n", mode=0o644)) == []
    assert codes(here(env="HF_TOKEN=abc\n", mode=0o640)) == ["open-secret"]


def test_a_secret_has_no_place_on_the_command_line_or_in_a_shared_file(here):
    assert refused(here, options=[("HF_TOKEN", "abc")]) == [
        "option --set HF_TOKEN: HF_TOKEN is a secret, and anyone on this machine can read command lines; put it in .env"
    ]
    assert refused(here, cluster="weights:\n  hf_token: abc\n") == [
        "cluster.yaml:2: weights.hf_token is a secret, and this file is meant to be shared; put HF_TOKEN in .env"
    ]


def test_a_secret_that_differs_is_said_without_its_value(here):
    found = here(env="HF_TOKEN=hf_one\n", environ={"SPARKCTL_HF_TOKEN": "hf_two"})
    assert [str(one) for one in found.warnings] == [
        ".env:1: environment SPARKCTL_HF_TOKEN wins over .env:1 for HF_TOKEN"
    ]
    assert "hf_two" not in repr(found)


def test_stopping_needs_the_nodes_only(here):
    env = "HEAD_IP=10.40.0.1\nWORKER_IP=10.40.0.2\nTP=7\n"
    assert here(env=env, need=Need.NODES).settings.serve.tensor_parallel == 7
    assert len(refused(here, env=env, need=Need.SERVE)) == 3


def test_a_file_that_cannot_be_read_is_named(here, tmp_path):
    (tmp_path / ".env").mkdir()
    with pytest.raises(SettingsError) as caught:
        here()
    assert (str(caught.value), caught.value.evidence) == (".env: cannot be read", ("Is a directory",))


ONE = "nodes: [{name: head, control: local, address: 127.0.0.1}]\nserve: {tensor_parallel: 1}\n"


def test_a_recipe_for_one_node_stays_one_wherever_it_is_placed(here, tmp_path):
    (tmp_path / "r.yaml").write_text(ONE)
    found = here(env="HEAD_IP=192.0.2.7\nHEAD_SSH=op@spark\n", recipe="./r.yaml")
    assert found.settings.nodes == (NodeSettings(name="head", control="op@spark", address="192.0.2.7"),)
    assert codes(found) == []


def test_a_worker_that_a_recipe_for_one_node_has_no_use_for_is_told(here, tmp_path):
    (tmp_path / "r.yaml").write_text(ONE)
    found = here(env="HEAD_IP=192.0.2.7\nWORKER_IP=192.0.2.8\n", recipe="./r.yaml")
    assert (len(found.settings.nodes), codes(found)) == (1, ["one-node"])


@pytest.mark.parametrize(("number", "nodes"), [("1", 1), ("2", 2)])
def test_nnodes_says_that_there_is_no_worker(here, number, nodes):
    assert len(here(env=f"NNODES={number}\nHEAD_IP=192.0.2.7\n").settings.nodes) == nodes
