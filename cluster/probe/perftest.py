"""The figures of ib_write_bw and ib_write_lat, and their command lines."""

import re

SIZE = 65536  # a write of this size fills a function; larger ones change nothing
QUEUES = 4


def bandwidth(device: str, gid: int, port: int, seconds: int, target: str = "") -> tuple[str, ...]:
    """The server without `target`, the client with it. `-F`: a clock that scales is no reason to stop."""
    options = ("-d", device, "-x", str(gid), "-p", str(port), "-s", str(SIZE), "-q", str(QUEUES), "-D", str(seconds))
    return ("ib_write_bw", *options, "--report_gbits", "-F", *((target,) if target else ()))


def latency(device: str, gid: int, port: int, target: str = "") -> tuple[str, ...]:
    options = ("-d", device, "-x", str(gid), "-p", str(port), "-s", "2", "-n", "1000", "-F")
    return ("ib_write_lat", *options, *((target,) if target else ()))


def parse_bandwidth(text: str) -> float | None:
    """`65536  83350  0.00  108.90  0.207707`: bytes, iterations, peak, average, messages. None when there is no row."""
    rows = re.findall(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", text, re.MULTILINE)
    return float(rows[-1]) if rows else None


def parse_latency(text: str) -> float | None:
    """`2  1000  1.60  9.41  1.67  1.70  0.10  1.90  9.41`: the typical one is the fifth."""
    rows = re.findall(r"^\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+\s+([\d.]+)(?:\s+[\d.]+)+\s*$", text, re.MULTILINE)
    return float(rows[-1]) if rows else None


def parse_failure(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not set(line.strip()) <= set("-")]
    return lines[-1] if lines else "it said nothing"
