#!/bin/sh
# Install Debian or Ubuntu packages and nothing they only recommend; no lists of packages stay in the layer.
set -eu
test "$#" -gt 0 || { echo "no package is named" >&2; exit 2; }
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q install --yes --no-install-recommends "$@"
rm -rf /var/lib/apt/lists/*
