"""What users write, for mypy --strict (tools/test_python.sh): none of it runs."""
from pathlib import Path

import forebay
from forebay import LLM, AsyncLLM, CompletionOutput, RequestOutput, RequestOutputKind, SamplingParams


def offline(texts: list[str], ids: list[list[int]]) -> list[RequestOutput]:
    llm = LLM(Path("model"), max_model_len=512)
    params = SamplingParams(temperature=0, stop=["a"], logit_bias={5: 1.0})
    params.max_tokens = None
    outputs = llm.generate(texts, [params, params.clone()], keys=["a", "b"])
    outputs += llm.generate(ids, params) + llm.generate("a") + llm.generate(text for text in texts)
    outputs += llm.chat([{"role": "user", "content": "a"}], params)
    for output in llm.generate_iter((text for text in texts), params, keys=[1]):
        choice: CompletionOutput = output.outputs[0]
        print(choice.text, output.error.code if output.error else None)
    return outputs


async def online() -> None:
    llm = AsyncLLM(Path("model"))
    stream = llm.generate("a", SamplingParams(output_kind=RequestOutputKind.DELTA), request_id="1", key="row 1")
    async for output in stream:
        print(output.outputs[0].text)
        break
    await llm.abort("1")
    await stream.aclose()
    tokenizer = llm.get_tokenizer()
    ids: list[int] = tokenizer("a", add_special_tokens=False).input_ids
    if tokenizer.eos_token_id is not None and len(tokenizer) > 0:
        ids.append(tokenizer.eos_token_id)
    print(tokenizer.encode("a"), ids)


print(forebay.run_batch("in.jsonl", "out.jsonl", Path("model"))["end"])
