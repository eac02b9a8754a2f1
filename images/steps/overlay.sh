#!/bin/sh
# Install the overlay beside the engine: its C++ row store is compiled here, and no other package is changed.
set -eu
before=$(python3 -m pip list --format=freeze | grep -v '^spark-overlay==')
python3 -m pip install --no-deps "${1:-/opt/sparkctl/overlay}"
after=$(python3 -m pip list --format=freeze | grep -v '^spark-overlay==')
test "$before" = "$after" || { echo "the overlay changed other packages" >&2; exit 1; }
