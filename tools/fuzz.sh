#!/usr/bin/env bash
# Builds every fuzz target and runs each for N seconds from its committed corpus, as many at once as there are cores. usage: tools/fuzz.sh N
# PRESET (asan): fuzz, whose code is optimised, for long runs. FUZZ_UNIT_SECONDS (10): one input may take so long; more where
# the fuzzers themselves are stopped for a while.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-15}
build=build/${PRESET:=asan}
launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake --preset "$PRESET" "${launcher[@]}" >/dev/null
ninja -C "$build" -j "${JOBS:-$(nproc)}" fuzzers
run_one() {
  IFS=: read -r name corpus <<<"$1"
  work=$build/corpus/$name
  mkdir -p "$work"
  binary=$(find "$build" -name "$name" -type f -perm -u+x | head -n 1)
  log=$build/$name.log
  if "$binary" -max_total_time="$seconds" -timeout="${FUZZ_UNIT_SECONDS:-10}" -rss_limit_mb=2048 -print_final_stats=1 "$work" "$corpus" >"$log" 2>&1; then
    printf 'fuzz %-28s %s inputs, no finding\n' "$name" "$(awk '/stat::number_of_executed_units/ {n = $2} END {print n}' "$log")"
  else
    printf 'fuzz %-28s FAILED\n' "$name"
    tail -n 40 "$log" >&2
    exit 255  # xargs starts no more
  fi
}
export -f run_one
export seconds build
xargs -P "${JOBS:-$(nproc)}" -I{} bash -euo pipefail -c 'run_one "$1"' _ {} < "$build/fuzzers.txt"
