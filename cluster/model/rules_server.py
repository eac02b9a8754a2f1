"""Rules for a server other than vLLM, and for one that keeps its weights in the page cache."""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from cluster.model.exl3 import HELD, NOTHING
from cluster.model.kit import PageCache
from cluster.model.settings import Settings, is_alone
from cluster.model.table import Problem

PAGE = 256  # tokens of one page of ExLlamaV3's cache
WORKSPACE_TOKENS = 8224
MOST_SHARE = Decimal("0.94")
RECORDS = ("VLLM_DSV4_PADDED_NVFP4", "KV_FP8_ROPE")
KV_RECORDS = {("1", "0"): 584, ("0", "0"): 432, ("0", "1"): 368}
DROPPING = "DSV41_DROP_PAGE_CACHE"
OURS = "spark_exl3"  # reads its key where vLLM does

# [host[:port]/]path[:tag][@digest], as engines read it.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]+)?/"
REFERENCE = re.compile(
    rf"(?:{_HOST})?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)

Origins = Mapping[str, str]


def own_server(settings: Settings, origins: Origins) -> Iterator[Problem]:
    """A command line is taken as it is, so nothing may be set that only `vllm serve` would get."""
    launch, serve = settings.launch, settings.serve
    if not launch.command:
        return
    at = origins.get("launch.command", "")
    if not is_alone(settings):
        what = f"SERVER_COMMAND runs one rank, and there are {len(settings.nodes)} nodes"
        yield Problem(at, what, "list one node, or set NNODES=1")
    if serve.flags:
        what = f"serve.flags has {', '.join(name for name, _ in serve.flags)}, which only `vllm serve` would get"
        yield Problem(at, what, "write them into SERVER_COMMAND")
    if (serve.api_key is not None or serve.api_key_file) and OURS not in launch.command:
        what = f"an API key is set, and SERVER_COMMAND is neither vLLM nor {OURS}: it would answer without the key"
        yield Problem(at, what, "remove it, and keep HOST=loopback")


def sparkinfer(settings: Settings, origins: Origins) -> Iterator[Problem]:
    """Limits of its image, which it tells only after minutes, or by wrong text."""
    given, serve = dict(settings.launch.environment), settings.serve
    if RECORDS[0] not in given:
        return
    tokens, share = serve.max_num_batched_tokens, serve.gpu_memory_utilization
    if tokens is not None and tokens < WORKSPACE_TOKENS:
        what = f"MAX_NUM_BATCHED_TOKENS={tokens} makes the workspace of sparkinfer's attention too small"
        fix = f"set {WORKSPACE_TOKENS} or more: it is locked after the warm-up"
        yield Problem(origins.get("serve.max_num_batched_tokens", ""), what, fix)
    if share is not None and share > MOST_SHARE:
        what = f"GPU_MEM_UTIL={share} does not boot on a GB10"
        yield Problem(origins.get("serve.gpu_memory_utilization", ""), what, f"set {MOST_SHARE} or less")
    records = tuple(given.get(name, "") for name in RECORDS)
    if records not in KV_RECORDS:
        what = f"{RECORDS[0]}={records[0]} with {RECORDS[1]}={records[1]} is no form of a KV record"
        known = "; ".join(f"{a} and {b}: {size} bytes" for (a, b), size in KV_RECORDS.items())
        yield Problem(origins.get(f"launch.environment.{RECORDS[0]}", ""), what, known)


def image_name(settings: Settings, origins: Origins) -> Iterator[Problem]:
    """What an engine would refuse as a name, after all nodes were asked."""
    name = settings.image.name
    if name and not REFERENCE.fullmatch(name):
        fix = "write [registry/]name[:tag] or name@sha256:DIGEST, the name in lower case"
        yield Problem(origins.get("image.name", ""), f"IMAGE={name} is no name of an image", fix)


def mounts(settings: Settings, origins: Origins) -> Iterator[Problem]:
    """Each as the engine wants it; a colon inside a path cannot be said."""
    for one in settings.container.mounts:
        parts = one.split(":")
        fits = len(parts) in (2, 3) and parts[0].startswith(("/", "~/")) and parts[1].startswith("/")
        if not fits or parts[2:] not in ([], ["rw"], ["ro"]):
            what = f"MOUNTS has {one}, which is not `source:target` or `source:target:rw`"
            yield Problem(
                origins.get("container.mounts", ""), what, "write absolute paths; the source may begin with ~/"
            )


def kept_pages(settings: Settings, origins: Origins) -> Iterator[Problem]:
    """What would take mapped weights away, or cannot work beside them."""
    exl3, serve = settings.exl3, settings.serve
    given = dict(settings.launch.environment)
    asked = settings.weights.page_cache
    if asked is PageCache.KEEP and settings.tuning.drop_page_cache:
        what = f"PAGE_CACHE=keep and {DROPPING}=1 say the opposite"
        yield Problem(origins.get("weights.page_cache", ""), what, "keep one of them")
    if exl3.profile in HELD and asked in (PageCache.EVICT_CHECKPOINT, PageCache.EVICT_ALL):
        what = f"PAGE_CACHE={asked}, and with EXL3_PROFILE={exl3.profile} the GPU reads its weights in the page cache"
        yield Problem(origins.get("weights.page_cache", ""), what, "set PAGE_CACHE=keep")
    if exl3.copy:
        yield from _expression(exl3.copy, origins)
    if exl3.profile not in HELD:
        return
    if settings.tuning.drop_page_cache:
        what = f"{DROPPING} is on, and with EXL3_PROFILE={exl3.profile} the weights live in the page cache"
        yield Problem(origins.get("tuning.drop_page_cache", ""), what, f"set {DROPPING}=0")
    if not settings.launch.command:
        what = f"EXL3_PROFILE={exl3.profile} is for a native ExLlamaV3 server, and vLLM would ignore it"
        yield Problem(origins.get("exl3.profile", ""), what, "choose a recipe for that server, or set SERVER_COMMAND")
    drafts = HELD[exl3.profile].drafts
    if drafts and given.get("EXL3_ATS_MMAP") == "0":
        what = "EXL3_ATS_MMAP=0 copies the model and its drafter, 114 GiB, and the kernel ends it while it loads"
        yield Problem(origins.get("launch.environment.EXL3_ATS_MMAP", ""), what, "remove it")
    if drafts and (serve.max_num_seqs or 1) > 1:
        what = f"MAX_NUM_SEQS={serve.max_num_seqs}, and this server drafts for one request at a time"
        yield Problem(origins.get("serve.max_num_seqs", ""), what, "set 1; requests wait for each other")
    if serve.max_model_len is not None and serve.max_model_len % PAGE:
        what = f"MAX_MODEL_LEN={serve.max_model_len} is not a multiple of {PAGE}, the page of this server's cache"
        fix = f"set {serve.max_model_len // PAGE * PAGE or PAGE}"
        yield Problem(origins.get("serve.max_model_len", ""), what, fix)


def _expression(text: str, origins: Origins) -> Iterator[Problem]:
    """As Python's, which the loader is written in."""
    if text == NOTHING:
        return
    try:
        re.compile(text)
    except re.error as error:
        what = f"EXL3_ATS_COPY={text} is no regular expression: {error}"
        yield Problem(origins.get("exl3.copy", ""), what, r"keep the backslash, e.g. '^(?!mtp\.)', or write nothing")
