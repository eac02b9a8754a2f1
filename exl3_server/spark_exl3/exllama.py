"""The door to exllamav3: its public interface alone, as of 1.6.5, which forks for newer models keep."""

from collections.abc import Generator
from threading import Lock
from typing import Any

from spark_exl3.answers import Counts
from spark_exl3.engine import End, Piece, Wish
from spark_exl3.options import Options
from spark_exl3.wishes import Refused, Sampling

DRAFTER = "mtp"
DRAFTED = 4  # tokens, of a drafter that does not say how many
FINISH = {"max_new_tokens": "length"}  # all else ends by the model's or the client's own sign


class Exllama:
    """Load it in the thread that asks for answers. A cache must be there before its model is loaded."""

    def __init__(self, options: Options) -> None:
        import exllamav3

        self._library: Any = exllamav3
        config = exllamav3.Config.from_directory(str(options.model))
        model = exllamav3.Model.from_config(config)
        drafter = exllamav3.Model.from_config(config, component=DRAFTER) if options.drafts else None
        self._drafted: int = drafter.caps.get("default_draft_size", DRAFTED) if drafter else 0
        caches = [
            exllamav3.Cache(one, max_num_tokens=options.context, max_batch_size=1, max_history=self._drafted)
            for one in (model, drafter)
            if one
        ]
        for one in (model, drafter):
            if one:
                one.load(device=options.device, max_chunk_size=options.chunk)
        self._tokenizer = exllamav3.Tokenizer.from_config(config)
        self._generator = exllamav3.Generator(
            model,
            caches[0],
            self._tokenizer,
            max_batch_size=1,
            max_chunk_size=options.chunk,
            draft_model=drafter,
            draft_cache=caches[1] if drafter else None,
        )
        self._context, self._encoding = options.context, Lock()
        ends = (*config.eos_token_id_list, self._tokenizer.eos_token_id)
        self._ends = tuple(dict.fromkeys(one for one in ends if one is not None))

    def tokens(self, text: str, begin: bool) -> tuple[Any, int]:
        with self._encoding:  # the tokenizer remembers how it was asked last
            tokens = self._tokenizer.encode(text, add_bos=begin, encode_special_tokens=True)
        return tokens, int(tokens.shape[-1])

    def room(self, length: int) -> int:
        """New tokens that fit behind a prompt, less what a drafter writes past the end."""
        room: int = self._context - length - 1 - self._drafted
        return room

    def answer(self, wish: Wish) -> Generator[Piece | End]:
        job = self._job(wish)
        running = True
        try:
            while running:
                for told in self._generator.iterate():
                    if told["job"] is not job:
                        continue
                    running = not told["eos"]
                    if told["stage"] == "error":
                        raise Refused(500, f"this request failed: {told['error']}", code="request_failed")
                    if (told["stage"] != "started" and not told["eos"]) or told.get("text"):
                        yield Piece(told.get("text", ""))
                    if told["eos"]:
                        yield End(FINISH.get(told["eos_reason"], "stop"), _counts(told, wish))
        finally:
            if running:
                self._generator.cancel(job)

    def _job(self, wish: Wish) -> Any:
        try:
            job = self._library.Job(
                input_ids=wish.tokens,
                max_new_tokens=wish.most,
                sampler=self._sampler(wish.sampling),
                seed=wish.sampling.seed,
                stop_conditions=[*self._ends, *wish.stops],
                filters=self._filters(wish.sampling),
            )
            self._generator.enqueue(job)
        except (AssertionError, ValueError) as error:  # how the library says that a request does not fit
            raise Refused(400, f"this request does not fit: {error}") from error
        return job

    def _sampler(self, wanted: Sampling) -> Any:
        if wanted.temperature == 0:
            return self._library.ArgmaxSampler()
        return self._library.ComboSampler(
            rep_p=wanted.repetition,
            freq_p=wanted.frequency,
            pres_p=wanted.presence,
            temperature=wanted.temperature,
            min_p=wanted.min_p,
            top_k=wanted.top_k,
            top_p=wanted.top_p,
        )

    def _filters(self, wanted: Sampling) -> list[Any]:
        if wanted.schema is None:
            return []
        follows = getattr(self._library, "LLGuidanceFilter", None)
        if follows is None:
            raise Refused(400, "this exllamav3 cannot hold a text to a schema", parameter="response_format")
        return [follows(self._tokenizer, json_schema=dict(wanted.schema), eos_after_completed=True)]


def _counts(told: dict[str, Any], wish: Wish) -> Counts:
    """Drafts are counted only where there is a drafter; a fork may not count what its cache had."""
    drafted = None
    if "accepted_draft_tokens" in told:
        drafted = (int(told["accepted_draft_tokens"]), int(told["rejected_draft_tokens"]))
    return Counts(wish.length, int(told["new_tokens"]), int(told.get("cached_tokens", 0)), drafted)
