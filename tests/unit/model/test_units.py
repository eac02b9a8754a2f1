"""Sizes and durations as people write and read them."""

import pytest

from cluster.model.units import format_bytes, format_duration, parse_bytes, parse_duration


@pytest.mark.parametrize(
    ("text", "value"),
    [("2684354560", 2684354560), ("2.5GiB", 2684354560), ("64M", 67108864), ("1 KiB", 1024), ("0", 0), ("7B", 7)],
)
def test_sizes_are_read(text, value):
    assert parse_bytes(text) == value


@pytest.mark.parametrize("text", ["", "1,5", "600_000", "-1", "2.5", "1XB", "GiB", "1e3"])
def test_what_is_not_a_size_is_refused(text):
    with pytest.raises(ValueError, match="size"):
        parse_bytes(text)


@pytest.mark.parametrize(("text", "value"), [("420", 420), ("25min", 1500), ("1.5h", 5400), ("90 s", 90)])
def test_durations_are_read(text, value):
    assert parse_duration(text) == value


@pytest.mark.parametrize("text", ["", "soon", "-3", "3d"])
def test_what_is_not_a_duration_is_refused(text):
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_sizes_and_durations_are_printed_short():
    assert [format_bytes(n) for n in (7, 1536, 106837311488)] == ["7 B", "1.5 KiB", "99.5 GiB"]
    assert [format_duration(n) for n in (4.21, 42, 1500, 1530, 5400, 7200)] == [
        "4.2 s",
        "42 s",
        "25 min",
        "25 min 30 s",
        "1 h 30 min",
        "2 h",
    ]
