"""The aids around a worker's phases, on a worker that only remembers."""

import ctypes
import logging
import mmap
import os
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")

from spark_overlay import load_phases, memory_lines, page_cache, release, staged_load  # noqa: E402  # only where torch is
from spark_overlay.anchors import Unsupported  # noqa: E402
from spark_overlay.settings import Settings  # noqa: E402


def worker_class():
    """With the methods of vLLM's worker that matter, and a list of what happened."""

    class Worker:
        def __init__(self, folder="/nonexistent"):
            self.model_config = SimpleNamespace(model=str(folder))
            self.seen = []

        def load_model(self, *, load_dummy_weights=False):
            self.seen.append(("load_model", load_dummy_weights))
            return "loaded"

    for phase in (*load_phases.BOOT, load_phases.STEP):
        if phase != "load_model":
            setattr(Worker, phase, lambda self, *arguments, phase=phase: self.seen.append(phase))
    return Worker


class Remember:
    name = "remember"
    phases = ("load_model", "execute_model")

    def __init__(self):
        self.seen = []

    @contextmanager
    def around(self, worker, phase, arguments):
        self.seen.append(("before", phase, arguments))
        yield
        self.seen.append(("after", phase, arguments))


def test_an_aid_stands_around_its_phases_alone():
    worker, aid = worker_class(), Remember()
    load_phases.install(worker, (aid,))
    one = worker()
    one.init_device()
    assert one.load_model(load_dummy_weights=True) == "loaded"
    one.execute_model("step")
    assert aid.seen == [
        ("before", "load_model", ()),
        ("after", "load_model", ()),
        ("before", "execute_model", ("step",)),
        ("after", "execute_model", ("step",)),
    ]
    assert one.seen == ["init_device", ("load_model", True), "execute_model"]


def test_twice_is_as_good_as_once():
    worker, aid = worker_class(), Remember()
    load_phases.install(worker, (aid,))
    load_phases.install(worker, (aid,))
    worker().load_model()
    assert len(aid.seen) == 2


def test_a_worker_without_a_phase_is_fatal():
    worker = worker_class()
    del worker.execute_model
    with pytest.raises(Unsupported, match="Worker has no execute_model"):
        load_phases.install(worker, (Remember(),))


def test_every_switch_brings_its_aid():
    assert load_phases.wanted(Settings(None, False, False, False, 0, 0)) == ()
    everything = load_phases.wanted(Settings(None, True, True, True, 8192, 0))
    assert [aid.name for aid in everything] == ["memory_lines", "drop_page_cache", "staged_load", "release"]


def messages(caplog):
    logging.getLogger("vllm").propagate = True
    return [record.getMessage() for record in caplog.records]


def test_each_phase_says_how_much_memory_there_was(caplog):
    worker = worker_class()
    load_phases.install(worker, (memory_lines.MemoryLines(),))
    logging.getLogger("vllm").propagate = True
    with caplog.at_level(logging.INFO):
        worker().init_device()
    assert [line.split(" GiB ")[0] for line in messages(caplog)] == [
        "spark_overlay: memory before init_device",
        "spark_overlay: memory after init_device",
    ]
    assert [part.split("=")[0] for part in messages(caplog)[0].split(" GiB ")[1].split()] == [
        "MemFree",
        "MemAvailable",
        "rss",
    ]


def test_meminfo_is_read_in_bytes(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:   127600000 kB\nMemFree:  1024 kB\nHugePages_Total:  0\n", "ascii")
    assert memory_lines.meminfo(tmp_path / "meminfo") == {
        "MemTotal": 127600000 * 1024,
        "MemFree": 1048576,
        "HugePages_Total": 0,
    }


def resident_pages(path):
    """How much of a file is in the page cache, as its owner may ask."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages = len(mapped) // mmap.PAGESIZE
        seen = (ctypes.c_ubyte * pages)()
        place = ctypes.c_char.from_buffer(mapped)
        ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(place)), ctypes.c_size_t(len(mapped)), seen)
        del place
    return sum(page & 1 for page in seen)


def test_the_page_cache_of_the_weights_is_given_back(tmp_path):
    for name in ("model-1.safetensors", "other.bin"):
        with (tmp_path / name).open("wb") as file:
            file.write(bytes(64 * mmap.PAGESIZE))
            file.flush()
            os.fsync(file.fileno())
    worker = worker_class()
    load_phases.install(worker, (page_cache.PageCacheDrop(),))
    worker(tmp_path).load_model()
    if resident_pages(tmp_path / "other.bin") != 64:
        pytest.skip("this file system keeps no page cache")
    assert resident_pages(tmp_path / "model-1.safetensors") == 0


def step(tokens, new=(), cached=()):
    """tokens: request -> scheduled; new, cached: (request, computed before)."""
    return SimpleNamespace(
        num_scheduled_tokens=tokens,
        scheduled_new_reqs=[SimpleNamespace(req_id=name, num_computed_tokens=done) for name, done in new],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[name for name, _ in cached], num_computed_tokens=[done for _, done in cached]
        ),
    )


@pytest.mark.parametrize(
    ("scheduled", "longest"),
    [
        (step({}), 0),
        (step({"a": 4}, cached=[("a", 90_000)]), 0),
        (step({"a": 1024}, new=[("a", 0)]), 1024),
        (step({"a": 1024, "b": 4}, new=[("a", 0)], cached=[("b", 20_000)]), 20_004),
        (step({"a": 1024}, cached=[("a", 7168)]), 8192),
    ],
)
def test_the_longest_sequence_of_a_prefill_counts(scheduled, longest):
    assert release.longest_prefill(scheduled) == longest


@pytest.mark.parametrize(
    ("below", "scheduled", "times"),
    [
        (0, step({"a": 1024}, cached=[("a", 7168)]), 1),
        (1 << 62, step({"a": 1024}, cached=[("a", 7168)]), 1),
        (1, step({"a": 1024}, cached=[("a", 7168)]), 0),
        (0, step({"a": 1024}, cached=[("a", 7167)]), 0),
    ],
)
def test_memory_is_released_after_a_long_prefill_when_it_is_short(below, scheduled, times, monkeypatch):
    released = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: released.append(1))
    worker = worker_class()
    load_phases.install(worker, (release.Release(8192, below),))
    worker().execute_model(scheduled)
    assert len(released) == times


def test_only_plain_copies_to_a_gpu_are_staged():
    def tensor(device="cpu", **changes):
        like = torch.empty(1, device="meta") if device == "cuda" else torch.empty(1)
        values = {
            "is_cuda": device == "cuda",
            "device": SimpleNamespace(type=device),
            "nbytes": 2 << 20,
            "dtype": torch.uint8,
            "shape": (2 << 20,),
            "is_contiguous": lambda _: True,
            "is_pinned": lambda _: False,
        }
        return type("Fake", (torch.Tensor,), values | changes)(like)

    gpu = tensor("cuda")
    assert staged_load.needs_staging(gpu, tensor())
    for source in (
        tensor("cuda"),
        tensor(nbytes=100),
        tensor(dtype=torch.int8),
        tensor(shape=(1,)),
        tensor(is_contiguous=lambda _: False),
        tensor(is_pinned=lambda _: True),
        5,
    ):
        assert not staged_load.needs_staging(gpu, source)


def test_other_copies_are_as_they_were():
    with staged_load.StagedCopies() as copies:
        to = torch.zeros(3, dtype=torch.float32)
        assert to.copy_(torch.arange(3)) is to
    assert (to.tolist(), copies.staged) == ([0.0, 1.0, 2.0], 0)
