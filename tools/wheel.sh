#!/usr/bin/env bash
# Leaves the Python package as a wheel in build/wheels, whole: the libraries that it needs are inside. What build/release
# holds is not compiled again, and a wheel that is younger than all it is made of stays. usage: tools/wheel.sh
set -euo pipefail
cd "$(dirname "$0")/.."
tools/python_env.sh wheel-venv tools/requirements-wheel.txt
bin=$PWD/build/wheel-venv/bin
wheel=$(ls build/wheels/*.whl 2>/dev/null || true)
if [ -f "$wheel" ] && [ -z "$(find CMakeLists.txt CMakePresets.json README.md pyproject.toml bindings cmake include src tools/wheel.sh build/wheel-venv/wanted \
  build/release/CMakeCache.txt -newer "$wheel" -print -quit)" ]; then
  echo "$wheel"
  exit 0
fi
launcher=()
! command -v ccache >/dev/null || launcher=(-C cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache)
# A build that has tests, or warnings that are errors, keeps them.
option() { sed -n "s/^FOREBAY_$1:BOOL=//p" build/release/CMakeCache.txt 2>/dev/null || true; }
tests=$(option TESTS) werror=$(option WERROR)
rm -rf build/wheels
# The compiler that CMake takes by itself; what a changed environment makes it configure anew is not compiled anew.
export CXX=${CXX:-c++} CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)}
python3 -m pip --python "$bin/python" wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
  -w build/wheels/raw -C build-dir=build/release -C cmake.define.FOREBAY_TESTS="${tests:-OFF}" \
  -C cmake.define.FOREBAY_WERROR="${werror:-OFF}" \
  -C cmake.define.CMAKE_EXPORT_COMPILE_COMMANDS=ON "${launcher[@]}" .
PATH=$bin:$PATH "$bin/python" -m auditwheel repair -w build/wheels build/wheels/raw/forebay-*.whl >build/wheels/auditwheel.log 2>&1 || {
  cat build/wheels/auditwheel.log >&2
  exit 1
}
rm -rf build/wheels/raw
ls build/wheels/*.whl
