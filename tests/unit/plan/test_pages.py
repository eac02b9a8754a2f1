import json
from typing import Any

import pytest

from cluster.errors import Unreadable
from cluster.model.exl3 import Exl3, Profile
from cluster.model.kit import PageCache, Weights
from cluster.model.tuning import Tuning
from cluster.plan.pages import Evicted, folders, parse_evicted, policy, price
from tests.build import pair

GIB = 2**30


@pytest.mark.parametrize(
    ("asked", "dropping", "profile", "expected"),
    [
        (PageCache.AUTO, None, Profile.NONE, PageCache.KEEP),
        (PageCache.AUTO, True, Profile.NONE, PageCache.EVICT_CHECKPOINT),
        (PageCache.KEEP, None, Profile.NONE, PageCache.KEEP),
        (PageCache.EVICT_ALL, None, Profile.NONE, PageCache.EVICT_ALL),
        (PageCache.EVICT_CHECKPOINT, None, Profile.NONE, PageCache.EVICT_CHECKPOINT),
        (PageCache.EVICT_ALL, True, Profile.ALIASED, PageCache.KEEP),
        (PageCache.AUTO, True, Profile.MEASURED, PageCache.KEEP),
    ],
)
def test_a_server_that_reads_its_weights_in_the_page_cache_always_keeps_them(asked, dropping, profile, expected):
    settings = pair(weights=Weights(page_cache=asked), tuning=Tuning(drop_page_cache=dropping), exl3=Exl3(profile))
    assert policy(settings) is expected


def test_the_model_and_its_tables_are_what_is_evicted():
    assert folders(pair(), pair().head) == ("/models/demo",)


def done(**changes):
    said: dict[str, Any] = {
        "files": 39, "size": 100 * GIB, "free_before": 10 * GIB, "free_after": 90 * GIB, "resident_before": 80 * GIB,
        "resident_after": 0, "kept": (), "rate": 4.0 * GIB,
    }  # fmt: skip
    return Evicted(**(said | changes))


def test_the_price_is_one_sentence():
    assert price(done(), PageCache.EVICT_CHECKPOINT) == (
        "evicted the pages of 39 files of weights; 80.0 GiB came free, 80.0 GiB of them weights; "
        "a load reads 100.0 GiB again, 25 s at 4.0 GiB/s"
    )
    unknown = done(resident_before=None, resident_after=None, rate=None)
    assert price(unknown, PageCache.EVICT_ALL) == "evicted everybody's pages; 80.0 GiB came free"
    assert price(done(kept=("a", "b"), resident_after=GIB, rate=None), PageCache.EVICT_CHECKPOINT).endswith(
        "; 2 files are in use and keep 1.0 GiB"
    )


def test_an_answer_is_read_whole_or_not_at_all():
    text = json.dumps({**{one: getattr(done(), one) for one in Evicted.__dataclass_fields__}, "kept": ["a"]})
    assert parse_evicted("a", text) == done(kept=("a",))
    for wrong in ("", "{}", "[]"):
        with pytest.raises(Unreadable):
            parse_evicted("a", wrong)
