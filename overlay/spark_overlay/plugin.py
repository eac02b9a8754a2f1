"""The entry point that vLLM calls in each of its processes. Whatever goes wrong here ends the process."""

import logging
import os
from importlib import import_module

VERSION = "0.1.0"
ENGRAM = "vllm.models.deepseek_v41.common.engram"
WORKER = "vllm.v1.worker.gpu_worker"

logger = logging.getLogger("vllm.spark_overlay")


def register() -> None:
    """Put in place what the environment asks for, and say so in one line, which readiness waits for."""
    import vllm

    from spark_overlay.anchors import check_version
    from spark_overlay.settings import read_settings

    settings = read_settings(os.environ)
    active = []
    if settings.engram:
        check_version(vllm.__version__)
        from spark_overlay import engram_backend

        engram_backend.install(import_module(ENGRAM), settings.engram)
        active.append("engram=file")
    from spark_overlay import load_phases

    phases = load_phases.wanted(settings)
    if phases:
        check_version(vllm.__version__)
        load_phases.install(import_module(WORKER).Worker, phases)
        active += [phase.name for phase in phases]
    logger.info(
        "spark_overlay %s active in vLLM %s: %s", VERSION, vllm.__version__, " ".join(active) or "nothing asked"
    )
