#!/bin/sh
# Make a virtual environment with torch at a pinned version, and what goes beside it at theirs.
# TORCH and TORCH_INDEX come from the Dockerfile. Arguments: the folder to make, and a file of requirements.
set -eu
case "${TORCH:-}" in
    [0-9]*.[0-9]*.[0-9]*) ;;
    *) echo "TORCH=${TORCH:-} is no version" >&2; exit 2 ;;
esac
python3 -m venv "$1"
"$1/bin/python3" -m pip install --no-cache-dir --index-url "$TORCH_INDEX" "torch==$TORCH"
"$1/bin/python3" -m pip install --no-cache-dir --requirement "$2"
"$1/bin/python3" -c "import sys, torch; sys.exit(torch.__version__ != '$TORCH')" || {
    echo "another torch than $TORCH was installed" >&2
    exit 1
}
