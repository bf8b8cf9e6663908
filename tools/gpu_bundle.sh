#!/usr/bin/env bash
# Leaves build/gpu-bundle: gpu.sh and the two programs that it runs, with their shared libraries, for a Linux machine that has a
# driver and a glibc no older than this one's.
set -euo pipefail
cd "$(dirname "$0")/.."
bundle=build/gpu-bundle
cmake --preset release --log-level=WARNING -DFOREBAY_TESTS=ON -DFOREBAY_CUDA=ON \
  ${CCACHE_DIR:+-DCMAKE_CXX_COMPILER_LAUNCHER=ccache} >/dev/null
ninja -C build/release -j "${JOBS:-$(nproc)}" gpu_check forebay
rm -rf "$bundle"
mkdir -p "$bundle/lib" "$bundle/data/golden/models"
cp bench/gpu.sh bench/gpu/torch_rates.py "$bundle/"
# The models of tests/cuda_jobs_test.cc.
for model in llama3-gqa qwen3 mistral phi3 qwen2-tied gemma2 gemma3 glm4 granite olmo3 exaone4 hunyuan mixtral qwen3-moe qwen3-awq llama4-text gpt-oss \
  minimax-m2 deepseek-v2 deepseek-v3 deepseek-v3-wide qwen3-next qwen3.5 gemma4-e gemma4-moe qwen3-embed bert-embed modernbert-embed embedding-gemma \
  xlm-roberta-rerank lfm2 nemotron-h granite4-hybrid; do
  cp -r tests/golden/models/"$model" "$bundle/data/golden/models/"
  rm -f "$bundle/data/golden/models/$model"/{golden.safetensors,meta.json}
done
cp -r bench/gpu/models bench/gpu/lengths.csv "$bundle/data/"
strip -o "$bundle/gpu_check" build/release/bench/gpu/gpu_check
strip -o "$bundle/forebay" build/release/forebay
ldd "$bundle/gpu_check" "$bundle/forebay" | awk '$3 ~ /^\// {print $3}' | sort -u | while read -r library; do
  case $(basename "$library") in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.*) ;;
    *) strip --strip-unneeded -o "$bundle/lib/$(basename "$library")" "$library" ;;
  esac
done
echo "built $bundle ($(du -sm "$bundle" | cut -f1) MB): copy it to a machine with a GPU and run ./gpu.sh OUT there"
