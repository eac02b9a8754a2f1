"""What a model would take that nobody has fetched yet: counted from the headers of its files on the hub."""

from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from cluster.app.agents import agent
from cluster.app.observe import told
from cluster.hub import Hub
from cluster.model.events import Emit, Severity, Told
from cluster.model.memory import ModelShape
from cluster.model.settings import Settings
from cluster.node.local import LocalNode
from cluster.plan.fetch import Source, chosen, wants_index
from cluster.plan.verify import MODEL
from cluster.probe.headers import parse_shape
from cluster.weights.manifest import CONFIG, INDEX, SHARD

LIMIT = 300.0


def remote_shape(settings: Settings, emit: Emit) -> ModelShape | None:
    """The same program counts that counts on a node, on files that have the real ones' headers and sizes alone."""
    weights = settings.weights
    source = Source(MODEL, weights.repo, weights.revision, "")
    hub = Hub(weights.hf_token, Event())
    listing = hub.listing(source.repo, source.revision)
    names = {*wants_index(source, listing), *(one for one in (CONFIG,) if listing.entry(one) is not None)}
    read = {name: hub.read(source.repo, listing.revision, name) for name in names}
    manifest = chosen(source, listing, {INDEX: read[INDEX]} if INDEX in read else {})
    with TemporaryDirectory(prefix="sparkctl-") as folder:
        for name, data in read.items():
            (Path(folder) / name).write_bytes(data)
        shards = [one.name for one in manifest.files if one.name.endswith(SHARD)]
        hub.stubs(manifest, shards, Path(folder))
        here = LocalNode("here")
        try:
            shape = parse_shape("here", told(here, here.run(agent("headers", {"model": folder}, LIMIT))))
        finally:
            here.close()
    emit(Told(Severity.NOTE, f"counted from the headers of {source.repo} at {listing.revision[:12]}, not fetched yet"))
    return shape
