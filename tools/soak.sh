#!/usr/bin/env bash
# The long forms of the tests: every fuzzer for 10 minutes, 2,000 kills over jobs on the demo model, 1 M and 4 M lines, every
# end-to-end test, eight hours of AsyncLLM, the Python package with sanitizers and under Ray. Writes what came out to
# bench/results/soak.md; stops at the first failure.
# Of AsyncLLM alone two minutes, with the slope of its memory: FOREBAY_ASYNC_SECONDS=120 tools/test_python.sh -s -k given_up
# usage: tools/soak.sh [SECONDS_A_FUZZER [KILLS [LINES [SECONDS_OF_ASYNC]]]]   (0 seconds: no fuzzers)
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
kills=${2:-2000}
lines=${3:-4000000}
async=${4:-28800}
model=models/SmolLM2-135M-Instruct.Q4_1.gguf
report=bench/results/soak.md
jobs=${JOBS:-$(nproc)}
logs=build/soak
mkdir -p "$logs" "$(dirname "$report")"
launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

# Runs "$@" with its output shown and kept in $logs/NAME.log; sets `took`.
step() {
  local name=$1 began=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  "$@" 2>&1 | tee "$logs/$name.log"
  took=$((SECONDS - began))
}
row() { printf '| %s | %s | %s s |\n' "$1" "$2" "$took" >>"$logs/rows"; }
# The last line of a step's log that matches.
found() { grep -E "$2" "$logs/$1.log" | tail -n 1 | sed -E 's/^.*\.\.\. //'; }

tools/fetch_demo_model.sh "$model"
cmake --preset release -DFOREBAY_TESTS=ON "${launcher[@]}" >/dev/null
ninja -C build/release -j "$jobs" forebay job_log_test
forebay=build/release/forebay
: >"$logs/rows"

step kills-tiny env FOREBAY_KILLS="$kills" python3 tests/e2e/kill_test.py "$forebay"
row "kill -9, tiny model" "$(found kills-tiny '0 lost')"
step kills-layout env FOREBAY_LAYOUT_KILLS=200 python3 tests/e2e/ranks_test.py "$forebay" Layout.test_kill_and_resume_with_four_ranks
row "kill -9, tiny model, four ranks that share weights" "200 kills"
step kills-shift env FOREBAY_LAYOUT_KILLS=200 python3 tests/e2e/ranks_test.py "$forebay" Layout.test_kill_and_resume_with_modes_at_random
row "kill -9, tiny model, two ranks that cut rows, each step in a mode at random" "200 kills"
step kills-roles env FOREBAY_LAYOUT_KILLS=200 python3 tests/e2e/ranks_test.py "$forebay" Layout.test_kill_and_resume_with_roles
row "kill -9, tiny model, two roles" "200 kills"
step kills-demo env FOREBAY_KILLS="$kills" FOREBAY_KILL_MODEL="$PWD/$model" FOREBAY_KILL_MEMORY=1GiB \
  FOREBAY_KILL_REQUESTS=60 FOREBAY_KILL_TOKENS=16 python3 tests/e2e/kill_test.py "$forebay"
row "kill -9, SmolLM2-135M-Instruct" "$(found kills-demo '0 lost')"
step memory env FOREBAY_MEMORY_LINES="$lines" python3 tests/e2e/memory_test.py "$forebay"
row "peak memory" "$(found memory 'lines/s')"
step batch env FOREBAY_DEMO_MODEL="$PWD/$model" FOREBAY_BATCH_REQUESTS=100 python3 tests/e2e/batch_invariance_test.py "$forebay"
row "batch invariance, SmolLM2-135M-Instruct" "$(found batch 'the same alone')"
step extremes env FOREBAY_EXTREMES=${FOREBAY_EXTREMES:-20000} FOREBAY_EXTREMES_SEED="$RANDOM" python3 tests/e2e/extremes_test.py "$forebay"
row "parameters at the ends of their ranges" "$(found extremes 'random requests')"
for test in signals disk_full resume api command_line pool_choice; do
  step "$test" env FOREBAY_ALL_ROWS=1 python3 "tests/e2e/${test}_test.py" "$forebay"
  row "$test" "$(found "$test" ' skipped$')"
