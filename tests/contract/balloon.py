"""A process that takes memory and keeps it: balloon.py MIB AFTER RATE MORE

Takes MIB at once, says so, waits AFTER seconds, then takes RATE MiB a second until MORE have come on top.
"""

import sys
import time

MIB = 1 << 20


def main() -> None:
    first, after, rate, more = (float(word) for word in sys.argv[1:5])
    held = [bytearray(b"x") * (int(first) * MIB)]
    print("ready", flush=True)
    time.sleep(after)
    began, grown = time.monotonic(), 0
    while True:
        due = min(more, (time.monotonic() - began) * rate)
        while grown + 8 <= due:
            held.append(bytearray(b"x") * (8 * MIB))
            grown += 8
        time.sleep(0.02)


if __name__ == "__main__":
    main()
