#!/usr/bin/env bash
# All tests: release suite, end-to-end, the Python package, sanitizers, fuzzers on their corpora (tools/soak.sh has the long
# forms, and the Python package with sanitizers). Stops at the first failure; at the end prints how long each part took, and
# which parts were skipped where PyPI cannot be reached.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
export CTEST_OUTPUT_ON_FAILURE=1
launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
part= began=0 times= skipped=
step() {
  [ -z "$part" ] || times+=$(printf '%6d s  %s' $((SECONDS - began)) "$part")$'\n'
  part=$1 began=$SECONDS
  printf '\n== %s (%s s)\n' "$1" "$SECONDS"
}

# Runs "$@", which may skip itself: then it says so in a line that begins with SKIPPED.
optional() {
  local line
  "$@" 2>&1 | tee build/optional.log
  while read -r line; do skipped+="  ${line#SKIPPED: }"$'\n'; done < <(grep '^SKIPPED: ' build/optional.log || true)
}

# The tests that the patterns of tests/sanitizers/$1.txt do not name, as a filter of GoogleTest.
all_but() { echo "-$(grep -v '^#' "tests/sanitizers/$1.txt" | grep . | paste -sd:)"; }

step "structure"
python3 tools/tidy.py

step "solver of the packing oracle"
tools/fetch_highs.sh build/highs || echo "without it: its tests are skipped"

step "demo model"
tools/fetch_demo_model.sh models/SmolLM2-135M-Instruct.Q4_1.gguf

step "release build"
cmake --preset release -DFOREBAY_TESTS=ON -DFOREBAY_WERROR=ON "${launcher[@]}" >/dev/null
ninja -C build/release -j "$jobs"
step "release tests"
ctest --test-dir build/release -j "$jobs"

step "Python package: wheel, types, tests"
optional tools/test_python.sh
step "Python package under Ray"
optional tools/test_ray.sh

step "build with address and undefined-behaviour sanitizers, and of the fuzzers"
cmake --preset asan -DFOREBAY_WERROR=ON "${launcher[@]}" >/dev/null
ninja -C build/asan -j "$jobs" quick_tests fuzzers
step "tests with address and undefined-behaviour sanitizers"
GTEST_FILTER=$(all_but address) ctest --test-dir build/asan -j "$jobs" -L unit -LE 'slow|simulated'

step "build with the thread sanitizer"
cmake --preset tsan "${launcher[@]}" >/dev/null
ninja -C build/tsan -j "$jobs" concurrency_tests
step "tests with the thread sanitizer"
GTEST_FILTER=$(all_but thread) ctest --test-dir build/tsan -j "$jobs" -L concurrency

step "fuzzers, 5 s each"
tools/fuzz.sh 5

step "done"
printf '%s%6d s  all\n' "$times" "$SECONDS"
[ -z "$skipped" ] || printf '%d parts were skipped, since PyPI cannot be reached:\n%s' "$(grep -c . <<<"$skipped")" "$skipped"
