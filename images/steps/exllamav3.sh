#!/bin/sh
# Build ExLlamaV3's extension at a pinned commit for GB10 (compute capability 12.1), without its requirements.
# EXLLAMAV3_REPOSITORY and EXLLAMAV3_COMMIT come from the Dockerfile.
set -eu
case "$EXLLAMAV3_COMMIT" in
    *[!0-9a-f]*|"") echo "EXLLAMAV3_COMMIT=$EXLLAMAV3_COMMIT is no commit" >&2; exit 2 ;;
esac
test "${#EXLLAMAV3_COMMIT}" -eq 40 || { echo "EXLLAMAV3_COMMIT=$EXLLAMAV3_COMMIT is not a whole commit" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git init -q "$work"
git -C "$work" fetch -q --depth 1 "$EXLLAMAV3_REPOSITORY" "$EXLLAMAV3_COMMIT"
git -C "$work" checkout -q FETCH_HEAD
test "$(git -C "$work" rev-parse HEAD)" = "$EXLLAMAV3_COMMIT" || { echo "fetched another commit" >&2; exit 1; }
TORCH_CUDA_ARCH_LIST=12.1a MAX_JOBS="${MAX_JOBS:-8}" \
    python3 -m pip install --no-cache-dir --no-build-isolation --no-deps "$work"
# A wheel without the extension would compile it at the first import, in every container anew.
packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
library=$(find "$packages" -name 'exllamav3_ext*.so' | head -n 1)
test -n "$library" || { echo "no extension was built" >&2; exit 1; }
if command -v cuobjdump > /dev/null; then
    cuobjdump --list-elf "$library" | grep -q 'sm_121' || { echo "the extension has no code for GB10" >&2; exit 1; }
fi
