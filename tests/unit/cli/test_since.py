"""`--since`: an age or a time becomes UTC as the logs write it."""

from datetime import UTC, datetime

import pytest

from cluster.cli.since import moment
from cluster.errors import SettingsError

NOW = datetime(2026, 11, 30, 17, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("10min", "2026-11-30T17:20:00.000Z"),
        ("90s", "2026-11-30T17:28:30.000Z"),
        ("90", "2026-11-30T17:28:30.000Z"),
        ("1.5h", "2026-11-30T16:00:00.000Z"),
        ("0", "2026-11-30T17:30:00.000Z"),
        ("2026-11-30T17:05", "2026-11-30T17:05:00.000Z"),
        ("2026-11-30 17:05:06.789", "2026-11-30T17:05:06.789Z"),
        ("2026-11-30T17:05:06Z", "2026-11-30T17:05:06.000Z"),
        ("2026-11-30T18:05:06+01:00", "2026-11-30T17:05:06.000Z"),
        ("2026-11-30", "2026-11-30T00:00:00.000Z"),
    ],
)
def test_an_age_or_a_time_is_read_as_utc(text, utc):
    assert moment(text, NOW) == utc


@pytest.mark.parametrize("text", ["yesterday", "", "17:30", "10 weeks", "2026-13-01", "99999999999h"])
def test_anything_else_is_refused_with_an_example(text):
    with pytest.raises(SettingsError) as caught:
        moment(text, NOW)
    assert caught.value.fix == "like 2026-11-30T17:30, or 10min"


def test_what_the_log_line_begins_with_can_be_given_back():
    assert moment("2026-11-30T17:30:00.123Z", NOW) == "2026-11-30T17:30:00.123Z"
