#!/usr/bin/env bash
# Leaves the Python package as a wheel in build/wheels, whole: the libraries that it needs are inside. What build/release
# holds is not compiled again. usage: tools/wheel.sh [a python3 that has what tools/requirements-wheel.txt lists]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-}
if [ -z "$python" ]; then
  python=build/wheel-venv/bin/python
  [ -x "$python" ] || python3 -m venv build/wheel-venv
  "$python" -m pip install --quiet --no-input --disable-pip-version-check -r tools/requirements-wheel.txt
fi
launcher=()
! command -v ccache >/dev/null || launcher=(-C cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache)
# A build that has tests keeps them.
tests=$(sed -n 's/^FOREBAY_TESTS:BOOL=//p' build/release/CMakeCache.txt 2>/dev/null || true)
rm -rf build/wheels
"$python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps -w build/wheels/raw \
  -C build-dir=build/release -C cmake.define.FOREBAY_TESTS="${tests:-OFF}" -C cmake.define.FOREBAY_PCH=ON -C cmake.define.CMAKE_EXPORT_COMPILE_COMMANDS=ON "${launcher[@]}" .
PATH=$(dirname "$python"):$PATH "$python" -m auditwheel --quiet repair -w build/wheels build/wheels/raw/forebay-*.whl >/dev/null
rm -rf build/wheels/raw
ls build/wheels/*.whl
