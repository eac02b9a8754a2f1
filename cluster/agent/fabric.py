"""One end of a bandwidth test over plain sockets, between given addresses only. Runs on a node, for seconds.

    fabric.py JSON  {"serve": {"addresses": [A, ...], "peers": [A, ...], "token": HEX, "limit": seconds}}
                    prints one line {"ports": {A: port}, "problems": {A: sentence}} and serves until its limit, or until
                    it is ended; nobody but the peers is answered, and nobody without the token
    fabric.py JSON  {"send": [{"from": A, "to": A, "port": n}, ...], "token": HEX, "seconds": s, "streams": n}
                    all of them at once; prints [{"gbps", "latency_us", "error": sentence | null}, ...] in their order

The receiver counts, so what only filled a buffer on the way is not counted. Buffers are 1 MiB for each stream.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from typing import Any

BUFFER = 1 << 20
ROUNDS = 200
PATIENCE = 5.0
LATENCY, BANDWIDTH = b"L", b"B"


def whole(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError("the other end closed")
        data += part
    return data


def answer(link: socket.socket, token: bytes) -> None:
    """One connection: echo single bytes, or swallow all and say how much it was."""
    with link:
        link.settimeout(PATIENCE)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if whole(link, len(token)) != token:
                return
            if whole(link, 1) == LATENCY:
                for _ in range(ROUNDS):
                    link.sendall(whole(link, 1))
                return
            link.sendall(struct.pack("<Q", swallow(link)))
        except OSError:
            return  # the sender has the same trouble, and tells it


def swallow(link: socket.socket) -> int:
    room, total = bytearray(BUFFER), 0
    while True:
        size = link.recv_into(room)
        if not size:
            return total
        total += size


def accept(door: socket.socket, peers: set[str], token: bytes) -> None:
    while True:
        try:
            link, (address, _) = door.accept()
        except OSError:
            return
        if address in peers:
            threading.Thread(target=answer, args=(link, token), daemon=True).start()
        else:
            link.close()


def serve(want: dict[str, Any]) -> None:
    token, ports, problems = bytes.fromhex(want["token"]), {}, {}
    for address in want["addresses"]:
        door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            door.bind((address, 0))
            door.listen(64)
        except OSError as error:
            problems[address] = "cannot listen on %s: %s" % (address, error.strerror)
            continue
        ports[address] = door.getsockname()[1]
        threading.Thread(target=accept, args=(door, set(want["peers"]), token), daemon=True).start()
    print(json.dumps({"ports": ports, "problems": problems}), flush=True)
    time.sleep(want["limit"])


def connect(way: dict[str, Any], token: bytes, kind: bytes) -> socket.socket:
    """From the way's own address: otherwise the kernel would choose the rail."""
    link = socket.create_connection((way["to"], way["port"]), PATIENCE, (way["from"], 0))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.sendall(token + kind)
    return link


def latency(way: dict[str, Any], token: bytes) -> float:
    """Half a round trip in microseconds, the median."""
    seen = []
    with connect(way, token, LATENCY) as link:
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            link.sendall(b".")
            whole(link, 1)
            seen.append(time.perf_counter() - begun)
    return sorted(seen)[len(seen) // 2] * 5e5


def stream(way: dict[str, Any], token: bytes, seconds: float, counted: list[float], errors: list[str]) -> None:
    """Bits per second as the receiver counted them, until it had the last byte."""
    data = memoryview(bytearray(BUFFER))
    try:
        with connect(way, token, BANDWIDTH) as link:
            begun = time.perf_counter()
            while time.perf_counter() - begun < seconds:
                link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            total = struct.unpack("<Q", whole(link, 8))[0]
            counted.append(total * 8 / (time.perf_counter() - begun))
    except OSError as error:
        errors.append(error.strerror or str(error))


def measure(way: dict[str, Any], want: dict[str, Any], told: dict[str, Any]) -> None:
    token = bytes.fromhex(want["token"])
    try:
        told["latency_us"] = round(latency(way, token), 1)
    except OSError as error:
        told["error"] = "no connection from %s to %s: %s" % (way["from"], way["to"], error.strerror or error)
        return
    counted: list[float] = []
    errors: list[str] = []
    threads = [
        threading.Thread(target=stream, args=(way, token, want["seconds"], counted, errors))
        for _ in range(want["streams"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told["gbps"] = round(sum(counted) / 1e9, 2) if counted else None
    told["error"] = errors[0] if errors else None


def send(want: dict[str, Any]) -> None:
    answers: list[dict[str, Any]] = [{"gbps": None, "latency_us": None, "error": None} for _ in want["send"]]
    threads = [threading.Thread(target=measure, args=(way, want, answers[at])) for at, way in enumerate(want["send"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(answers))


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    if "serve" in request:
        serve(request["serve"])
    else:
        send(request)
