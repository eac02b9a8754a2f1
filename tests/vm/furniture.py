"""What tests put on a machine that has no registry and no vLLM: images of its own files, a rank, weights, readers."""

# An image with the machine's own Python.
IMAGE = """
docker image inspect python:lab >/dev/null 2>&1 || {
  cd / && tar -ch --exclude=__pycache__ --exclude=test --exclude=idlelib usr/bin/python3 usr/lib/python3.11 bin/sleep \
    $(ldd /usr/bin/python3 /bin/sleep | grep -o '/[^ ]*\\.so[^ ]*' | sort -u | cut -c2-) | docker import - python:lab
}
"""
# images/nfs from the machine's own packages, which are those that its Dockerfile installs.
EXPORTER = """
docker image inspect exporter:lab >/dev/null 2>&1 || {
  rm -rf /root/exporter && mkdir -p /root/exporter && cd /root/exporter
  mkdir -p export opt/sparkctl/steps proc run/rpcbind sys tmp var/lib/nfs/sm var/lib/nfs/v4recovery
  cp /opt/sparkctl/images/steps/exporter.sh opt/sparkctl/steps/ && touch var/lib/nfs/etab var/lib/nfs/rmtab
  tools="/bin/sh /bin/cat /bin/tr /bin/mount /bin/mountpoint /sbin/rpcbind /usr/sbin/exportfs /usr/sbin/rpc.nfsd
    /usr/sbin/rpc.mountd /bin/kmod"
  files="/etc/netconfig /etc/nfs.conf /etc/passwd /etc/group /etc/services /etc/protocols /etc/rpc /etc/nsswitch.conf"
  libraries=$(ldd $tools | grep -o '/[^ ]*\\.so[^ ]*' | sort -u)
  tar -C / -ch $(echo $files $tools $libraries | sed 's, /, ,g; s,^/,,') | tar -x
  tar -c . | docker import -c 'ENTRYPOINT ["/opt/sparkctl/steps/exporter.sh"]' - exporter:lab
}
"""
NO_SERVER = """
systemctl stop nfs-server
for each in exportfs rpc.nfsd rpc.mountd; do mv /usr/sbin/$each /usr/sbin/$each.away; done
"""
SERVER_AGAIN = """
for each in exportfs rpc.nfsd rpc.mountd; do mv /usr/sbin/$each.away /usr/sbin/$each; done
systemctl start nfs-server
"""

STANDIN = "/opt/standin"
# A rank in vLLM's place: it reads all of the folder that it is told, says what and from where, and serves.
RANK = f"""
mkdir -p {STANDIN}/venv/bin && cd {STANDIN} && cp /opt/sparkctl/tests/contract/standin.py . && cat > venv/bin/vllm
chmod 755 venv/bin/vllm
"""
VLLM = f"""#!/bin/sh
set -e
(cd "$2" && sha256sum * && stat -f -c %T .) > {STANDIN}/read
exec python3 {STANDIN}/standin.py "$@"
"""
MODEL = """
import json, os
os.makedirs("/srv/served", exist_ok=True)
open("/srv/served/config.json", "w").write("{}")
for part in ("1", "2"):
    tensor = {f"w{part}": {"dtype": "U8", "shape": [3 << 20], "data_offsets": [0, 3 << 20]}}
    header = json.dumps(tensor).encode()
    with open(f"/srv/served/model-0000{part}-of-00002.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + os.urandom(3 << 20))
"""
SLOWLY = """
import hashlib, mmap, os, sys, time
file, made, at = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), hashlib.sha256(), 0
page = mmap.mmap(-1, 1 << 18)
while True:
    got = os.preadv(file, [page], at)
    if not got:
        break
    made.update(page[:got])
    at += got
    open("/tmp/progress", "w").write(str(at))
    time.sleep(0.05)
print(made.hexdigest())
"""
SUMS = """
import hashlib, json, os
names = os.listdir("/model")
print(json.dumps({name: hashlib.sha256(open(f"/model/{name}", "rb").read()).hexdigest() for name in names}))
"""
