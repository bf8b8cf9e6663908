#!/usr/bin/env bash
# The Python package's tests, on its wheel in an environment of its own; its types before them.
# usage: tools/test_python.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
for name in wheel test; do
  tools/python_env.sh $name-venv tools/requirements-$name.txt || {
    echo "SKIPPED: the Python tests, all of them" >&2
    exit 0
  }
done
tools/wheel.sh
bin=$PWD/build/test-venv/bin
export FOREBAY=$bin/forebay
FOREBAY_WHEEL=$(echo "$PWD"/build/wheels/*.whl)
export FOREBAY_WHEEL
"$bin/python" -m pip install --quiet --no-input --disable-pip-version-check --no-index --no-deps --force-reinstall "$FOREBAY_WHEEL"
"$bin/python" -m mypy --strict --cache-dir build/mypy bindings/python/forebay examples/python
cd tests/python
"$bin/python" -m pytest -q -rs -p no:cacheprovider --durations=5 "$@" . </dev/null
