"""`python -m cluster`, and the `sparkctl` command."""

import gc

# Imports make many objects that stay: looking through them again and again for garbage is a tenth of our start.
gc.set_threshold(200_000)

from cluster.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
