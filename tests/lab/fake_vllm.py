"""The `vllm` of a fake environment: says what vLLM says while it boots, then becomes the stand-in server.

For faults that do not depend on vLLM itself. What it does is told by a file on the node, `behaviour` beside its
environment, read once:
    serve     boots and serves
    exit      says an error and leaves with code 1
    silent    says nothing and sits there
    wait      boots as far as the rendezvous, and goes on when the file says `serve`
As with vLLM, rank 0 waits there for its peer, without a word and for as long as it takes.
"""

import os
import socket
import sys
import time
from pathlib import Path

HOME = Path("/opt/stand-in")
STANDIN = Path(__file__).parents[1] / "contract" / "standin.py"


def main(words: list[str]) -> None:
    options = dict(zip(words, [*words[1:], ""], strict=True))
    rank = options["--node-rank"]
    behaviour = behaves()
    if behaviour == "exit":
        print("ValueError: no such quantization: exl9", flush=True)
        sys.exit(1)
    if behaviour == "silent":
        time.sleep(9e5)
    print("non-default args: {}", flush=True)
    where = f"tcp://{options['--master-addr']}:{options['--master-port']}"
    print(f"world_size=2 rank={rank} local_rank=0 distributed_init_method={where} backend=gloo", flush=True)
    while behaves() == "wait":
        time.sleep(0.1)
    meet(options["--master-addr"], int(options["--master-port"]), listens=rank == "0")
    print(f"rank {rank} in world size 2 is assigned as DP rank 0, PP rank 0, TP rank {rank}", flush=True)
    port = () if "--headless" in words else ("--port", options["--port"])
    os.execv(sys.executable, (sys.executable, str(STANDIN), *port))


def meet(address: str, port: int, *, listens: bool) -> None:
    if listens:
        with socket.create_server((address, port)) as server:
            server.accept()
        return
    while True:
        try:
            socket.create_connection((address, port), timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return


def behaves() -> str:
    return (HOME / "behaviour").read_text().strip()


if __name__ == "__main__":
    main(sys.argv[1:])
