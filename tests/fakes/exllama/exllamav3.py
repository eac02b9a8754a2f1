"""As much of exllamav3's interface as our server uses, without a GPU: each character is a token, the answer is given.

A pack for it is a folder with config.json {"reply": TEXT}; "fails" names where it goes wrong: load, job, iterate.
"loads" and "waits" name files: until the one is there, nothing is loaded; until the other is, no token is made.
tests/unit/spark_exl3/test_exllama.py holds it to the real interface.
"""

import json
import time
from pathlib import Path
from typing import Any

BOS, EOS = 1, 0
PAGE = 256


class Ids:
    """A tensor of one row."""

    def __init__(self, row: list[int]) -> None:
        self.row, self.shape = row, (1, len(row))

    def flatten(self) -> "Ids":
        return self

    def tolist(self) -> list[int]:
        return self.row


class Config:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.told: dict[str, Any] = json.loads((Path(directory) / "config.json").read_text())
        self.eos_token_id_list = [EOS]

    @staticmethod
    def from_directory(directory: str) -> "Config":
        return Config(directory)


class Model:
    def __init__(self, config: Config, component: str) -> None:
        self.config, self.component, self.loaded = config, component, ""
        self.caps = {"default_draft_size": 3} if component == "mtp" else {}
        self.cache: Cache | None = None

    @staticmethod
    def from_config(config: Config, component: str = "text") -> "Model":
        return Model(config, component)

    def load(self, device: str, max_chunk_size: int) -> None:
        assert self.cache, "Construct the Cache BEFORE calling model.load()"
        if self.config.told.get("fails") == "load":
            raise RuntimeError("CUDA out of memory")
        _until(self.config.told.get("loads"))
        self.loaded = device


def _until(file: str | None) -> None:
    while file and not Path(file).exists():
        time.sleep(0.01)


class Cache:
    def __init__(self, model: Model, max_num_tokens: int, max_batch_size: int = 16, max_history: int = 0) -> None:
        assert max_num_tokens % PAGE == 0
        self.max_num_tokens, self.max_history = max_num_tokens, max_history
        model.cache = self


class Tokenizer:
    eos_token_id, bos_token_id = EOS, BOS

    @staticmethod
    def from_config(config: Config) -> "Tokenizer":
        return Tokenizer()

    def encode(self, text: str, add_bos: bool = False, encode_special_tokens: bool = False) -> Ids:
        return Ids([BOS] * add_bos + [ord(one) for one in text])


class ArgmaxSampler:
    """The most likely token."""


class ComboSampler:
    def __init__(
        self, rep_p: float, freq_p: float, pres_p: float, temperature: float, min_p: float, top_k: int, top_p: float
    ) -> None:
        self.given = (rep_p, freq_p, pres_p, temperature, min_p, top_k, top_p)


class LLGuidanceFilter:
    def __init__(self, tokenizer: Tokenizer, json_schema: dict[str, Any], eos_after_completed: bool) -> None:
        if json_schema.get("type") == "nonsense":
            raise ValueError("unknown type")
        self.json_schema = json_schema


class Job:
    def __init__(
        self,
        input_ids: Ids,
        max_new_tokens: int,
        sampler: Any,
        seed: int | None,
        stop_conditions: list[Any],
        filters: list[Any],
    ) -> None:
        assert input_ids.shape[1] > 0, "Input IDs cannot be empty."
        self.input_ids, self.max_new_tokens, self.sampler, self.seed = input_ids, max_new_tokens, sampler, seed
        self.stops, self.filters, self.told = stop_conditions, filters, ""


class Generator:
    """One token of one job each time; a held beginning of a stop string is told once it is none."""

    last: "Generator"

    def __init__(
        self,
        model: Model,
        cache: Cache,
        tokenizer: Tokenizer,
        max_batch_size: int,
        max_chunk_size: int,
        draft_model: Model | None,
        draft_cache: Cache | None,
    ) -> None:
        assert model.loaded
        assert draft_model is None or (draft_cache and draft_cache.max_num_tokens == cache.max_num_tokens)
        self.told, self.cache, self.drafts = model.config.told, cache, draft_model is not None
        self.jobs: list[Job] = []
        self.seen: list[Job] = []
        self.cancelled: list[Job] = []
        Generator.last = self

    def enqueue(self, job: Job) -> int:
        assert job.input_ids.shape[1] + job.max_new_tokens <= self.cache.max_num_tokens, "Job requires too many pages"
        assert not self.jobs, "two jobs at once"
        self.jobs.append(job)
        self.seen.append(job)
        return len(self.seen) - 1

    def cancel(self, job: Job) -> None:
        self.jobs.remove(job)
        self.cancelled.append(job)

    def iterate(self) -> list[dict[str, Any]]:
        if self.told.get("fails") == "iterate":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if "waits" in self.told and not Path(self.told["waits"]).exists():
            time.sleep(0.01)
            return []
        return [one for job in list(self.jobs) for one in self._step(job)]

    def _step(self, job: Job) -> list[dict[str, Any]]:
        base = {"job": job, "serial": self.seen.index(job), "eos": False}
        if self.told.get("fails") == "job":
            self.jobs.remove(job)
            return [base | {"stage": "error", "eos": True, "error": RuntimeError("logits are not finite")}]
        begun = [] if job.told else [base | {"stage": "started"}, base | {"stage": "prefill"}]
        reply = self.told["reply"]
        if len(job.told) == len(reply):
            return [*begun, self._end(job, base, "stop_token")]
        job.told += reply[len(job.told)]
        ended = next((one for one in job.stops if isinstance(one, str) and job.told.endswith(one)), None)
        if ended:
            return [*begun, self._end(job, base, "stop_string") | {"eos_triggering_string": ended}]
        text = {"stage": "streaming", "text": job.told[-1]}
        if len(job.told) >= job.max_new_tokens:
            return [*begun, self._end(job, base, "max_new_tokens") | text]
        return [*begun, base | text]

    def _end(self, job: Job, base: dict[str, Any], reason: str) -> dict[str, Any]:
        self.jobs.remove(job)
        drafts = {"accepted_draft_tokens": 5, "rejected_draft_tokens": 2} if self.drafts else {}
        count = {"new_tokens": len(job.told), "prompt_tokens": job.input_ids.shape[1], "cached_tokens": 0}
        return base | count | drafts | {"stage": "streaming", "eos": True, "eos_reason": reason}
