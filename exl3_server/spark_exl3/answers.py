"""What clients are told, in OpenAI's form: answers, pieces of a stream, counts, errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_exl3.wishes import Refused

Json = Mapping[str, Any]
KINDS = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    404: "invalid_request_error",
    429: "rate_limit_error",
}


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of one request; `drafted` were accepted and refused of the drafter's."""

    prompt: int
    new: int
    cached: int = 0
    drafted: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """Who answers: the request's id, the time it came in, the model's name, and which endpoint was asked."""

    id: str
    created: int
    model: str
    chat: bool


def whole(told: Told, thought: str, text: str, finish: str, counts: Counts) -> Json:
    """The answer to a request that does not stream."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": None}
    if told.chat:
        choice["message"] = {"role": "assistant", "content": text} | ({"reasoning_content": thought} if thought else {})
    else:
        choice["text"] = text
    return _frame(told, "chat.completion" if told.chat else "text_completion", [choice]) | {"usage": usage(counts)}


def first(told: Told) -> Json:
    return _chunk(told, {"role": "assistant", "content": ""}, None)


def piece(told: Told, thought: str, text: str, finish: str | None = None) -> Json:
    """One piece of a stream; the last one says how it ended."""
    if not told.chat:
        choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": None}
        return _frame(told, "text_completion", [choice])
    delta = {key: value for key, value in (("reasoning_content", thought), ("content", text)) if value}
    return _chunk(told, delta, finish)


def tally(told: Told, counts: Counts) -> Json:
    """The counts, which a stream tells after its last piece when it is asked to."""
    return _frame(told, "chat.completion.chunk" if told.chat else "text_completion", []) | {"usage": usage(counts)}


def usage(counts: Counts) -> Json:
    told: dict[str, Any] = {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.new,
        "total_tokens": counts.prompt + counts.new,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
    }
    if counts.drafted is not None:
        accepted, rejected = counts.drafted
        told["completion_tokens_details"] = {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": rejected,
        }
    return told


def error(refused: Refused) -> Json:
    kind = KINDS.get(refused.status, "server_error")
    return {"error": {"message": refused.message, "type": kind, "param": refused.parameter, "code": refused.code}}


def metrics(running: int, waiting: int, prompt: int, generated: int, steps: int) -> str:
    """Under vLLM's names, so that whoever watches a vLLM sees this server work, too."""
    told = {
        "vllm:num_requests_running": running,
        "vllm:num_requests_waiting": waiting,
        "vllm:prompt_tokens_total": prompt,
        "vllm:generation_tokens_total": generated,
        "vllm:iteration_tokens_total_count": steps,
    }
    return "".join(f"{name} {value}\n" for name, value in told.items())


def _chunk(told: Told, delta: Json, finish: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return _frame(told, "chat.completion.chunk", [choice])


def _frame(told: Told, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": told.id, "object": kind, "created": told.created, "model": told.model, "choices": choices}
