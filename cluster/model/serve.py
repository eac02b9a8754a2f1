"""What is served: the model, where it listens, and the `vllm serve` flags that all ranks share."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from cluster.model.table import Secret, setting
from cluster.model.units import Bytes


class Speculation(StrEnum):
    """How tokens are drafted ahead."""

    NONE = "none"
    DSPARK = "dspark"


@dataclass(frozen=True, slots=True)
class Serve:
    """What is served, and the `vllm serve` flags that all ranks share."""

    model: str = setting("", "Folder of the model on every node", env="MODEL_DIR", is_path=True)
    served_model_name: str = setting("", "Model id of the API", env="SERVED_MODEL_NAME", flag="--served-model-name")
    host: str = setting("fabric", "Listening address: `fabric`, `loopback` or an IPv4 address of the head", env="HOST")
    port: int = setting(8888, "Port of the API", env="PORT", low=1, high=65535)
    master_port: int = setting(29521, "Port of the ranks' rendezvous", env="MASTER_PORT", low=1, high=65535)
    api_key_file: str = setting("", "File on the head (mode 0600) with the API key", env="API_KEY_FILE", is_path=True)
    api_key: Secret | None = setting(
        None, "The API key itself, in a `.env` of mode 0600; put into a file on the head", env="VLLM_API_KEY"
    )
    tensor_parallel: int = setting(2, "Tensor-parallel size", env="TP", flag="--tensor-parallel-size", low=1, high=1024)
    pipeline_parallel: int = setting(
        1, "Pipeline-parallel size", env="PP", flag="--pipeline-parallel-size", low=1, high=1024
    )
    max_model_len: int | None = setting(
        None,
        "Longest context in tokens",
        env="MAX_MODEL_LEN",
        flag="--max-model-len",
        low=1,
        high=1048576,
    )
    max_num_seqs: int | None = setting(
        None,
        "Most requests at once",
        env="MAX_NUM_SEQS",
        flag="--max-num-seqs",
        low=1,
        high=4096,
    )
    max_num_batched_tokens: int | None = setting(
        None,
        "Most tokens of one step",
        env="MAX_NUM_BATCHED_TOKENS",
        flag="--max-num-batched-tokens",
        low=1,
        high=8388608,
    )
    long_prefill_token_threshold: int | None = setting(
        None,
        "Prompts longer than this are read in slices",
        env="LONG_PREFILL_TOKEN_THRESHOLD",
        flag="--long-prefill-token-threshold",
        low=0,
        high=8388608,
    )
    gpu_memory_utilization: Decimal | None = setting(
        None,
        "Share of the memory that must be free at the start",
        env="GPU_MEM_UTIL",
        flag="--gpu-memory-utilization",
        above=0,
        high=1,
    )
    kv_cache_memory_bytes: Bytes | None = setting(
        None,
        "KV pool of each rank",
        env="KV_CACHE_MEMORY_BYTES",
        flag="--kv-cache-memory-bytes",
        low=1,
    )
    kv_cache_dtype: str = setting(
        "", "Type of the KV cache; vLLM's choice if empty", env="KV_CACHE_DTYPE", flag="--kv-cache-dtype"
    )
    block_size: int | None = setting(
        None, "Tokens of one KV block", env="KV_BLOCK_SIZE", flag="--block-size", low=1, high=65536
    )
    prefix_cache_retention_interval: int | None = setting(
        None,
        "Tokens between the prefix states that are kept",
        env="PREFIX_CACHE_RETENTION_INTERVAL",
        flag="--prefix-cache-retention-interval",
        low=0,
        high=1048576,
        step=128,
    )
    quantization: str = setting(
        "", "Quantization method; `none` or empty: the model's own", env="QUANTIZATION", flag="--quantization"
    )
    speculation: Speculation = setting(Speculation.NONE, "Drafting of tokens: `none` or `dspark`", env="SPEC_METHOD")
    speculative_tokens: int = setting(3, "Tokens drafted ahead, with `dspark`", env="DSPARK_TOKENS", low=1, high=64)
    language_model_only: bool | None = setting(
        None, "Leave vision out of a model that has it", env="LANGUAGE_MODEL_ONLY", flag="--language-model-only"
    )
    mm_encoder_tp_mode: str = setting(
        "",
        "How the vision part is split over ranks",
        env="MM_ENCODER_TP_MODE",
        flag="--mm-encoder-tp-mode",
        pattern="data|weights",
        allowed="`data` or `weights`",
        unless="serve.language_model_only",
    )
    limit_mm: str = setting(
        "",
        "Most images of one prompt, as JSON",
        env="LIMIT_MM",
        flag="--limit-mm-per-prompt",
        pattern=r"\{.*\}",
        allowed="a JSON object in single quotes",
        unless="serve.language_model_only",
    )
    skip_mm_profiling: bool = setting(
        False,
        "Do not measure the vision part at the start",
        env="SKIP_MM_PROFILING",
        flag="--skip-mm-profiling",
        unless="serve.language_model_only",
    )
    chat_template: str = setting(
        "", "File with the chat template on every node", env="CHAT_TEMPLATE", flag="--chat-template", is_path=True
    )
    enforce_eager: bool = setting(False, "No CUDA graphs", env="ENFORCE_EAGER", flag="--enforce-eager")
    flags: tuple[tuple[str, tuple[str, ...]], ...] = setting(
        (), "Further `vllm serve` flags by name, from a recipe or cluster.yaml: a value, a list, or true"
    )
    extra_args: tuple[str, ...] = setting((), "Further `vllm serve` arguments", env="EXTRA_ARGS")
