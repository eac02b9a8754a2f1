"""Nothing is switched on by itself, and what cannot be meant is refused by its name."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed here")

from spark_overlay.row_store import Engine, Options  # only where torch is
from spark_overlay.settings import EngramSettings, Settings, read_settings

STOCK = Settings(None, False, False, False, 0, 0)


def read(**values):
    return read_settings({f"SPARK_OVERLAY_{name}": value for name, value in values.items()} | {"HOME": "/root"})


def test_without_a_word_the_server_stays_as_it_is():
    assert read() == STOCK
    assert read(ENGRAM="memory", MEMORY_LINES="0", ENGRAM_DEPTH="") == STOCK


def test_tables_in_files_have_a_place():
    assert read(ENGRAM="file", ENGRAM_PACKED="/nvme/engram") == Settings(
        EngramSettings(Path("/nvme/engram"), None, Options(), 0.0), False, False, False, 0, 0
    )


def test_every_value_is_read():
    values = {
        "ENGRAM": "file",
        "ENGRAM_PACKED": "/a",
        "ENGRAM_SOURCE": "/b",
        "ENGRAM_ENGINE": "libaio",
        "ENGRAM_DEPTH": "128",
        "ENGRAM_CACHE_BYTES": "1024",
        "ENGRAM_RESIDENT_SCALES": "1",
        "ENGRAM_CHECK_PAGES": "0",
        "ENGRAM_REPORT_SECONDS": "60",
        "MEMORY_LINES": "1",
        "DROP_PAGE_CACHE": "1",
        "STAGED_LOAD": "1",
        "RELEASE_FROM_TOKENS": "8192",
        "RELEASE_BELOW_BYTES": "2684354560",
    }
    options = Options(Engine.LIBAIO, 128, check=False, resident_scales=True, cache_bytes=1024)
    assert read(**values) == Settings(
        EngramSettings(Path("/a"), Path("/b"), options, 60.0), True, True, True, 8192, 2684354560
    )


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"ENGRAM": "disk"}, "ENGRAM must be"),
        ({"ENGRAM": "file"}, "needs SPARK_OVERLAY_ENGRAM_PACKED"),
        ({"ENGRAM_ENGINE": "spdk"}, "ENGRAM_ENGINE must be one of probe, io_uring, libaio, threads"),
        ({"ENGRAM_DEPTH": "-1"}, "ENGRAM_DEPTH must be a number"),
        ({"MEMORY_LINES": "yes"}, "MEMORY_LINES must be 0 or 1"),
        ({"MEMORY_LINE": "1"}, "SPARK_OVERLAY_MEMORY_LINE is no setting"),
    ],
)
def test_what_cannot_be_meant_is_refused(values, name):
    with pytest.raises(ValueError, match=name):
        read(**values)
