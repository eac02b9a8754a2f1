"""Names in the head's registry, and whose login is used for which registry."""

import pytest

from cluster.app.registry import login, repository
from cluster.model.kit import Image
from cluster.model.table import Secret
from tests.build import pair


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("demo", "sparkctl/demo"),
        ("demo:1", "sparkctl/demo"),
        ("ghcr.io/a/b:2.9bpw", "sparkctl/ghcr.io/a/b"),
        ("localhost:5000/a:1", "sparkctl/localhost-5000/a"),
        ("ghcr.io/a/b@sha256:" + "0" * 64, "sparkctl/ghcr.io/a/b"),
        ("sha256:" + "0" * 64, "sparkctl/sha256"),  # an image without a name
    ],
)
def test_a_name_is_kept_with_its_registry_and_without_its_tag(name, kept):
    assert repository(name) == kept


@pytest.mark.parametrize(
    ("image", "user"),
    [
        (Image(name="ghcr.io/a/b:1", ghcr_user="op", ghcr_token=Secret("t")), "op"),
        (Image(name="ghcr.io/a/b:1", ghcr_token=Secret("t")), "token"),
        (Image(name="docker.io/a/b:1", ghcr_token=Secret("t")), None),  # a token goes to no other registry
        (Image(name="ghcr.io/a/b:1"), None),
    ],
)
def test_a_token_goes_to_its_own_registry_alone(image, user):
    found = login(pair(image=image))
    assert (found[0] if found else None) == user
