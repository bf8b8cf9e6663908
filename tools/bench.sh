#!/usr/bin/env bash
# All benchmarks; each prints its table and leaves it in bench/results/. About half an hour on 2 quiet cores.
set -euo pipefail
cd "$(dirname "$0")/.."
results=bench/results
cmake --preset release -DFOREBAY_BENCH=ON >/dev/null
ninja -C build/release -j "${JOBS:-$(nproc)}" forebay dispatch_bench linear_bench attention_bench limits_probe
build/release/bench/dispatch_bench | tee "$results/dispatch.md"
for isa in amx avx512bf16 avx512f avx2; do
  # An instruction set that the machine lacks keeps its last figures, with their machine.
  for layer in linear attention; do
    table=$("build/release/bench/${layer}_bench" --isa "$isa")
    if grep -q '^|' <<<"$table"; then
      printf '%s\n' "$table" | tee "$results/$layer-$isa.md"
    else
      echo "skipped: $layer on $isa"
    fi
  done
done
for isa in amx avx512bf16 avx512f avx2; do
  grep -q "${isa/avx512bf16/avx512_bf16}" /proc/cpuinfo &&
    python3 bench/throughput.py build/release/forebay --isa "$isa" --out "$results/throughput-ISA.md" || echo "skipped: throughput on $isa"
done
