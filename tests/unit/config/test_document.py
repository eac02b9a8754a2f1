"""cluster.yaml and recipes: unknown keys, wrong shapes, duplicates and tags, each with its line."""

import pytest

from cluster.config.document import Document
from cluster.config.layers import Given, Rank
from cluster.config.sources import parse_yaml
from cluster.errors import SettingsError
from cluster.model.table import Problem


def read(text: str, rank: Rank = Rank.CLUSTER):
    where = "cluster.yaml" if rank is Rank.CLUSTER else "recipe x"
    label = "cluster.yaml" if rank is Rank.CLUSTER else "x"
    return Document(where, label, rank).layer(parse_yaml(text.encode(), where))


def test_values_keep_their_text_and_their_line():
    layer = read(
        "deployment: mine\n"
        "serve:\n"
        "  port: 8000\n"
        "  enforce_eager: yes\n"
        "  gpu_memory_utilization: 0.880\n"
        "  extra_args: [--seed, 3]\n"
        "  max_model_len: null\n"
        "  limit_mm: '{\"image\":1}'\n"
    )
    assert layer.problems == ()
    assert layer.given == (
        Given("deployment", "mine", "cluster.yaml:1"),
        Given("serve.port", "8000", "cluster.yaml:3"),
        Given("serve.enforce_eager", "yes", "cluster.yaml:4"),
        Given("serve.gpu_memory_utilization", "0.880", "cluster.yaml:5"),
        Given("serve.extra_args", ("--seed", "3"), "cluster.yaml:6"),
        Given("serve.max_model_len", None, "cluster.yaml:7"),
        Given("serve.limit_mm", '{"image":1}', "cluster.yaml:8"),
    )


def test_an_empty_file_and_an_empty_section_say_nothing():
    assert read("").given == read("# only a comment\n").given == read("serve:\n").given == ()
    assert read("serve:\n").problems == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("serv: {port: 1}", Problem("cluster.yaml:1", "there is no section serv", "did you mean serve?")),
        ("port: 1", Problem("cluster.yaml:1", "there is no section port", "put port below serve")),
        ("summary: x", Problem("cluster.yaml:1", "there is no section summary")),
        ("serve:\n  prot: 1", Problem("cluster.yaml:2", "there is no setting serve.prot", "did you mean port?")),
        ("serve:\n  qqqqq: 1", Problem("cluster.yaml:2", "there is no setting serve.qqqqq")),
        ("serve: [1]", Problem("cluster.yaml:1", "serve wants a map of settings")),
        ("serve:\n  port: [1]", Problem("cluster.yaml:2", "serve.port wants one value, not a list")),
        ("serve:\n  port: {a: 1}", Problem("cluster.yaml:2", "serve.port wants one value, not a map")),
        ("serve:\n  extra_args: [[1]]", Problem("cluster.yaml:2", "serve.extra_args wants a list of plain values")),
        (
            "launch:\n  nccl_debug: off",
            Problem(
                "cluster.yaml:2", "launch.nccl_debug wants a text, and YAML reads off as yes or no", "put it in quotes"
            ),
        ),
        (
            "serve:\n  enforce_eager: maybe",
            Problem("cluster.yaml:2", "serve.enforce_eager wants true or false, not 'maybe'"),
        ),
        ("nodes: {a: 1}", Problem("cluster.yaml:1", "nodes wants a list with one map for each node, the head first")),
        ("nodes: []", Problem("cluster.yaml:1", "nodes wants a list with one map for each node, the head first")),
        ("nodes:\n  - x", Problem("cluster.yaml:2", "node 0 wants a map of settings, e.g. address")),
        (
            "nodes:\n  - {adress: x}",
            Problem("cluster.yaml:2", "a node has no setting adress", "did you mean address?"),
        ),
        ("serve:\n  flags: [a]", Problem("cluster.yaml:2", "serve.flags wants a map of names to values")),
        ("serve:\n  flags: {'a b': 1}", Problem("cluster.yaml:2", "a b is no name for serve.flags")),
        (
            "launch:\n  environment: {A: true}",
            Problem(
                "cluster.yaml:2",
                "launch.environment.A wants a text, and YAML reads true as yes or no; put it in quotes",
            ),
        ),
        (
            "launch:\n  environment: {A: [1]}",
            Problem("cluster.yaml:2", "launch.environment.A wants one value, not a list"),
        ),
        ("launch:\n  environment: {A-B: 1}", Problem("cluster.yaml:2", "A-B is no name for launch.environment")),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text, problem):
    assert read(text).problems == (problem,)


