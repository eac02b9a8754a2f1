#!/bin/sh
# What every image that compiles at run time must have: a C compiler, Python's headers, a HOME that can be written.
# Then the packages that are named. SPARKCTL_SELF_TEST=gpu asks for the GPU too: a build has none, a node has.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
test -w "$HOME" || { echo "HOME=$HOME cannot be written" >&2; exit 1; }
cat > "$work/probe.c" <<'C'
#include <Python.h>
int main(void) { return Py_IsInitialized(); }
C
headers=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')
cc -shared -fPIC -I"$headers" "$work/probe.c" -o "$work/probe.so"
echo "compiler, headers and HOME: ok"
python3 "${0%/*}/self_test.py" "$@"
