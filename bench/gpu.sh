#!/usr/bin/env bash
# What a GPU says: facts, right and wrong, limits. usage: gpu.sh [--emulated] OUT
# --emulated: kernels and jobs on the emulation, on a machine without a GPU.
# Runs from build/gpu-bundle (`make gpu-bundle`), which is all that it needs beside a driver: no network, no compiler. It
# leaves clocks and modes alone. Each stage has a limit and stops no other; OUT gets what they say as they say it:
# facts.txt, trials.txt, kernels.txt, jobs.txt, jobs.jsonl, limits.jsonl, sanitizer.txt, summary.txt, and the profile that it measured, profile.json. Ends
# with 1 if a stage about right and wrong failed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
check=("$here/gpu_check")
emulated=
[ "${1:-}" != --emulated ] || { emulated=1 && check+=(--emulated) && shift; }
out=${1:?usage: gpu.sh [--emulated] OUT}
mkdir -p "$out"
export FOREBAY_TEST_DATA=$here/data
failed=0
summary=$out/summary.txt
: >"$summary"
say() { printf '%-44s %s\n' "$1" "$2" | tee -a "$summary"; }
# stage NAME SECONDS FILE COMMAND...: 1 if it failed.
stage() {
  local name=$1 limit=$2 file=$3 began=$SECONDS code=0
  shift 3
  { timeout -k 5 "$limit" "$@"; } >>"$out/$file" 2>&1 || code=$?
  case $code in
    0) say "$name" "ok, $((SECONDS - began)) s" ;;
    124 | 137) say "$name" "FAILED: not done in $limit s" ;;
    *) say "$name" "FAILED: code $code, see $file" ;;
  esac
  [ "$code" = 0 ]
}
# tests NAME SECONDS FILE FILTER [jobs]: all in one process; where one breaks, each in its own.
tests() {
  local command=("${check[@]}" ${5:+"$5"})
  stage "$1" "$2" "$3" "${command[@]}" --gtest_brief=1 --gtest_filter="$4" && return
  failed=1
  local suite='' line
  while read -r line; do
    case $line in
      *.) suite=$line ;;
      *) stage "  $suite${line%% *}" 40 "$3" "${command[@]}" --gtest_brief=1 --gtest_filter="$suite${line%% *}" || true ;;
    esac
  done < <("${command[@]}" --gtest_list_tests --gtest_filter="$4" 2>/dev/null | sed 's/^ *//')
}

stage "machine" 20 facts.txt sh -c 'uname -a; grep -m1 "model name" /proc/cpuinfo; ldd --version | head -1
  command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit,temperature.gpu --format=csv; true'
if [ -z "$emulated" ]; then
  stage "GPU" 30 facts.txt "${check[@]}" facts || { say "no GPU can be used" "see facts.txt"; cat "$out/facts.txt"; exit 1; }
fi
tests "order of sums, arithmetic" 60 trials.txt 'Trial.*'
tests "device: memory, streams, events" 60 trials.txt 'CudaDevice*.*:CudaDriver.*'
tests "kernels of class pair" 120 kernels.txt 'PairKernels.*'
tests "jobs on tiny models, class pair" 120 jobs.txt '*CudaJobs*-TensorCores*' jobs
tests "jobs on tiny models, class mma_k16f25" 120 jobs.txt 'TensorCores*CudaJobs*' jobs
[ -n "$emulated" ] || stage "rates" 60 limits.jsonl "${check[@]}" rates
# The same linear layers by PyTorch, where it is installed.
if [ -z "$emulated" ] && python3 -c 'import torch' 2>/dev/null; then
  stage "rates of PyTorch" 60 limits.jsonl python3 "$here/torch_rates.py" || true
fi
tests "all other kernels" 60 kernels.txt '-Trial.*:PairKernels.*:Cuda*.*:*CudaJobs*'
for class in pair mma_k16f25; do
  [ -n "$emulated" ] || stage "rates of jobs, class $class" 60 jobs.jsonl "${check[@]}" job-rates $class "$here"/data/models/{smollm2-135m,qwen3-0.6b}
done
# Lengths and models of the public scoreboard of synthetic data (docs/gpu.md).
for model in smollm2-135m smollm2-1.7b qwen3-0.6b qwen3-4b qwen3-8b; do
  [ -n "$emulated" ] || stage "long jobs of $model" 60 jobs.jsonl "${check[@]}" long-jobs mma_k16f25 256 "$here/data/lengths.csv" "$here/data/models/$model"
done
[ -n "$emulated" ] || stage "limits" 60 limits.jsonl "${check[@]}" limits
# The profile of a class, and by it jobs in the simulator, beside those that `job-rates` has timed.
class=mma_k16f25 job='64 x (128 + 32)' forebay=(env "LD_LIBRARY_PATH=$here/lib" "$here/forebay")
if [ -z "$emulated" ] && stage "profile, class $class" 60 facts.txt "${forebay[@]}" profile --devices cuda --numerics $class --quick -o "$out/profile.json"; then
  awk 'BEGIN {for (i = 0; i < 64; ++i) {printf "{\"prompt\": ["; for (j = 0; j < 128; ++j) printf "%s%d", j ? ", " : "", (7 * i + 13 * j) % 1000
    print "], \"max_tokens\": 32, \"temperature\": 0}"}}' >"$out/requests.jsonl"
  for model in smollm2-135m qwen3-0.6b; do
    stage "job of $model, simulated" 20 facts.txt "${forebay[@]}" run -m "$here/data/models/$model" --devices "sim:$out/profile.json" --profile \
      -i "$out/requests.jsonl" --skip-tokenizer-init --max-num-seqs 64 --max-model-len 1024 --summary "$out/simulated.json" || continue
    simulated=$(sed -n 's/.*"elapsed_time":\([^,]*\).*/\1/p' "$out/simulated.json")
    measured=$(grep -F "$job" "$out/jobs.jsonl" | grep "$class.*$model\|$model.*$class" | grep -v load | sed -n 's/.*"value": \([^,]*\), "unit": "s".*/\1/p' | head -1)
    [ -z "$measured" ] || awk -v simulated="$simulated" -v measured="$measured" -v name="job of class $class, $model, $job, simulator / measured" \
      'BEGIN {printf "{\"figure\": \"%s\", \"value\": %.3f, \"unit\": \"times\"}\n", name, simulated / measured}' >>"$out/limits.jsonl"
  done
  rm -f "$out/requests.jsonl" "$out/simulated.json"
fi
sanitizer=
[ -n "$emulated" ] || sanitizer=$(command -v compute-sanitizer || true)
if [ -n "$sanitizer" ]; then
  stage "compute-sanitizer" 120 sanitizer.txt "$sanitizer" --error-exitcode 9 "${check[@]}" --gtest_brief=1 --gtest_filter='PairKernels.Linear:PairKernels.Attention'
fi
[ -n "$emulated" ] || sed -n 's/.*"figure": "\([^"]*\)", "value": \([^,]*\), "unit": "\([^"]*\)".*/\1|\2 \3/p' "$out"/*.jsonl | while IFS='|' read -r name value; do say "$name" "$value"; done
[ "$failed" = 0 ] && say "right and wrong" "all right" || say "right and wrong" "FAILED"
exit $failed
