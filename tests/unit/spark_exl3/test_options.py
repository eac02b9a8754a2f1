"""The server's command line and variables."""

from pathlib import Path

import pytest

from spark_exl3.options import Options, Unusable, options


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/config.json").write_text("{}")
    return tmp_path / "pack"


def test_a_folder_is_enough_and_only_this_machine_is_answered(pack):
    expected = Options(pack, "pack", "127.0.0.1", 5000, 6144, 2048, False, "cuda:0", None, 64, "")
    assert options(["--model", str(pack)], {}) == expected


def test_the_variables_of_a_profile_are_read_and_words_win_over_them(pack):
    said = {"EXL3_MODEL_DIR": str(pack), "CTX": "512", "EXL3_CACHE_TOKENS": "512", "CHUNK": "4096", "EXL3_MTP": "1"}
    read = options([], said)
    assert (read.context, read.chunk, read.drafts) == (512, 4096, True)
    assert options(["--no-drafts", "--context", "1024"], said).context == 1024
    assert options(["--no-drafts"], said).drafts is False


def test_the_key_comes_from_a_file_or_from_the_variable_that_sparkctl_sets(pack, tmp_path):
    (tmp_path / "key").write_text("sesame\n")
    words = ["--model", str(pack), "--api-key-file", str(tmp_path / "key")]
    assert options(words, {"VLLM_API_KEY": "other"}).key == "sesame"
    assert options(words[:2], {"VLLM_API_KEY": "other"}).key == "other"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "no model: give --model FOLDER, or set EXL3_MODEL_DIR"),
        (["--model", "/nowhere"], "/nowhere holds no model: there is no config.json in it"),
        (["--context", "1000"], "a context of 1000 tokens is no multiple of 256, the page of the cache"),
        (["--chunk", "0"], "a step of 0 tokens is no multiple of 256, the page of the cache"),
        (["--api-key-file", "/nowhere/key"], "the key in /nowhere/key cannot be read: No such file or directory"),
        (["--api-key-file", "/dev/null"], "/dev/null is empty, and would leave the server open"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_loaded(pack, words, told):
    given = words if not words or "--model" in words else ["--model", str(pack), *words]
    with pytest.raises(Unusable) as caught:
        options(given, {})
    assert str(caught.value) == told
