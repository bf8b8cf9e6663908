#!/usr/bin/env bash
# The Python package's tests, on a wheel in an environment of its own; then types. usage: tools/test_python.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
tools/python_env.sh || {
  echo "SKIPPED: the Python tests" >&2
  exit 0
}
venv=build/test-venv
tools/wheel.sh $venv/bin/python
$venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --no-index --no-deps --force-reinstall build/wheels/*.whl
export FOREBAY=$PWD/$venv/bin/forebay
$venv/bin/python -m mypy --strict bindings/python/forebay examples/python
cd tests/python
../../$venv/bin/python -m pytest -q -rs -p no:cacheprovider --durations=5 "$@" . </dev/null
