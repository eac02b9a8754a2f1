"""For all tests: programs that they start hear Ctrl-C, also where the tests themselves run in the background."""

import signal

# A shell lets what it starts in the background ignore SIGINT, and every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
