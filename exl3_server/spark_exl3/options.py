"""What the server is told: its command line, then the variables that native ExLlamaV3 recipes set."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = 256  # tokens of one page of ExLlamaV3's cache
CONTEXT, CHUNK, WAITING = 6144, 2048, 64
KEY = "VLLM_API_KEY"  # what sparkctl gives every server its key in


@dataclass(frozen=True, slots=True)
class Options:
    """`drafts` says whether the model's own drafter (its MTP component) is loaded; `key` is empty for none."""

    model: Path
    name: str
    host: str
    port: int
    context: int
    chunk: int
    drafts: bool
    device: str
    template: Path | None
    waiting: int
    key: str


class Unusable(Exception):
    """An option that cannot be: what it is, and what fits."""


def options(argv: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Raises Unusable; argparse ends the process by itself for words that it does not know."""
    given = _parser(environment).parse_args(argv)
    if not given.model:
        raise Unusable("no model: give --model FOLDER, or set EXL3_MODEL_DIR")
    folder = Path(given.model)
    if not (folder / "config.json").is_file():
        raise Unusable(f"{folder} holds no model: there is no config.json in it")
    if given.context <= 0 or given.context % PAGE:
        raise Unusable(f"a context of {given.context} tokens is no multiple of {PAGE}, the page of the cache")
    if given.chunk <= 0 or given.chunk % PAGE:
        raise Unusable(f"a step of {given.chunk} tokens is no multiple of {PAGE}, the page of the cache")
    return Options(
        model=folder,
        name=given.name or folder.resolve().name,
        host=given.host,
        port=given.port,
        context=given.context,
        chunk=given.chunk,
        drafts=given.drafts,
        device=given.device,
        template=Path(given.chat_template) if given.chat_template else None,
        waiting=given.waiting,
        key=_key(given.api_key_file, environment),
    )


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spark_exl3", description=__doc__)
    parser.add_argument("--model", default=environment.get("EXL3_MODEL_DIR", ""), help="folder of the pack")
    parser.add_argument("--name", default="", help="what clients call it; the folder's name if not given")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=5000)
    context = environment.get("CTX") or environment.get("EXL3_CACHE_TOKENS") or CONTEXT
    parser.add_argument("--context", type=int, default=context, help=f"tokens of the cache, a multiple of {PAGE}")
    parser.add_argument("--chunk", type=int, default=environment.get("CHUNK") or CHUNK, help="tokens of one step")
    parser.add_argument(
        "--drafts",
        action=argparse.BooleanOptionalAction,
        default=environment.get("EXL3_MTP") == "1",
        help="load the model's own drafter",
    )
    parser.add_argument("--device", default=environment.get("EXL3_DEVICE") or "cuda:0")
    parser.add_argument("--chat-template", default="", help="instead of the pack's own")
    parser.add_argument("--api-key-file", default="", help=f"the key that clients must give; else that in {KEY}")
    parser.add_argument("--waiting", type=int, default=WAITING, help="requests that may wait for their turn")
    return parser


def _key(file: str, environment: Mapping[str, str]) -> str:
    if not file:
        return environment.get(KEY, "")
    try:
        key = Path(file).expanduser().read_text(encoding="utf-8").strip()
    except OSError as error:
        raise Unusable(f"the key in {file} cannot be read: {error.strerror}") from error
    if not key:
        raise Unusable(f"{file} is empty, and would leave the server open")
    return key
