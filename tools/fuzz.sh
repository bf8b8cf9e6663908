#!/usr/bin/env bash
# Builds every fuzz target and runs each for N seconds from its committed corpus. usage: tools/fuzz.sh N
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-15}
launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake --preset fuzz "${launcher[@]}" >/dev/null
ninja -C build/fuzz -j "${JOBS:-$(nproc)}" fuzzers
while IFS=: read -r name corpus; do
  work=build/fuzz/corpus/$name
  mkdir -p "$work"
  binary=$(find build/fuzz -name "$name" -type f -perm -u+x | head -n 1)
  printf 'fuzz %-28s ' "$name"
  log=build/fuzz/$name.log
  if "$binary" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 "$work" "$corpus" >"$log" 2>&1; then
    grep -E 'stat::number_of_executed_units' "$log" | awk '{print $2, "inputs, no finding"}'
  else
    echo "FAILED"
    tail -n 40 "$log" >&2
    exit 1
  fi
done < build/fuzz/fuzzers.txt
