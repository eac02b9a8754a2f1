"""The header program on files of its own: it reads headers, and says which files it could not."""

import json
import struct
from pathlib import Path

from cluster.agent.headers import group_of, look


def write(path: Path, tensors: dict[str, int], cut: int = 0) -> None:
    entries, at = {}, 0
    for name, size in tensors.items():
        entries[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    header = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    path.write_bytes((struct.pack("<Q", len(header)) + header + bytes(at))[: -cut or None])


def test_the_first_number_of_a_name_is_its_layer():
    assert [
        group_of(name) for name in ("layers.3.ffn.experts.17.w1.trellis", "embed.weight", "mtp.0.attn.wo_a.slice.2.suh")
    ] == [
        ("layers.#.ffn.experts.*.w1.trellis", 3),
        ("embed.weight", None),
        ("mtp.#.attn.wo_a.slice.*.suh", 0),
    ]


def test_a_number_inside_a_word_is_no_layer():
    assert group_of("w1.weight") == ("w1.weight", None)


def test_experts_are_summed_and_equal_layers_told_once(tmp_path):
    write(tmp_path / "a.safetensors", {f"layers.{layer}.experts.{e}.w1": 10 for layer in (0, 1) for e in (0, 1, 2)})
    write(tmp_path / "b.safetensors", {"layers.2.experts.0.w1": 7, "norm.weight": 4})
    (tmp_path / "config.json").write_text('{"model_type": "x", "rows": [1, 2], "text_config": {"layers": 3}}')
    assert look(str(tmp_path)) == {
        "present": True,
        "files": 2,
        "groups": [
            ["layers.#.experts.*.w1", 0, 1, 3, 30],
            ["layers.#.experts.*.w1", 2, 2, 1, 7],
            ["norm.weight", None, None, 1, 4],
        ],
        "problems": [],
        "config": {"model_type": "x", "text_config": {"layers": 3}},
    }


def test_only_the_files_that_the_index_names_are_read(tmp_path):
    write(tmp_path / "model-1.safetensors", {"norm.weight": 4})
    write(tmp_path / "consolidated.safetensors", {"norm.weight": 4})
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"norm.weight": "model-1.safetensors"}}')
    assert (look(str(tmp_path))["files"], look(str(tmp_path))["groups"]) == (1, [["norm.weight", None, None, 1, 4]])


def test_what_cannot_be_read_is_said_and_the_rest_is_counted(tmp_path):
    write(tmp_path / "cut.safetensors", {"norm.weight": 40}, cut=8)
    (tmp_path / "page.safetensors").write_bytes(b"<!DOCTYPE html><html>")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    write(tmp_path / "good.safetensors", {"embed.weight": 4})
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    seen = look(str(tmp_path))
    assert [problem.split(":")[0] for problem in seen["problems"]] == [
        "cut.safetensors",
        "empty.safetensors",
        "page.safetensors",
    ]
    assert ["embed.weight", None, None, 1, 4] in seen["groups"]


def test_a_file_that_the_index_names_and_is_not_there_is_said(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"x": "model-1.safetensors"}}')
    assert look(str(tmp_path))["problems"] == ["model-1.safetensors: No such file or directory"]


def test_no_folder_is_not_present(tmp_path):
    assert look(str(tmp_path / "none"))["present"] is False
