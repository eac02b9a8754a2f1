"""The log for developers: JSON lines in the state folder, always at debug level, rotated; `-vv` shows it too."""

import json
import logging
import logging.handlers
import os
import sys
from pathlib import Path

BYTES, KEPT = 2 * 2**20, 3


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        seen = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "from": record.name,
            "pid": record.process,
            "text": record.getMessage(),
        }
        if record.exc_info:
            seen["trace"] = self.formatException(record.exc_info)
        return json.dumps(seen)


def log_path() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "sparkctl" / "sparkctl.log"


def keep_log(verbose: int) -> None:
    """A folder that cannot be written, or a disk that fills up later, only costs the log."""
    logging.raiseExceptions = False  # it would print a traceback for each line
    logger = logging.getLogger("cluster")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    for old in logger.handlers[:]:  # of a verb that ran before in this process
        logger.removeHandler(old)
        old.close()
    path = log_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handler: logging.Handler = logging.handlers.RotatingFileHandler(path, maxBytes=BYTES, backupCount=KEPT)
        path.chmod(0o600)
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    if verbose >= 2:
        shown = logging.StreamHandler(sys.stderr)
        shown.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(shown)
