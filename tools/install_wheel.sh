#!/usr/bin/env bash
# Leaves the Python package, as its wheel, in the environment build/NAME-venv, which has what tools/requirements-NAME.txt
# lists. Exit code 75: PyPI cannot be reached, so that tests in it are skipped. usage: tools/install_wheel.sh NAME
set -euo pipefail
cd "$(dirname "$0")/.."
for name in wheel "$1"; do
  tools/python_env.sh "$name-venv" "tools/requirements-$name.txt" || {
    echo "SKIPPED: the tests in build/$1-venv, all of them" >&2
    exit 75
  }
done
tools/wheel.sh
python3 -m pip --python "build/$1-venv/bin/python" install --quiet --no-input --disable-pip-version-check --no-index --no-deps --force-reinstall build/wheels/*.whl
