"""`python -m cluster`, and the `sparkctl` command."""

from cluster.cli.main import main

if __name__ == "__main__":
    main()
