"""The developer log never comes between a person and what a verb says."""

import errno
import io
import logging

from cluster.cli.developer_log import keep_log


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_fills_up_costs_only_the_log(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keep_log(0)
    logger = logging.getLogger("cluster")
    (handler,) = logger.handlers
    assert isinstance(handler, logging.StreamHandler)
    written = handler.setStream(FullDisk())
    assert written is not None
    written.close()
    logger.debug("ran something")
    assert capsys.readouterr().err == ""
