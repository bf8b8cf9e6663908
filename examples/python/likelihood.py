"""Which continuation a model finds likeliest, as multiple-choice benchmarks ask. usage: likelihood.py MODEL"""

import sys

from forebay import LLM, SamplingParams

question = "The capital of France is"
choices = [" Paris.", " Rome.", " a river in Egypt."]

llm = LLM(sys.argv[1])
# One answer token is generated and thrown away; the prompt's log probabilities are what is wanted.
params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
begin = len(llm.get_tokenizer().encode(question))
for choice, output in zip(choices, llm.generate([question + choice for choice in choices], params)):
    ids = output.prompt_token_ids[begin:]
    chances = [entry[token].logprob for entry, token in zip(output.prompt_logprobs[begin:], ids)]
    print(f"{sum(chances):9.3f} in all, {sum(chances) / len(chances):8.3f} a token: {choice!r}")
