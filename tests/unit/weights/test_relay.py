"""Where tensors go on a grid, which shards need it, and what a mapping loader would have to copy."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import SettingsError
from cluster.weights.assembly import Copy, as_order, joined
from cluster.weights.relay import PAD, Reach, Rules, Share, alignment, is_overlay, off_grid, relaid, speeds_up
from cluster.weights.safetensors import Header, Tensor, read_header
from tests.packs import linear, shard_bytes, tensors

RULES = Rules(smallest=64)
DTYPES = {"U8": 1, "F16": 2, "I16": 2, "F32": 4, "I32": 4, "F8_E4M3": 1}


def built(data: bytes, order) -> bytes:
    """What the program on the node makes of an order, in three lines."""
    new = bytearray(order.header).ljust(order.size, b"\0")
    for piece in order.pieces:
        new[piece.at : piece.at + piece.length] = data[piece.start : piece.start + piece.length]
    return bytes(new)


@st.composite
def packs(draw):
    names = draw(st.lists(st.text("abé.", min_size=1, max_size=8), unique=True, min_size=1, max_size=6))
    content = {}
    for name in names:
        dtype = draw(st.sampled_from(list(DTYPES)))
        shape = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
        size = DTYPES[dtype]
        for one in shape:
            size *= one
        content[name] = (dtype, shape, draw(st.binary(min_size=size, max_size=size)))
    return shard_bytes(content, pad=draw(st.integers(0, 70)))


@given(packs(), st.sampled_from([8, 64, 256]))
def test_nothing_is_lost_and_all_is_on_the_grid(data, grid):
    header = read_header(data, "s")
    order = relaid("model-1.safetensors", "/s", data, header, Rules(grid))
    new = built(data, order)
    after = read_header(new, "s")
    assert after.size == len(new) == order.size
    assert (8 + struct.unpack("<Q", new[:8])[0]) % grid == 0
    kept = [one for one in after.tensors if not one.name.startswith(PAD)]
    assert [one.name for one in kept if one.start % grid and one.end > one.start] == []
    assert [(one.name, one.dtype, one.shape, new[one.start : one.end]) for one in kept] == [
        (one.name, one.dtype, one.shape, data[one.start : one.end]) for one in header.tensors
    ]


def header(*places: tuple[str, str, int, int]) -> Header:
    made = tuple(Tensor(name, dtype, (end - start,), start, end) for name, dtype, start, end in places)
    return Header(made, max((one.end for one in made), default=0))


@pytest.mark.parametrize(
    ("one", "moves"),
    [
        (("a", "F16", 65, 200), True),
        (("a", "F16", 128, 300), False),
        (("a", "F16", 65, 100), False),  # small
        (("layers.1.engram.embed.weight", "U8", 65, 900), False),
        (("layers.1.engram.wkv.weight", "F8_E4M3", 88, 900), False),
        ((f"{PAD}.0", "U8", 65, 900), False),
    ],
)
def test_only_a_large_tensor_off_the_grid_moves_a_shard(one, moves):
    assert bool(off_grid(header(one), RULES)) is moves


def test_other_parts_of_names_can_be_skipped():
    rules = Rules(smallest=64, skip=("embed",))
    assert off_grid(header(("layers.1.engram.wkv.weight", "F8_E4M3", 88, 900)), rules)


@pytest.mark.parametrize("grid", [0, 4, 48, -64])
def test_a_grid_is_a_power_of_two(grid):
    with pytest.raises(SettingsError, match="power of two"):
        Rules(grid)


def test_neighbours_that_stay_neighbours_are_one_piece():
    assert joined([Copy(0, 10, 64, 4), Copy(0, 14, 68, 6), Copy(0, 20, 128, 1)]) == (
        Copy(0, 10, 64, 10),
        Copy(0, 20, 128, 1),
    )


def test_what_a_mapping_loader_copies():
    told = alignment(
        [
            header(
                ("trellis", "I16", 24, 1024),  # 24 % 16 == 8
                ("weight", "F8_E4M3", 1025, 3000),  # any byte will do
                ("norm", "F16", 3001, 3003),
                ("odd", "F16", 3003, 4003),
                (f"{PAD}.0", "U8", 4003, 9000),
            )
        ],
        smallest=512,
    )
    assert told == (
        Share(Reach.ALIASED, "F8_E4M3", 1975, 1, ("weight",)),
        Share(Reach.COPIED, "F16", 1000, 1, ("odd",)),
        Share(Reach.COPIED, "I16", 1000, 1, ("trellis",)),
        Share(Reach.SMALL, "F16", 2, 1, ("norm",)),
    )


def test_parts_beside_the_shards_are_told_by_their_names():
    names = ("model-00001-of-00017.safetensors", "model.safetensors", "requant_part3.safetensors")
    assert [is_overlay(name) for name in names] == [False, False, True]


def test_an_overlay_without_attention_is_not_the_one_for_this_pack():
    attention = read_header(shard_bytes(linear("layers.0.attn.wq_a", 32, 32, 5)), "s")
    other = read_header(shard_bytes(linear("mtp.0.attn.wq_a", 32, 32, 5)), "s")
    assert speeds_up([other, attention])
    assert not speeds_up([other])


def test_an_order_is_what_the_program_on_the_node_reads():
    data = shard_bytes(tensors(a=("U8", 3), b=("F16", 2)))
    order = relaid("m.safetensors", "/old/m.safetensors", data, read_header(data, "s"), Rules())
    start = len(data) - 7
    assert as_order(order) == (
        b'{"name":"m.safetensors","size":%d,"header":"%s","sources":["/old/m.safetensors"],'
        b'"pieces":[["copy",%d,3,0,%d],["copy",%d,4,0,%d]]}'
        % (
            order.size,
            order.header[8:].replace(b'"', b'\\"'),
            len(order.header),
            start,
            len(order.header) + 64,
            start + 3,
        )
    )
