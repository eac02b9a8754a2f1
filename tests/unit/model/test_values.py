"""Texts to values: what is a number, a size, a switch, a path, and what is refused with a hint."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.model.kit import GuardMode
from cluster.model.settings import Sync, table
from cluster.model.table import Secret
from cluster.model.values import bounds, parse, plain, show

ROWS = {name: row for row in table() for name in (row.meta.env, *row.meta.aliases) if name}


def value(name, text):
    try:
        return parse(ROWS[name], text)
    except ValueError:
        return "refused"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("MAX_NUM_SEQS", "two", "refused"),
        ("MAX_NUM_SEQS", "2.0", "refused"),
        ("MAX_NUM_SEQS", "2 ", 2),
        ("MAX_NUM_SEQS", "0", "refused"),
        ("MAX_NUM_SEQS", "4097", "refused"),
        ("MAX_NUM_SEQS", "+2", "refused"),
        ("MAX_NUM_SEQS", "-2", "refused"),
        ("MAX_NUM_SEQS", "٢", "refused"),
        ("DSV41_MEM_GUARD_GIB", "1,5", "refused"),
        ("DSV41_MEM_GUARD_GIB", "1.5", Decimal("1.5")),
        ("DSV41_MEM_GUARD", "0", GuardMode.OFF),
        ("DSV41_MEM_GUARD", "1", GuardMode.ACT),
        ("DSV41_MEM_GUARD", "watch", GuardMode.WATCH),
        ("DSV41_MEM_GUARD", "2", "refused"),
        ("DSV41_BOOT_MARGIN_GIB", "", None),
        ("KV_CACHE_MEMORY_BYTES", "2.5GiB", 2684354560),
        ("KV_CACHE_MEMORY_BYTES", "2684354560", 2684354560),
        ("KV_CACHE_MEMORY_BYTES", "64M", 67108864),
        ("KV_CACHE_MEMORY_BYTES", "0", "refused"),
        ("KV_CACHE_MEMORY_BYTES", "٢GiB", "refused"),
        ("BUILD", "yes", True),
        ("BUILD", "ON", True),
        ("BUILD", "1", True),
        ("BUILD", "0", False),
        ("BUILD", "No", False),
        ("BUILD", "2", "refused"),
        ("BUILD", "maybe", "refused"),
        ("BUILD", "", "refused"),
        ("MAX_MODEL_LEN", "600_000", "refused"),
        ("MAX_MODEL_LEN", "0600000", 600000),
        ("MAX_MODEL_LEN", "1048577", "refused"),
        ("MAX_MODEL_LEN", "", None),
        ("MAX_NUM_BATCHED_TOKENS", "18446744073709551615", "refused"),
        ("MAX_NUM_BATCHED_TOKENS", "9" * 10000, "refused"),
        ("GPU_MEM_UTIL", "0.87", Decimal("0.87")),
        ("GPU_MEM_UTIL", ".87", Decimal("0.87")),
        ("GPU_MEM_UTIL", "1", Decimal(1)),
        ("GPU_MEM_UTIL", "1.0", Decimal(1)),
        ("GPU_MEM_UTIL", "0", "refused"),
        ("GPU_MEM_UTIL", "1.01", "refused"),
        ("GPU_MEM_UTIL", "nan", "refused"),
        ("GPU_MEM_UTIL", "8e-1", "refused"),
        ("GLM53_INDEXER_WORKSPACE", "rightsize", "rightsize"),
        ("GLM53_INDEXER_WORKSPACE", "Stock", "refused"),
        ("GLM53_SPINWAIT_MS", "stock", "stock"),
        ("GLM53_SPINWAIT_MS", "0010", "0010"),
        ("GLM53_SPINWAIT_MS", "1001", "refused"),
        ("GLM53_SPINWAIT_MS", "1.5", "refused"),
        ("GLM53_SPINWAIT_MS", "STOCK", "refused"),
        ("PREFIX_CACHE_RETENTION_INTERVAL", "4096", 4096),
        ("PREFIX_CACHE_RETENTION_INTERVAL", "0", 0),
        ("PREFIX_CACHE_RETENTION_INTERVAL", "100", "refused"),
        ("PREFIX_CACHE_RETENTION_INTERVAL", "1048704", "refused"),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "86401", "refused"),
        ("DSV41_EXL3_MOE_X", "2,12,8", "2,12,8"),
        ("DSV41_EXL3_MOE_X", "2,12", "refused"),
        ("DSV41_EXL3_PRETUNE_SIZES", "1,2,4", (1, 2, 4)),
        ("DSV41_EXL3_PRETUNE_SIZES", "1,x", "refused"),
        ("READY_TIMEOUT", "25min", 1500.0),
        ("READY_TIMEOUT", "1500", 1500.0),
        ("READY_TIMEOUT", "0", "refused"),
        ("READY_TIMEOUT", "soon", "refused"),
        ("WEIGHT_SYNC", "share", Sync.NFS),
        ("WEIGHT_SYNC", "NFS", "refused"),
        ("EXTRA_ARGS", "--a 'b c' --d", ("--a", "b c", "--d")),
        ("EXTRA_ARGS", "--a 'b", "refused"),
        ("EXTRA_ARGS", "", ()),
        ("MODEL_DIR", "~/model", "~/model"),
        ("MODEL_DIR", "/srv/two words", "/srv/two words"),
        ("MODEL_DIR", "./model", "refused"),
        ("MODEL_DIR", "~op/model", "refused"),
        ("MODEL_DIR", "$HOME/model", "refused"),
        ("MODEL_DIR", "/a\nb", "refused"),
        ("MODEL_DIR", "", ""),
        ("HEAD_CX7_IF", "enp1s0f1np1", "enp1s0f1np1"),
        ("HEAD_CX7_IF", "^lo,docker0", "refused"),
        ("HEAD_CX7_IF", "a,b", "refused"),
        ("HEAD_CX7_IB", "rocep1s0f1,roceP2p1s0f1:1", "rocep1s0f1,roceP2p1s0f1:1"),
        ("HEAD_CX7_IB", "^=rocep1s0f1:1:0:0", "^=rocep1s0f1:1:0:0"),
        ("HEAD_CX7_IB", "--x", "refused"),
        ("HEAD_CX7_IB", "=^rocep1s0f1", "refused"),
        ("HEAD_CX7_IB", "^", "refused"),
        ("HEAD_CX7_IB", "rocep1s0f1, roceP2p1s0f1", "refused"),
        ("HF_TOKEN", "hf_abc", Secret("hf_abc")),
        ("DEPLOYMENT", "my-model-2", "my-model-2"),
        ("DEPLOYMENT", "My model", "refused"),
        ("DEPLOYMENT", "a" * 41, "refused"),
    ],
)
def test_a_text_is_this_value_or_refused(name, text, expected):
    assert value(name, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("auto", None),
        ("", None),
        ("3", 3),
        ("0", 0),
        ("255", 255),
        ("256", "refused"),
        ("03", "refused"),
        ("010", "refused"),
        ("08", "refused"),
        ("0x3", "refused"),
        ("3 # note", "refused"),
        ("-1", "refused"),
    ],
)
@pytest.mark.parametrize("name", ["HEAD_GID", "WORKER_GID", "NCCL_IB_GID_INDEX", "GID"])
def test_a_gid_index_is_plain_decimal_or_is_found(name, text, expected):
    assert value(name, text) == expected


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("MAX_NUM_SEQS", "two", "'two' is not a whole number; write decimal digits only"),
        ("MAX_NUM_SEQS", "4097", "4097 is out of bounds; 1 to 4096"),
        ("GPU_MEM_UTIL", "0", "0 is out of bounds; more than 0, at most 1"),
        ("DSV41_MEM_GUARD_GIB", "1,5", "'1,5' is not a number; write digits with a dot, e.g. 1.5"),
        ("BUILD", "", "is empty; give a value, or remove the line to have the default"),
        ("WEIGHT_SYNC", "nsf", "'nsf' is not one of inplace, nfs, zfs, rsync, auto"),
        ("PREFIX_CACHE_RETENTION_INTERVAL", "100", "100 is not a multiple of 128"),
        ("MODEL_DIR", "model", "'model' is neither absolute nor under `~/`: it is a path on the nodes"),
    ],
)
def test_a_refusal_says_what_is_allowed(name, text, said):
    with pytest.raises(ValueError) as caught:
        parse(ROWS[name], text)
    assert str(caught.value) == said


def test_a_list_for_one_value_is_refused():
    with pytest.raises(ValueError, match="not a list"):
        parse(ROWS["PORT"], ("1", "2"))


@given(st.integers(1, 65535), st.sampled_from(["", " ", "\t"]), st.integers(0, 4))
def test_any_port_is_read_with_blanks_and_leading_zeros(port, blank, zeros):
    assert value("PORT", f"{blank}{'0' * zeros}{port}{blank}") == port


@given(st.text(max_size=30))
def test_any_text_is_a_value_or_a_refusal_for_every_setting(text):
    for name in ROWS:
        value(name, text)


@given(st.lists(st.text(max_size=20), max_size=5))
def test_arguments_are_shown_as_they_would_be_read(words):
    shown = show(tuple(words))
    assert value("EXTRA_ARGS", shown) == tuple(words)


@pytest.mark.parametrize(
    ("given_value", "text", "json"),
    [
        (None, "", None),
        (True, "1", True),
        (False, "0", False),
        (1500.0, "1500", 1500.0),
        (Decimal("0.88"), "0.88", 0.88),
        (Secret("x"), "***", "***"),
        (Sync.NFS, "nfs", "nfs"),
        ((1, 2), "1,2", [1, 2]),
        (("--a", "b c"), "--a 'b c'", ["--a", "b c"]),
        ((("A", "1"), ("B", "x")), "A=1 B=x", {"A": "1", "B": "x"}),
        ((("a", ()), ("b", ("1", "2"))), "a= b=1 2", {"a": [], "b": ["1", "2"]}),
    ],
)
def test_a_value_is_shown_to_people_and_to_machines(given_value, text, json):
    assert (show(given_value), plain(given_value)) == (text, json)


def test_bounds_are_said_in_words():
    found = {name: bounds(ROWS[name].meta) for name in ("PORT", "GPU_MEM_UTIL", "EXL3_TEMP_ROWS_FUSED")}
    assert found == {
        "PORT": "1 to 65535",
        "GPU_MEM_UTIL": "more than 0, at most 1",
        "EXL3_TEMP_ROWS_FUSED": "at least 1",
    }
