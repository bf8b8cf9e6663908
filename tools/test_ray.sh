#!/usr/bin/env bash
# The package's tests under Ray (620 MB from PyPI), on its wheel in an environment of its own. usage: tools/test_ray.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
tools/install_wheel.sh ray || exit $(($? == 75 ? 0 : 1))
bin=$PWD/build/ray-venv/bin
export FOREBAY=$bin/forebay
cd tests/python
"$bin/python" -m pytest -q -rs -p no:cacheprovider --durations=5 "$@" ray_test.py one_answer_test.py </dev/null
