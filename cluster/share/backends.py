"""The backends by name: each is one file here and one line in this table."""

from collections.abc import Callable, Mapping
from typing import Any

from cluster.model.kit import Sync
from cluster.share.base import Share, Source
from cluster.share.inplace import InplaceShare
from cluster.share.nfs import NfsShare
from cluster.share.rsync import RsyncShare
from cluster.share.zfs import ZfsShare

BY_NAME: Mapping[Sync, Callable[[Source], Share[Any]]] = {
    Sync.INPLACE: InplaceShare,
    Sync.NFS: NfsShare,
    Sync.RSYNC: RsyncShare,
    Sync.ZFS: ZfsShare,
}

# What sends from the head to the workers, and has to know the way from one to the other.
BETWEEN = frozenset({Sync.RSYNC, Sync.ZFS})
