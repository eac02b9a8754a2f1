"""`--since`: a UTC time or an age."""

from datetime import UTC, datetime, timedelta

from cluster.errors import SettingsError
from cluster.model.units import parse_duration


def moment(text: str, now: datetime | None = None) -> str:
    """UTC as the logs write it. `10min` and `90s` are ages; a time without a zone is UTC."""
    try:
        seen = (now or datetime.now(UTC)) - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError):
        try:
            seen = datetime.fromisoformat(text)
        except ValueError:
            raise SettingsError(
                f"--since {text}: neither a time nor an age", fix="like 2026-11-30T17:30, or 10min"
            ) from None
    seen = seen.replace(tzinfo=UTC) if seen.tzinfo is None else seen.astimezone(UTC)
    return seen.strftime("%Y-%m-%dT%H:%M:%S.") + f"{seen.microsecond // 1000:03d}Z"
