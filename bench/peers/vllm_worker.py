"""vLLM's offline interface, its engine in this process."""
import json
import sys

import worker

if not json.loads(sys.argv[1])["zentorch"]:
    sys.modules["zentorch"] = None  # vLLM takes it where it can be imported
from vllm import LLM, SamplingParams, TokensPrompt  # noqa: E402


class Engine:
    def __init__(self, settings):
        self.llm = LLM(settings["model"], dtype="bfloat16", skip_tokenizer_init=True, enable_prefix_caching=False,
                       max_model_len=settings["max_model_len"], max_num_seqs=settings["slots"],
                       max_num_batched_tokens=settings["batch"], enforce_eager=settings["eager"])

    def prepare(self, requests):
        pass

    def run(self, requests):
        prompts = [TokensPrompt(prompt_token_ids=prompt) for prompt, _ in requests]
        sampling = [SamplingParams(temperature=0, max_tokens=output, ignore_eos=True, detokenize=False) for _, output in requests]
        results = self.llm.generate(prompts, sampling, use_tqdm=False)
        for result, (_, output) in zip(results, requests):
            assert len(result.outputs[0].token_ids) == output
        return [result.outputs[0].token_ids[0] for result in results]


if __name__ == "__main__":
    worker.serve(Engine)
