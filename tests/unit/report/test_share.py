from cluster.model.kit import Sync
from cluster.model.share import Offer, ShareCosts
from tests.unit.report.test_results import text


def test_the_costs_are_a_table_with_the_reason_first():
    costs = ShareCosts(
        "demo",
        Sync.ZFS,
        "it moves the fewest bytes of what is possible",
        2.5 * 2**30,
        (
            Offer(Sync.INPLACE, impossible="b:/srv/m: is not there"),
            Offer(Sync.ZFS, 5 * 2**30, 2.0, 90 * 2**30, "nothing of the weights"),
            Offer(Sync.RSYNC, 385 * 2**30, None, 10 * 2**30, "nothing of the weights"),
            Offer(Sync.NFS, 0, 0.0, None, "the worker's rank waits"),
        ),
    )
    assert text(costs) == [
        "zfs: it moves the fewest bytes of what is possible, link 2.5 GiB/s",
        "           TO MOVE    TIME       DISK LEFT   IF THE HEAD DIES",
        "  inplace                                    not possible: b:/srv/m: is not there",
        "  zfs      5.0 GiB    2.0 s      90.0 GiB    nothing of the weights",
        "  rsync    385.0 GiB  not known  10.0 GiB    nothing of the weights",
        "  nfs      nothing    none       none taken  the worker's rank waits",
    ]
