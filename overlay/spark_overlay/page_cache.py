"""Give back the page cache of the weights' files once they are loaded: on a GB10 the GPU takes from free memory only.

Only files of the model's own folder are dropped, and by the way that needs no rights. What is still mapped stays.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spark_overlay.memory_lines import GIB, meminfo

logger = logging.getLogger("vllm.spark_overlay")


class PageCacheDrop:
    name = "drop_page_cache"
    phases = ("load_model", "compile_or_warm_up_model")

    @contextmanager
    def around(self, worker: Any, phase: str, arguments: tuple[Any, ...]) -> Iterator[None]:
        folder = Path(worker.model_config.model)
        if phase != "load_model":
            drop(folder)
        yield
        if phase == "load_model":
            drop(folder)


def drop(folder: Path) -> int:
    """How many files were dropped; a file that cannot be opened is left alone, for this is only an aid."""
    before = meminfo()["MemFree"]
    dropped = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            logger.warning("spark_overlay: the page cache of %s stays: %s", path, error)
            continue
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
        dropped += 1
    freed = (meminfo()["MemFree"] - before) / GIB
    logger.info(
        "spark_overlay: dropped the page cache of %d files in %s, free memory %+.2f GiB", dropped, folder, freed
    )
    return dropped
