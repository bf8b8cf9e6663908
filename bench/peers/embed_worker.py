"""A process that loads one engine for vectors of texts: embed_worker.py sentence|sentence_fp32|openvino|vllm FOLDER THREADS TEXTS OUT [--make].

With --make it writes random weights of FOLDER's config.json beside it (in the environment of sentence) and ends. Else it prints the seconds
that the vectors of TEXTS, a JSON list, take once the model is loaded and has seen a few of them, and writes the first ones to OUT.
"""
import json
import os
import sys
import time

WARM, KEPT = 64, 256


def make(folder, kind="AutoModel"):
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.AutoConfig.from_pretrained(folder)
    getattr(transformers, kind).from_config(config).to(torch.bfloat16).save_pretrained(folder)


def sentence(folder, threads, **options):
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(folder, device="cpu", **options)
    return lambda texts: model.encode(texts, batch_size=32, show_progress_bar=False).tolist()


def sentence_of(dtype):
    return lambda folder, threads: sentence(folder, threads, model_kwargs={"torch_dtype": dtype})


def openvino(folder, threads):
    settings = {"ov_config": {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "bf16"}}
    return sentence(folder, threads, backend="openvino", model_kwargs=settings)


def vllm(folder, threads):
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{threads - 1}"
    from vllm import LLM

    model = LLM(folder, runner="pooling", dtype="bfloat16", disable_log_stats=True)
    return lambda texts: [each.outputs.embedding for each in model.embed(texts, use_tqdm=False)]


ENGINES = {"sentence": sentence_of("bfloat16"), "sentence_fp32": sentence_of("float32"), "openvino": openvino, "vllm": vllm}


def main():
    peer, folder, threads, texts, out = sys.argv[1:6]
    if "--make" in sys.argv:
        return make(folder)
    with open(texts, encoding="utf-8") as file:
        texts = json.load(file)
    embed = ENGINES[peer](folder, int(threads))
    embed(texts[:WARM])
    began = time.perf_counter()
    vectors = embed(texts)
    seconds = time.perf_counter() - began
    with open(out, "w", encoding="utf-8") as file:
        json.dump(vectors[:KEPT], file)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
