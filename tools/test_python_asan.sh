#!/usr/bin/env bash
# The Python package's tests on a module that has the address and undefined-behaviour sanitizers, but for those that measure
# memory or time, or end processes in the middle. usage: tools/test_python_asan.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
for name in wheel test; do
  tools/python_env.sh "$name-venv" "tools/requirements-$name.txt" || {
    echo "SKIPPED: the Python package's tests with sanitizers" >&2
    exit 0
  }
done
launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake --preset asan -DFOREBAY_PYTHON=ON -DPython_EXECUTABLE="$PWD/build/wheel-venv/bin/python" -DSKBUILD_SCRIPTS_DIR=bin "${launcher[@]}" >/dev/null
ninja -C build/asan -j "${JOBS:-$(nproc)}" _forebay
# The package as an installation has it: the module beside what is Python.
site=$PWD/build/asan/site
rm -rf "$site"
mkdir -p "$site"
cp -r bindings/python/forebay "$site"
cp build/asan/bindings/python/_forebay*.so "$site/forebay"
nm -D "$site"/forebay/_forebay*.so | grep __asan_report >/dev/null || { echo "$0: the module has no sanitizers" >&2; exit 1; }
# `forebay run` with other objects gives the answers to compare with: one program has one sanitizer's runtime.
export PYTHONPATH=$site FOREBAY=${FOREBAY:-$PWD/build/release/forebay}
# Python and its extensions are without: the runtime comes before them, the system's allocator serves all. What they never free is
# no leak of ours.
runtime=$(clang++ -print-file-name=libclang_rt.asan-x86_64.so)
export PYTHONMALLOC=malloc ARROW_DEFAULT_MEMORY_POOL=system
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1
[ $# -gt 0 ] || set -- -k 'not import and not memory and not interpreter and not killed and not control_c'
cd tests/python
# A finding ends the process: what it says must not be held back.
LD_PRELOAD=$runtime "$OLDPWD/build/test-venv/bin/python" -m pytest -q -rs -p no:cacheprovider -p no:faulthandler --capture=sys --durations=5 "$@" \
  llm_test.py process_test.py arguments_test.py async_llm_test.py batch_test.py </dev/null
