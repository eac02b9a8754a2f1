"""Headers of good files, and the name of what is wrong with the others."""

import json
import struct

import pytest

from cluster.weights.safetensors import BadShard, Fault, Header, Tensor, check_size, header_end, read_header


def shard(entries, data: int, pad: int = 0) -> bytes:
    header = json.dumps(entries, separators=(",", ":")).encode().ljust(pad)
    return struct.pack("<Q", len(header)) + header + bytes(data)


# 8 + 176 + 48 bytes, as the library writes it: the header is padded with blanks.
GOOD = shard(
    {
        "__metadata__": {"format": "pt"},
        "scale": {"dtype": "F8_E8M0", "shape": [2, 8], "data_offsets": [32, 48]},
        "weight": {"dtype": "BF16", "shape": [4, 4], "data_offsets": [0, 32]},
    },
    data=48,
    pad=176,
)


def judge(data: bytes, size: int) -> Header:
    """What a reader does: the length first, then the header, then the size of the file."""
    read_header(data[: header_end(data[:200], "s")], "s")
    header = read_header(data, "s")
    check_size(header, size, "s")
    return header


def test_every_tensor_has_its_place_in_the_file():
    assert judge(GOOD, 232) == Header(
        (Tensor("weight", "BF16", (4, 4), 184, 216), Tensor("scale", "F8_E8M0", (2, 8), 216, 232)), 232
    )


def test_a_tensor_is_found_by_its_name():
    header = judge(GOOD, 232)
    assert header.tensor("scale") == Tensor("scale", "F8_E8M0", (2, 8), 216, 232)
    assert header.tensor("bias") is None


def test_eight_bytes_tell_how_long_the_header_is():
    assert header_end(GOOD[:8], "s") == 184


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (GOOD[:231], Fault.TRUNCATED),
        (GOOD[:200], Fault.TRUNCATED),
        (GOOD[:60], Fault.TRUNCATED_HEADER),
        (GOOD[:7], Fault.NOT_SAFETENSORS),
        (b"", Fault.EMPTY),
        (GOOD.ljust(248, b"\0"), Fault.TRAILING_BYTES),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 5\n", Fault.LFS_POINTER),
        (b"version ", Fault.LFS_POINTER),
        (b"<!doctype html><html>", Fault.NOT_SAFETENSORS),
        (bytes(232), Fault.BAD_HEADER),
    ],
)
def test_what_is_wrong_has_a_name(data, fault):
    with pytest.raises(BadShard) as refused:
        judge(data, len(data))
    assert (refused.value.fault, refused.value.where) == (fault, "s")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0]},
        {"dtype": "F32", "shape": [1]},
        "a sentence",
    ],
)
def test_a_header_that_contradicts_itself_is_damaged(entry):
    with pytest.raises(BadShard) as refused:
        read_header(shard({"x": entry}, 16), "s")
    assert refused.value.fault is Fault.BAD_HEADER


def test_tensors_may_not_overlap():
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    with pytest.raises(BadShard) as refused:
        read_header(shard({"x": entry, "y": dict(entry, data_offsets=[4, 12])}, 16), "s")
    assert refused.value.evidence == ("y begins at byte 120, not at 124",)
