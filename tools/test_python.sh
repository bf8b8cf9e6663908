#!/usr/bin/env bash
# The Python package's tests, on its wheel in an environment of its own; its types before them.
# usage: tools/test_python.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
tools/install_wheel.sh test || exit $(($? == 75 ? 0 : 1))
bin=$PWD/build/test-venv/bin
export FOREBAY=$bin/forebay
FOREBAY_WHEEL=$(echo "$PWD"/build/wheels/*.whl)
export FOREBAY_WHEEL
"$bin/python" -m mypy --strict --cache-dir build/mypy bindings/python/forebay examples/python tests/python/user_code.py
cd tests/python
"$bin/python" -m pytest -q -rs -p no:cacheprovider --durations=20 --durations-min=2 "$@" . </dev/null
