#!/bin/sh
# Install a package of this repository beside what is there: what it compiles is compiled here, no other is changed.
# Arguments: its folder, and one with wheels of what builds it, where nothing may be downloaded.
set -eu
folder=$(cd "$1" && pwd)
name=$(sed -n 's/^name = "\(.*\)"$/\1/p' "$folder/pyproject.toml" | head -n 1)
test -n "$name" || { echo "$1/pyproject.toml has no name" >&2; exit 2; }
own=$(echo "$name" | sed 's/[-_.]/[-_.]/g')
others() { python3 -m pip list --format=freeze --disable-pip-version-check | grep -iv "^$own=="; }
before=$(others)
python3 -m pip install --no-cache-dir --no-deps ${2:+--no-index --find-links "$2"} "$folder"
after=$(others)
test "$before" = "$after" || { echo "$name changed other packages" >&2; exit 1; }
