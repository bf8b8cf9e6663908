#!/usr/bin/env bash
# All tests: release suite, end-to-end, sanitizers, fuzzers on their corpora. Prints what it ran; stops at the first failure.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
export CTEST_OUTPUT_ON_FAILURE=1
launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
step() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }

step "structure"
python3 tools/tidy.py

step "demo model"
tools/fetch_demo_model.sh models/SmolLM2-135M-Instruct.Q4_1.gguf

step "release build and tests"
cmake --preset release -DFOREBAY_TESTS=ON "${launcher[@]}" >/dev/null
ninja -C build/release -j "$jobs"
ctest --test-dir build/release -j "$jobs"

step "address and undefined-behaviour sanitizers"
cmake --preset asan -DFOREBAY_WERROR=ON "${launcher[@]}" >/dev/null
ninja -C build/asan -j "$jobs"
ctest --test-dir build/asan -j "$jobs" -L unit -LE slow

step "thread sanitizer"
cmake --preset tsan "${launcher[@]}" >/dev/null
ninja -C build/tsan -j "$jobs" concurrency_tests
ctest --test-dir build/tsan -j "$jobs" -L concurrency

step "fuzzers, 15 s each"
tools/fuzz.sh 15

step "done"
