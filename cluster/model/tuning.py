"""Sections of the settings tree that become environment variables of every rank: NCCL, the engine, its kernels."""

from dataclasses import dataclass
from decimal import Decimal

from cluster.model.table import setting
from cluster.model.units import Seconds

_CONTAINER = "the container runtime"


@dataclass(frozen=True, slots=True)
class Nccl:
    """NCCL's variables, the same for all ranks."""

    debug_subsys: str = setting(
        "INIT,ENV,NET", "What NCCL tells at INFO", env="NCCL_DEBUG_SUBSYS", variable="NCCL_DEBUG_SUBSYS"
    )
    cross_nic: int | None = setting(
        None, "May rings change rails", env="NCCL_CROSS_NIC", variable="NCCL_CROSS_NIC", low=0, high=2
    )
    buffsize: int | None = setting(
        None, "Bytes of a channel's buffer", env="NCCL_BUFFSIZE", variable="NCCL_BUFFSIZE", low=4096, high=2**30
    )
    ll128_buffsize: int | None = setting(
        None,
        "Bytes of a channel's LL128 buffer",
        env="NCCL_LL128_BUFFSIZE",
        variable="NCCL_LL128_BUFFSIZE",
        low=4096,
        high=2**30,
    )
    proto: str = setting("", "Protocols NCCL may use, e.g. ^LL128", env="NCCL_PROTO", variable="NCCL_PROTO")
    max_nchannels: int | None = setting(
        None, "Most channels", env="NCCL_MAX_NCHANNELS", variable="NCCL_MAX_NCHANNELS", low=1, high=64
    )
    heartbeat_timeout: int | None = setting(
        None,
        "Seconds until torch's NCCL watchdog ends a stuck process",
        env="TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
        variable="TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
        low=1,
        high=86400,
    )
    use_host: bool = setting(False, "Use an NCCL from the node", env="USE_HOST_NCCL", not_yet=_CONTAINER)
    so_name: str = setting("", "File name of that NCCL", env="NCCL_SO_NAME", not_yet=_CONTAINER)


