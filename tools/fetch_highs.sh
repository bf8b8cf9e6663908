#!/usr/bin/env bash
# Fetches the solver of `forebay pack --oracle` (HiGHS, MIT) from PyPI's highsbox.
# usage: tools/fetch_highs.sh build/highs
set -euo pipefail
into=${1:-build/highs}
[ ! -e "$into/libhighs.so" ] || exit 0
mkdir -p "$into"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$work" highsbox==1.15.1 2>"$work/log" || {
  tail -n 3 "$work/log" >&2
  echo "fetch_highs: pip could not install highsbox; is the network there?" >&2
  exit 1
}
cp "$work/highsbox/highs_dist/lib/libhighs.so" "$into/"
