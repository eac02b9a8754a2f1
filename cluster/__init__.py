"""sparkctl: serve models too large for one box over two nodes."""

__version__ = "0.1.0"
