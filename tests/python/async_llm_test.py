"""AsyncLLM: pieces put together are the answer; requests end when nobody wants them."""
import asyncio

import pytest

import forebay
from conftest import FLAGS, LLAMA, prompts
from forebay import AsyncLLM, LLM, RequestOutputKind, SamplingParams


@pytest.fixture(scope="module")
def expected():
    with LLM(LLAMA, **FLAGS) as llm:
        params = SamplingParams(max_tokens=20, logprobs=1, n=2, stop=["e t"])
        return llm.generate(prompts(12), params, use_tqdm=False)


@pytest.mark.parametrize("kind", list(RequestOutputKind))
def test_pieces(expected, kind):
    params = SamplingParams(max_tokens=20, logprobs=1, n=2, stop=["e t"], output_kind=kind)

    async def one(llm, index, prompt):
        texts, tokens, count, last = {0: "", 1: ""}, {0: [], 1: []}, 0, None
        async for output in llm.generate(prompt, params, key=index):
            count += 1
            for choice in output.outputs:
                if kind is RequestOutputKind.DELTA:
                    texts[choice.index] += choice.text
                    tokens[choice.index] += choice.token_ids
                else:
                    assert choice.text.startswith(texts[choice.index])
                    texts[choice.index], tokens[choice.index] = choice.text, choice.token_ids
            last = output
        assert last.finished
        assert (count == 1) == (kind is RequestOutputKind.FINAL_ONLY)
        for choice in expected[index].outputs:
            assert texts[choice.index] == choice.text
            assert tokens[choice.index] == choice.token_ids

    async def all_of_them():
        llm = AsyncLLM(LLAMA, **FLAGS)
        try:
            await asyncio.gather(*(one(llm, i, prompt) for i, prompt in enumerate(prompts(12))))
        finally:
            llm.shutdown()

    asyncio.run(all_of_them())


def test_cancellation_and_errors():
    async def test():
        llm = AsyncLLM(LLAMA, **FLAGS)
        long = SamplingParams(max_tokens=None, ignore_eos=True)
        async for _ in (stream := llm.generate("the river", long)):
            break
        await stream.aclose()
        begun = asyncio.Event()
        task = asyncio.create_task(drain(llm, long, begun=begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(15000):
            if llm.stats()["choices_running"] == 0 and llm.stats()["kv_blocks_used"] == 0:
                break
            await asyncio.sleep(0.02)
        assert llm.stats()["choices_running"] == 0 and llm.stats()["kv_blocks_used"] == 0
        with pytest.raises(forebay.Error):
            await drain(llm, long, prompt=[10**6])
        assert await drain(llm, SamplingParams(max_tokens=3)) > 0
        llm.shutdown()

    async def drain(llm, params, prompt="the river", begun=None):
        count = 0
        async for _ in llm.generate(prompt, params):
            count += 1
            if begun is not None:
                begun.set()
        return count

    asyncio.run(test())
