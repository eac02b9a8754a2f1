"""`python -m cluster`, and the `sparkctl` command."""

import atexit
import gc

# What is imported stays: looking through it for garbage, as it comes and once more at the end, is a fifth of our time.
gc.set_threshold(200_000)
atexit.register(gc.freeze)

from cluster.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
