#!/usr/bin/env bash
# Leaves an environment of Python in build/test-venv with what the package's build and tests need from PyPI. Waits for another
# call that is at it. usage: tools/python_env.sh
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/test-venv
mkdir -p build
exec 9>build/test-venv.lock </dev/null
flock 9
wanted=$(python3 --version; cat tools/requirements-wheel.txt tools/requirements-test.txt)
[ "$(cat $venv/wanted 2>/dev/null)" != "$wanted" ] || exit 0
rm -rf $venv
python3 -m venv $venv
$venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check -r tools/requirements-wheel.txt \
  -r tools/requirements-test.txt 2>build/test-venv.log || {
  tail -n 3 build/test-venv.log >&2
  echo "python_env: pip could not install what tools/requirements-*.txt list; is the network there?" >&2
  exit 1
}
echo "$wanted" >$venv/wanted
