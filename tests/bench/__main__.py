"""Run one benchmark by its name: people read standard error, programs read the last line of standard output."""

import json
import sys
from collections.abc import Callable

from tests.bench import cli, copy, engram, guard, image, preflight, relay, start, verify
from tests.bench.measure import CannotMeasure, Result

BENCHMARKS: dict[str, Callable[[], Result]] = {
    "cli": cli.run,
    "copy": copy.run,
    "engram": engram.run,
    "guard": guard.run,
    "image": image.run,
    "preflight": preflight.run,
    "relay": relay.run,
    "start": start.run,
    "verify": verify.run,
}


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0] not in BENCHMARKS:
        asked = f"there is no benchmark “{' '.join(words)}”" if words else "which benchmark?"
        print(f"bench: {asked}\nbench: choose one of: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    try:
        result = BENCHMARKS[words[0]]()
    except CannotMeasure as error:
        print(f"bench {words[0]}: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"name": words[0], "ratios": result.ratios, "figures": result.figures}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
