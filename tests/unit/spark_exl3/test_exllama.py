"""The door to exllamav3, over a fake that is held to the interface of the real one."""

import inspect
import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from spark_exl3.answers import Counts
from spark_exl3.engine import End, Piece, Wish
from spark_exl3.exllama import Exllama
from spark_exl3.options import Options, options
from spark_exl3.wishes import Refused, Sampling

TESTS = Path(__file__).parents[2]
GREEDY = Sampling(temperature=0)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TESTS / "fakes/exllama"))
    monkeypatch.delitem(sys.modules, "exllamav3", raising=False)
    made = import_module("exllamav3")
    monkeypatch.delitem(sys.modules, "exllamav3")
    monkeypatch.setitem(sys.modules, "exllamav3", made)
    return made


def pack(folder: Path, *words: str, **told: str) -> Options:
    (folder / "config.json").write_text(json.dumps({"reply": "323"} | told))
    return options(["--model", str(folder), *words], {})


def wish(model: Exllama, text: str = "17*19=", most: int = 100, sampling: Sampling = GREEDY, stops=()) -> Wish:
    tokens, length = model.tokens(text, True)
    return Wish(tokens, length, most, sampling, stops)


def test_the_fake_takes_and_tells_only_what_the_real_interface_has(library):
    real = json.loads((TESTS / "captured/exllamav3/interface-1.6.5.json").read_text())
    for name in set(real) - {"told"}:
        target = library
        for part in name.split("."):
            target = getattr(target, part)
        assert set(inspect.signature(target).parameters) - {"self", "args", "kwargs"} <= set(real[name]), name


def test_what_the_fake_tells_of_a_job_the_real_one_tells_too(library, tmp_path):
    real = set(json.loads((TESTS / "captured/exllamav3/interface-1.6.5.json").read_text())["told"])
    model = Exllama(pack(tmp_path, "--drafts"))
    list(model.answer(wish(model)))
    generator = library.Generator.last
    generator.enqueue(library.Job(library.Ids([1]), 9, None, None, [], []))
    told = [one for _ in range(4) for one in generator.iterate()]
    assert {key for one in told for key in one} <= real


def test_pieces_come_one_by_one_and_the_end_has_the_counts(library, tmp_path):
    model = Exllama(pack(tmp_path))
    read = Piece("")  # a step that reads the prompt
    assert list(model.answer(wish(model))) == [read, Piece("3"), Piece("2"), Piece("3"), End("stop", Counts(7, 3))]
    assert list(model.answer(wish(model, most=2))) == [read, Piece("3"), Piece("2"), End("length", Counts(7, 2))]
    assert list(model.answer(wish(model, stops=("2",)))) == [read, Piece("3"), End("stop", Counts(7, 2))]


def test_the_model_s_drafter_is_loaded_when_asked_for_and_takes_room(library, tmp_path):
    model = Exllama(pack(tmp_path, "--drafts"))
    assert list(model.answer(wish(model)))[-1] == End("stop", Counts(7, 3, 0, (5, 2)))
    assert (model.room(100), Exllama(pack(tmp_path)).room(100)) == (6144 - 100 - 1 - 3, 6144 - 100 - 1)
    assert library.Generator.last.cache.max_history == 0


def test_a_client_that_leaves_ends_its_job_alone(library, tmp_path):
    model = Exllama(pack(tmp_path))
    pieces = model.answer(wish(model))
    assert [next(pieces), next(pieces)] == [Piece(""), Piece("3")]
    pieces.close()
    assert (library.Generator.last.cancelled, library.Generator.last.jobs) == (library.Generator.last.seen, [])
    assert list(model.answer(wish(model)))[-1] == End("stop", Counts(7, 3))


def test_the_sampler_is_greedy_at_zero_and_has_every_wish_otherwise(library, tmp_path):
    model = Exllama(pack(tmp_path))
    warm = Sampling(0.7, 0.9, 40, 0.05, 1.1, 0.2, 0.3, 7)
    for sampling in (GREEDY, warm):
        list(model.answer(wish(model, sampling=sampling)))
    cold, hot = library.Generator.last.seen
    assert isinstance(cold.sampler, library.ArgmaxSampler)
    assert (hot.sampler.given, hot.seed) == ((1.1, 0.2, 0.3, 0.7, 0.05, 40, 0.9), 7)
    assert hot.stops == [0]


def test_a_schema_becomes_a_filter_and_one_that_is_none_is_refused(library, tmp_path):
    model = Exllama(pack(tmp_path))
    list(model.answer(wish(model, sampling=Sampling(0, schema={"type": "object"}))))
    assert library.Generator.last.seen[0].filters[0].json_schema == {"type": "object"}
    with pytest.raises(Refused) as caught:
        list(model.answer(wish(model, sampling=Sampling(0, schema={"type": "nonsense"}))))
    assert (caught.value.status, caught.value.message) == (400, "this request does not fit: unknown type")


def test_an_older_library_without_schemas_refuses_them_and_goes_on(library, tmp_path, monkeypatch):
    monkeypatch.delattr(library, "LLGuidanceFilter")
    model = Exllama(pack(tmp_path))
    with pytest.raises(Refused, match="cannot hold a text to a schema"):
        list(model.answer(wish(model, sampling=Sampling(0, schema={}))))
    assert list(model.answer(wish(model)))[-1] == End("stop", Counts(7, 3))


def test_what_the_library_refuses_is_the_request_s_fault_and_the_next_one_is_answered(library, tmp_path):
    model = Exllama(pack(tmp_path))
    with pytest.raises(Refused) as caught:
        list(model.answer(wish(model, most=10**6)))
    assert (caught.value.status, caught.value.message) == (
        400,
        "this request does not fit: Job requires too many pages",
    )
    assert list(model.answer(wish(model)))[-1] == End("stop", Counts(7, 3))


def test_a_job_that_fails_is_told_and_a_broken_generator_is_not_hidden(library, tmp_path):
    model = Exllama(pack(tmp_path, fails="job"))
    with pytest.raises(Refused, match="this request failed: logits are not finite"):
        list(model.answer(wish(model)))
    broken = Exllama(pack(tmp_path, fails="iterate"))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        list(broken.answer(wish(broken)))
