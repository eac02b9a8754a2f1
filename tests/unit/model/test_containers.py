"""Names of images."""

import pytest

from cluster.model.containers import shipped_name

DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("demo:1", "demo:1"),
        ("demo", "demo"),
        (f"demo@sha256:{DIGEST}", f"demo:sha256-{DIGEST}"),
        (f"ghcr.io/a/demo:1@sha256:{DIGEST}", f"ghcr.io/a/demo:sha256-{DIGEST}"),
        (f"127.0.0.1:5055/a/demo@sha256:{DIGEST}", f"127.0.0.1:5055/a/demo:sha256-{DIGEST}"),
    ],
)
def test_a_digest_becomes_a_tag_where_an_image_is_sent(reference, name):
    assert shipped_name(reference) == name
