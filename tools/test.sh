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
# Whole models run in bf16 alone, and one of each kind: the rest goes the same way through the same code. Thousands of seeds
# and long searches are for the release build. tools/soak.sh leaves out nothing. (With a tenth group in parentheses ctest leaves out nothing.)
same_code='(AttentionTest|Exact[a-zA-Z]*).*(<float>|_float32)|Models/.*/[1-9]|SimEngine.TheTailShips|ShiftPlan.APoolAlongSpIsHidden'
same_code+='|Exact.*/(gemma4_e|gemma4_moe|granite4_hybrid|llama4_text|mistral|mixed|mixtral|mixtral_windowed|qwen3|qwen3_5)_bfloat16'
same_code+='|StoredTest.EverySet.*/(ggufllama3|ggufmixtral|ggufqwen3Q|ggufqwen3moe|qwen3awq|qwen3gptq|qwen3w4)'
same_code+='|LayoutSearch|PoolTrials|ShiftChoice|ModePrice|Decide.ScalesOfBlocks|Foresee.RandomJobs|FusionAndSkippingPay|TextMemory.BentModels|TakeTheTimeOfLayersInFull|SimulatedLoopTest|SampleTest.DrawsFollow|Tokenizer.Throughput'
same_code+='|TenThousandInterleavings|Over1000Seeds|SeededInterleavings|LongWordsAreNotQuadratic|TemplateTest.BoundsEverything'
same_code+='|ALineCostsSixteen|ScanningResultsCosts|PullsFromAllOwnersFill|BoundsMakeAJobShorter|SharedJob.EachLineIsAnswered|Experts/Exactness.AfterPreemption|PlantedMistakesAreFound'
same_code+='|Families/CudaJobs.*/(deepseek_v2|exaone4|gemma3|gemma4_moe|glm4|granite|hunyuan|llama4_text|mistral)_bfloat16'
same_code+='|Families/CudaJobs.*/(mixtral|olmo3|phi3|qwen2_tied|qwen3)_bfloat16|CudaJobsOfRanks.*/(deepseek_v3|qwen3_next)_bfloat16'
same_code+='|TensorCores/CudaJobs.*/(llama3_gqa|gemma2|qwen3_awq|mixtral|gpt_oss|deepseek_v3)_mma'
ctest --test-dir build/asan -j "$jobs" -L unit -LE slow -E "$same_code"

step "build with the thread sanitizer"
cmake --preset tsan "${launcher[@]}" >/dev/null
ninja -C build/tsan -j "$jobs" concurrency_tests
step "tests with the thread sanitizer"
# As above, with the odd models and the first; how many threads compute does not depend on the type that they compute in, and
# on the virtual runtime one task runs at a time.
same_code='(AttentionTest|ExpertsTest).*<float>|AttentionTest.CachesOfCodes|LayoutTest.ClassAmx|AttentionItemsTest'
same_code+='|LinearTest.*(F32|DenormalBorder|CutIntoBlocks|AFewRows)|Models/.*/[2468]|RolesTest.WithoutRoom.*/[1-7]'
same_code+='|/Virtual|WindowTest|Over1000Seeds|SeededInterleavings|TenThousandInterleavings'
ctest --test-dir build/tsan -j "$jobs" -L concurrency -E "$same_code"

step "fuzzers, 5 s each"
tools/fuzz.sh 5

step "done"
printf '%s%6d s  all\n' "$times" "$SECONDS"
[ -z "$skipped" ] || printf '%d parts were skipped, since PyPI cannot be reached:\n%s' "$(grep -c . <<<"$skipped")" "$skipped"
