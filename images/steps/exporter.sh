#!/bin/sh
# Export /export to NFS_CLIENTS, read-only, from the kernel's NFS server of this machine; ends with it.
# NFS_CLIENTS: addresses or networks with commas between them. Nobody is no default, and neither is everybody.
set -eu
exports=${EXPORTS:-/etc/exports}
options=${NFS_OPTS:-ro,sync,no_subtree_check,root_squash,fsid=0}
test -n "${NFS_CLIENTS:-}" || { echo "NFS_CLIENTS is empty: name who may mount" >&2; exit 2; }
case ",$options," in
    *,rw,*) echo "NFS_OPTS has rw, and weights are only read" >&2; exit 2 ;;
esac
line=/export
for client in $(echo "$NFS_CLIENTS" | tr ',' ' '); do
    case "$client" in
        0.0.0.0/0|::/0) echo "NFS_CLIENTS: $client is everybody" >&2; exit 2 ;;
        *[!0-9a-fA-F.:/]*) echo "NFS_CLIENTS: $client is no address" >&2; exit 2 ;;
    esac
    line="$line $client($options)"
done
echo "$line" > "$exports"
test "${1:-serve}" = serve || exit 0
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
rpcbind -w
exportfs -ra
rpc.nfsd --no-nfs-version 3 8
rpc.mountd --foreground --no-nfs-version 3 &
mountd=$!
trap 'exportfs -ua; rpc.nfsd 0; kill $mountd' EXIT
trap 'exit 143' TERM INT
wait "$mountd"
