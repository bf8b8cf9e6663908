#!/usr/bin/env bash
# The package's tests under Ray (620 MB from PyPI), with the wheel that tools/wheel.sh leaves. usage: tools/test_ray.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
for name in wheel ray; do
  tools/python_env.sh $name-venv tools/requirements-$name.txt || {
    echo "SKIPPED: the tests under Ray, all of them" >&2
    exit 0
  }
done
tools/wheel.sh
bin=$PWD/build/ray-venv/bin
export FOREBAY=$bin/forebay
"$bin/python" -m pip install --quiet --no-input --disable-pip-version-check --no-index --no-deps --force-reinstall build/wheels/*.whl
cd tests/python
"$bin/python" -m pytest -q -rs -p no:cacheprovider --durations=5 "$@" ray_test.py one_answer_test.py </dev/null
