#!/usr/bin/env bash
# All benchmarks; each prints its table and leaves it in bench/results/. Takes about half an hour on 2 quiet cores.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset release -DFOREBAY_BENCH=ON >/dev/null
ninja -C build/release -j "${JOBS:-$(nproc)}"
for bench in dispatch_bench linear_bench attention_bench; do
  binary=$(find build/release/bench -name "$bench" -type f -perm -u+x | head -n 1)
  [ -z "$binary" ] || "$binary" | tee "build/$bench.txt"
done
python3 bench/throughput.py build/release/forebay --out bench/results/throughput-ISA.md