done
ninja -C build/release -j "$jobs" kv_test traffic_test oracle_solver_test repro_rows_test
step rows env FOREBAY_ALL_ROWS=1 build/release/src/repro/repro_rows_test
row "every row of \`repro\`, quick" "$(found rows 'PASSED')"
step interleavings env FOREBAY_INTERLEAVINGS=10000 build/release/src/kv/kv_test \
  --gtest_filter='TierTest.NoInterleaving*:ChainStoreTest.NoInterleaving*:WindowTest.AttentionFinds*'
row "interleavings of copies of KV cache and steps, each of three protocols" "10000"
step traffic env FOREBAY_INTERLEAVINGS=10000 build/release/tests/traffic_test --gtest_filter='*SeededInterleavings*'
row "interleavings of people, a batch, parking, stealing and cancels" "10000"
tools/fetch_highs.sh
step oracle env FOREBAY_ORACLE_INSTANCES=100 build/release/src/oracle/oracle_solver_test --gtest_filter='SolverTest.Ours*'
row "packings beside the optimum, 100 instances, printed" "$(found oracle '^printed')"
row "the same, grown" "$(found oracle '^grown')"
step leases env FOREBAY_LEASE_LINES=10000000 build/release/src/job/job_log_test --gtest_filter=LeaseBook.SixtyFour*
row "lines through the lease book" "10000000 of 64 workers"
step shared env FOREBAY_INTERLEAVINGS=100000 build/release/src/job/job_log_test --gtest_filter='SharedJob.EachLine*'
row "a shared job's driver and workers that die, are late or speak twice" "100000"
step workers env FOREBAY_KILLS="$kills" FOREBAY_DRIVER_KILLS=200 FOREBAY_ASYNC_SECONDS="$async" FOREBAY_PROMPTS=1000000 FOREBAY_ROWS=100000 \
  tools/test_python.sh -s -k 'die_at_any_moment or given_up or is_bounded'
row "kill -9 of workers of a shared job" "$(found workers ' lost, 0 doubled')"
row "kill -9 of drivers of shared jobs, and of their workers" "$(found workers ' of drivers')"
row "AsyncLLM, requests given up" "$(found workers 'an hour more')"
row "memory over a million prompts of an iterator" "$(found workers 'prompts: ')"
row "memory over a table" "$(found workers 'rows: ')"
cmake --preset asan "${launcher[@]}" >/dev/null
ninja -C build/asan -j "$jobs"
step asan ctest --test-dir build/asan -j "$jobs" -L unit -LE slow
row "every test that is not slow, with sanitizers" "$(found asan 'tests passed')"
cmake --preset tsan "${launcher[@]}" >/dev/null
ninja -C build/tsan -j "$jobs" concurrency_tests
step tsan ctest --test-dir build/tsan -j "$jobs" -L concurrency
row "every test of threads with the thread sanitizer" "$(found tsan 'tests passed')"
step python-asan tools/test_python_asan.sh
row "the Python package on a module with sanitizers" "$(found python-asan ' passed|^SKIPPED')"
step ray tools/test_ray.sh
row "the Python package under Ray" "$(found ray ' passed|^SKIPPED')"
if [ "$seconds" -gt 0 ]; then
  step fuzz env PRESET=fuzz tools/fuzz.sh "$seconds"
  while read -r _ name inputs _; do
    took=$seconds row "fuzz $name" "$inputs inputs, no finding"
  done < <(grep -E '^fuzz .* no finding' "$logs/fuzz.log")
fi

{
  echo "# Soak: the long forms of the tests"
  echo
  echo "\`tools/soak.sh $seconds $kills $lines $async\` at $(git rev-parse --short HEAD), $(date -u +%F), on" \
    "$(grep -m 1 'model name' /proc/cpuinfo | cut -d: -f2 | xargs), $(nproc) cores."
  echo
  echo "| test | outcome | time |"
  echo "|---|---|---|"
  cat "$logs/rows"
} >"$report"
echo "wrote $report"
