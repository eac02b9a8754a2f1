"""What `init` sees: addresses and RDMA devices of this node and of the workers it is given."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from cluster.app.observe import facts_of
from cluster.app.session import OpenNode
from cluster.config.propose import Seen
from cluster.model.nodes import NodeSettings


def look_around(nodes: Sequence[NodeSettings], open_one: OpenNode) -> list[Seen]:
    """One look at each node, side by side; the first error ends it, for nothing was done yet."""

    def one(settings: NodeSettings) -> Seen:
        node = open_one(settings)
        try:
            facts = facts_of(node)
        finally:
            node.close()
        return Seen(settings.control, facts.addresses, facts.hcas)

    with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
        return list(pool.map(one, nodes))