def test_all_that_is_wrong_in_a_file_is_said():
    assert [one.where for one in read("a: 1\nserve:\n  x1: 1\n  y1: 2\nnodes: 3\n").problems] == [
        "cluster.yaml:1",
        "cluster.yaml:3",
        "cluster.yaml:4",
        "cluster.yaml:5",
    ]


def test_flags_are_a_value_a_list_a_map_or_true():
    layer = read(
        "serve:\n"
        "  flags:\n"
        "    tokenizer-mode: deepseek_v41\n"
        "    --tool_call_parser: x\n"
        "    enable-a: true\n"
        "    enable-b: false\n"
        "    sizes: [1, 2]\n"
        "    overrides: {a: 1, b: [true, null, 'x'], c: 1.5}\n"
    )
    assert [(given.key.removeprefix("serve.flags."), given.raw) for given in layer.given] == [
        ("tokenizer-mode", ("deepseek_v41",)),
        ("tool-call-parser", ("x",)),
        ("enable-a", ()),
        ("enable-b", None),
        ("sizes", ("1", "2")),
        ("overrides", ('{"a":1,"b":[true,null,"x"],"c":1.5}',)),
    ]


def test_anchors_and_merges_are_understood():
    layer = read(
        "nodes:\n  - &spark {user: op, hca: rocep1s0f1}\n  - <<: *spark\n    hca: rocep1s0f0\n    address: 10.40.0.2\n"
    )
    assert layer.problems == ()
    assert [(given.key, given.raw) for given in layer.given] == [
        ("head.user", "op"),
        ("head.hca", "rocep1s0f1"),
        ("worker.user", "op"),
        ("worker.hca", "rocep1s0f0"),
        ("worker.address", "10.40.0.2"),
    ]
    assert layer.nodes == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("serve:\n  port: 1\n  host: x\n  port: 2\n", "cluster.yaml:4: port stands on lines 2 and 4"),
        ("serve: {}\nserve: {}\n", "cluster.yaml:2: serve stands on lines 1 and 2"),
        ("- a\n", "cluster.yaml: is not a map of names to values"),
        ("just text\n", "cluster.yaml: is not a map of names to values"),
        ("a: [1\nb: 2\n", "cluster.yaml:2: is not YAML: expected ',' or ']', but got ':'"),
        ("a: 1\n---\nb: 2\n", "cluster.yaml:2: is not YAML: but found another document"),
        (
            "a: !!python/object/apply:os.system [x]\n",
            "cluster.yaml:1: the tag !!python/object/apply:os.system is not allowed",
        ),
        ("a: !custom x\n", "cluster.yaml:1: the tag !custom is not allowed"),
        ("a: !!binary aGk=\n", "cluster.yaml:1: the tag !!binary is not allowed"),
        ("a: &x {b: *x}\n", "cluster.yaml:1: an anchor contains itself"),
        ("? [a]\n: 1\n", "cluster.yaml:1: a key is a list or a map"),
        ("serve:\n  <<: 3\n", "cluster.yaml:2: `<<` wants a map, or a list of maps"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused_with_its_line(text, said):
    with pytest.raises(SettingsError) as caught:
        read(text)
    assert str(caught.value) == said


def test_aliases_that_would_grow_without_end_are_refused():
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 9))
    with pytest.raises(SettingsError, match="has more values, aliases written out, than any settings file"):
        read(f"l0: &l0 [x, x]\n{levels}")


def test_a_file_that_is_nested_too_deeply_is_refused():
    with pytest.raises(SettingsError) as caught:
        read("a: " + "[" * 5000)
    assert str(caught.value) == "cluster.yaml: is nested too deeply"
    with pytest.raises(SettingsError) as caught:
        read("a: " + "[" * 60 + "]" * 60)
    assert str(caught.value) == "cluster.yaml:1: is nested too deeply"


def test_bytes_that_are_no_utf8_are_refused():
    with pytest.raises(SettingsError, match="is not UTF-8"):
        parse_yaml(b"a: \xff\n", "cluster.yaml")


def test_a_recipe_has_a_summary_names_itself_as_the_origin_and_names_no_other():
    layer = read("summary: Small\nrecipe: other\nserve:\n  port: 1\n", Rank.RECIPE)
    assert layer.summary == "Small"
    assert layer.given == (Given("serve.port", "1", "recipe x"),)
    assert layer.problems == (Problem("recipe x:2", "a recipe cannot name another recipe"),)
