"""A process that scores continuations with lm_eval's `hf` model: likelihood_worker.py FOLDER THREADS DTYPE QUESTIONS OUT [--make].

With --make it writes random weights of FOLDER's config.json beside it and ends. Else it prints the seconds that the log likelihoods of
QUESTIONS, a JSON list of [ids, [ids, ...]], take once the model is loaded, and writes them to OUT.
"""
import json
import sys
import time

from embed_worker import make


def main():
    folder, threads, dtype, questions, out = sys.argv[1:6]
    if "--make" in sys.argv:
        return make(folder, "AutoModelForCausalLM")
    import tokenizers
    import torch
    import transformers
    from lm_eval.models.huggingface import HFLM

    torch.set_num_threads(int(threads))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=getattr(torch, dtype))
    # HFLM wants a tokenizer; ids are given to it, so that any will do.
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "<unk>": 1}, unk_token="<unk>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<s>", pad_token="<s>", unk_token="<unk>")
    peer = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=8, device="cpu")
    with open(questions, encoding="utf-8") as file:
        requests = [((f"{i}", f"{j}"), context, answer)
                    for i, (context, answers) in enumerate(json.load(file)) for j, answer in enumerate(answers)]
    began = time.perf_counter()
    found = peer._loglikelihood_tokens(requests, disable_tqdm=True)
    seconds = time.perf_counter() - began
    with open(out, "w", encoding="utf-8") as file:
        json.dump([likelihood for likelihood, _ in found], file)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