@dataclass(frozen=True, slots=True)
class Tuning:
    """Variables that the engine, its kernels and the kits' overlay read; handed to all ranks as they are."""

    cuda_alloc_conf: str = setting(
        "", "Options of torch's allocator", env="PYTORCH_CUDA_ALLOC_CONF", variable="PYTORCH_CUDA_ALLOC_CONF"
    )
    torch_arch: str = setting(
        "", "GPU architecture torch compiles for", env="TORCH_CUDA_ARCH_LIST", variable="TORCH_CUDA_ARCH_LIST"
    )
    flashinfer_arch: str = setting(
        "",
        "GPU architecture FlashInfer compiles for",
        env="FLASHINFER_CUDA_ARCH_LIST",
        variable="FLASHINFER_CUDA_ARCH_LIST",
    )
    launch_blocking: bool | None = setting(
        None, "Run kernels one by one (debugging)", env="CUDA_LAUNCH_BLOCKING", variable="CUDA_LAUNCH_BLOCKING"
    )
    graph_estimate: bool | None = setting(
        None,
        "Count CUDA graphs when memory is measured",
        env="CG_ESTIMATE",
        variable="VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
    )
    no_shared_experts_stream: bool | None = setting(
        None,
        "Keep shared experts on the main stream",
        env="VLLM_DISABLE_SHARED_EXPERTS_STREAM",
        variable="VLLM_DISABLE_SHARED_EXPERTS_STREAM",
    )
    indexer_logits_mb: int | None = setting(
        None,
        "MiB for the sparse indexer's logits",
        env="VLLM_SPARSE_INDEXER_MAX_LOGITS_MB",
        variable="VLLM_SPARSE_INDEXER_MAX_LOGITS_MB",
        low=1,
        high=65536,
    )
    fused_moe: bool | None = setting(None, "EXL3: fused expert kernel", env="EXL3_FUSED_MOE", variable="EXL3_FUSED_MOE")
    moe_row_tile: int | None = setting(
        None, "EXL3: rows of a tile, 0 = automatic", env="EXL3_MOE_ROW_TILE", variable="EXL3_MOE_ROW_TILE", low=0
    )
    fat_grouped: bool | None = setting(
        None, "EXL3: grouped kernel for large batches", env="EXL3_FAT_GROUPED", variable="EXL3_FAT_GROUPED"
    )
    fat_kernel: bool | None = setting(
        None, "EXL3: kernel for large batches", env="EXL3_FAT_KERNEL", variable="EXL3_FAT_KERNEL"
    )
    fat_sorted: bool | None = setting(
        None, "EXL3: sorted kernel for large batches", env="EXL3_FAT_SORTED", variable="EXL3_FAT_SORTED"
    )
    fat_batched: bool | None = setting(
        None, "EXL3: batched kernel for large batches", env="EXL3_FAT_BATCHED", variable="EXL3_FAT_BATCHED"
    )
    temp_rows_fused: int | None = setting(
        None,
        "EXL3: rows of the fused kernel's workspace",
        env="EXL3_TEMP_ROWS_FUSED",
        variable="EXL3_TEMP_ROWS_FUSED",
        low=1,
    )
    moe_x: str = setting(
        "",
        "EXL3: tile shape, three numbers",
        env="DSV41_EXL3_MOE_X",
        variable="DSV41_EXL3_MOE_X",
        pattern=r"\d+,\d+,\d+",
        allowed="three numbers with commas, e.g. 2,12,8",
    )
    serial_streams: bool | None = setting(
        None, "EXL3: one stream for experts", env="DSV41_EXL3_SERIAL_STREAMS", variable="DSV41_EXL3_SERIAL_STREAMS"
    )
    pretune: bool | None = setting(
        None, "EXL3: tune kernels at the start", env="DSV41_EXL3_PRETUNE", variable="DSV41_EXL3_PRETUNE"
    )
    pretune_sizes: tuple[int, ...] = setting(
        (),
        "EXL3: batch sizes that are tuned",
        env="DSV41_EXL3_PRETUNE_SIZES",
        variable="DSV41_EXL3_PRETUNE_SIZES",
        low=1,
    )
    indexer_prefill_factor: int | None = setting(
        None,
        "Size of the indexer's workspace, in longest contexts",
        env="DSV41_INDEXER_PREFILL_FACTOR",
        variable="DSV41_INDEXER_PREFILL_FACTOR",
        low=1,
        high=4096,
    )
    empty_cache_tokens: int | None = setting(
        None,
        "Give memory back after prefills longer than this, 0 = never",
        env="DSV41_PREFILL_EMPTY_CACHE_TOKENS",
        variable="DSV41_PREFILL_EMPTY_CACHE_TOKENS",
        low=0,
    )
    empty_cache_below_gib: Decimal | None = setting(
        None,
        "... only when less than this many GiB are available, 0 = always",
        env="DSV41_PREFILL_EMPTY_CACHE_MEMAVAIL_GIB",
        variable="DSV41_PREFILL_EMPTY_CACHE_MEMAVAIL_GIB",
        low=0,
    )
    empty_cache_at_end: bool | None = setting(
        None,
        "Give memory back at the end of every prefill",
        env="DSV41_PREFILL_END_EMPTY_CACHE",
        variable="DSV41_PREFILL_END_EMPTY_CACHE",
    )
    drop_page_cache: bool | None = setting(
        None, "Drop the page cache of read weights", env="DSV41_DROP_PAGE_CACHE", variable="DSV41_DROP_PAGE_CACHE"
    )
    skip_mixed_warmup: bool | None = setting(
        None, "No mixed warm-up inside vLLM", env="DSV41_SKIP_MIXED_WARMUP", variable="DSV41_SKIP_MIXED_WARMUP"
    )
    memory_log: bool | None = setting(
        None, "Log memory inside the ranks", env="DSV41_MEMORY_LOG", variable="DSV41_MEMORY_LOG"
    )
    memory_log_tick: Seconds | None = setting(
        None, "... every so many seconds", env="DSV41_MEMORY_LOG_TICK", variable="DSV41_MEMORY_LOG_TICK", low=1
    )
    suppress_stops: bool | None = setting(
        None,
        "Ignore stop words while the model reasons",
        env="GLM53_SUPPRESS_STOPS_IN_REASONING",
        aliases=("DSV41_SUPPRESS_STOPS_IN_REASONING",),
        variable="GLM53_SUPPRESS_STOPS_IN_REASONING",
    )
    mixed_prefill_chunk: int | None = setting(
        None,
        "Prefill tokens beside running requests, 0 = no limit",
        env="GLM53_MIXED_PREFILL_CHUNK",
        aliases=("DSV41_MIXED_PREFILL_CHUNK",),
        variable="GLM53_MIXED_PREFILL_CHUNK",
        low=0,
    )
    indexer_workspace: str = setting(
        "",
        "The indexer's workspace: `stock` or `rightsize`",
        env="GLM53_INDEXER_WORKSPACE",
        variable="GLM53_INDEXER_WORKSPACE",
        pattern="stock|rightsize",
        allowed="stock or rightsize",
    )
    spinwait: str = setting(
        "",
        "How long ranks spin for a message: `stock` or milliseconds",
        env="GLM53_SPINWAIT_MS",
        variable="GLM53_SPINWAIT_MS",
        pattern=r"stock|0*([1-9][0-9]{0,2}|1000)",
        allowed="stock, or 1 to 1000",
    )
