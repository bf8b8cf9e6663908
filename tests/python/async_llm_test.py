"""AsyncLLM: pieces put together are the answer; requests end when nobody wants them."""
import asyncio
import os
import random
import resource
import statistics
import time

import pytest

import forebay
from conftest import FLAGS, HANGS, LLAMA, prompts
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
        texts, tokens, logprobs, count, last = {0: "", 1: ""}, {0: [], 1: []}, {0: [], 1: []}, 0, None
        async for output in llm.generate(prompt, params, key=index):
            count += 1
            for choice in output.outputs:
                if kind is RequestOutputKind.DELTA:
                    texts[choice.index] += choice.text
                    tokens[choice.index] += choice.token_ids
                    logprobs[choice.index] += choice.logprobs or []
                else:
                    assert choice.text.startswith(texts[choice.index])
                    texts[choice.index], tokens[choice.index], logprobs[choice.index] = choice.text, choice.token_ids, choice.logprobs
            last = output
        assert last.finished
        assert (count == 1) == (kind is RequestOutputKind.FINAL_ONLY)
        for choice in expected[index].outputs:
            assert texts[choice.index] == choice.text
            assert tokens[choice.index] == choice.token_ids
            assert logprobs[choice.index] == choice.logprobs and len(choice.logprobs) == len(choice.token_ids)

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
        for _ in range(50 * HANGS):
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


@pytest.mark.parametrize("kind", list(RequestOutputKind))
def test_a_request_is_aborted_by_its_id(kind):
    """As in vLLM: the iterator ends with what there is so far, and nobody else notices."""
    async def consume(llm, name, params, begun):
        outputs = []
        async for output in llm.generate("the river", params, request_id=name):
            outputs.append(output)
            begun.set()
        return outputs

    async def test():
        llm = AsyncLLM(LLAMA, **FLAGS)
        await llm.abort("nobody")
        long = SamplingParams(max_tokens=None, ignore_eos=True, n=2, logprobs=1, output_kind=kind)
        names, begun = ["a", "b", "c", "a"], [asyncio.Event() for _ in range(5)]
        tasks = [asyncio.create_task(consume(llm, name, long, event)) for name, event in zip(names, begun)]
        short = asyncio.create_task(consume(llm, "d", SamplingParams(max_tokens=5, ignore_eos=True), begun[4]))
        for event in begun[:4] if kind is not RequestOutputKind.FINAL_ONLY else begun[4:]:
            await event.wait()
        await llm.abort("a")
        await llm.abort(["b", "c", "nobody"])
        for name, outputs in zip(names, await asyncio.wait_for(asyncio.gather(*tasks), 300)):
            last = outputs[-1]
            assert last.finished and last.error is None and last.request_id == name and last.prompt_token_ids
            assert [(choice.index, choice.finish_reason) for choice in last.outputs] == [(0, "abort"), (1, "abort")]
            assert not any(output.finished for output in outputs[:-1])
            if kind is RequestOutputKind.CUMULATIVE:
                for choice, before in zip(last.outputs, outputs[-2].outputs):
                    assert choice.text == before.text and choice.token_ids == before.token_ids and choice.logprobs == before.logprobs
                assert any(choice.token_ids for choice in last.outputs)
            else:
                assert all(choice.token_ids == [] and choice.text == "" for choice in last.outputs)
        assert len((await short)[-1].outputs[0].token_ids) == 5
        await llm.abort("d")
        assert not llm._queues
        llm.shutdown()

    asyncio.run(test())


def test_shutdown_ends_what_waits():
    async def test():
        llm = AsyncLLM(LLAMA, **FLAGS)
        long = SamplingParams(max_tokens=None, ignore_eos=True)
        last = SamplingParams(max_tokens=None, ignore_eos=True, output_kind=RequestOutputKind.FINAL_ONLY)
        begun = asyncio.Event()

        async def consume(params):
            async for _ in llm.generate("the river", params):
                begun.set()

        # More than there are places: some run, others wait.
        tasks = [asyncio.create_task(consume(params)) for params in [long, last] * FLAGS["max_num_seqs"]]
        await begun.wait()
        llm.shutdown()
        ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), HANGS)
        assert {end.code if isinstance(end, forebay.Error) else end for end in ends} == {"session_closed"}
        assert not llm._queues
        with pytest.raises(forebay.Error, match="session_closed"):
            await consume(long)
        llm.shutdown()

    asyncio.run(test())


def test_a_bad_key_or_parameter_costs_itself(expected):
    async def test():
        llm = AsyncLLM(LLAMA, **FLAGS)

        async def last(prompt, params=SamplingParams(max_tokens=20, n=2, stop=["e t"]), **kwargs):
            return [output async for output in llm.generate(prompt, params, **kwargs)][-1]

        for bad, kind in (({"key": -1}, ValueError), ({"key": 2**70}, ValueError), ({"key": 1.5}, ValueError), ({"params": {"n": 1}}, TypeError)):
            with pytest.raises(kind):
                await last("the river", **bad)
        by_name = await asyncio.gather(last("the river", key="row 3"), last("the river", key="row 3"))
        assert by_name[0].outputs == by_name[1].outputs
        # Who comes after them gets an answer, and its own.
        for index, prompt in enumerate(prompts(3)):
            output = await last(prompt, key=index)
            assert [choice.token_ids for choice in output.outputs] == [choice.token_ids for choice in expected[index].outputs]
        llm.shutdown()

    asyncio.run(asyncio.wait_for(test(), HANGS))


def test_one_conversation_is_asked():
    llm = AsyncLLM(LLAMA, **FLAGS)
    chat = [{"role": "user", "content": "the river"}]
    for bad, text in (([chat, chat], "2 conversations"), ([], "0 conversations")):
        with pytest.raises(TypeError, match=text):
            llm.chat(bad)
    llm.shutdown()


def test_a_second_loop_is_refused_while_the_first_runs():
    llm = AsyncLLM(LLAMA, **FLAGS)
    params = SamplingParams(max_tokens=3)

    async def ask():
        return [output async for output in llm.generate("the river", params)][-1].finished

    async def test():
        assert await ask()
        with pytest.raises(RuntimeError, match="one loop at a time"):
            await asyncio.to_thread(asyncio.run, ask())
        assert await ask()

    asyncio.run(asyncio.wait_for(test(), HANGS))
    assert asyncio.run(asyncio.wait_for(ask(), HANGS)), "one after the other they may"
    llm.shutdown()


SECONDS = float(os.environ.get("FOREBAY_ASYNC_SECONDS", 2))  # tools/soak.sh: eight hours


def test_requests_that_are_given_up_leave_nothing_behind():
    ends = {"answered": 0, "closed": 0, "cancelled": 0}

    async def caller(llm, rng, end):
        while time.monotonic() < end:
            params = SamplingParams(max_tokens=rng.randrange(1, 120), n=rng.randrange(1, 3), ignore_eos=True)
            stream = llm.generate(prompts(40)[rng.randrange(40)], params)
            how = rng.choice(list(ends))
            if how == "cancelled":
                task = asyncio.create_task(anext(stream))
                await asyncio.sleep(rng.random() * 0.02)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            else:
                async for _ in stream:
                    if how == "closed" and rng.random() < 0.2:
                        break
            await stream.aclose()
            ends[how] += 1

    async def test():
        llm = AsyncLLM(LLAMA, **FLAGS)
        end = time.monotonic() + SECONDS
        callers = [asyncio.create_task(caller(llm, random.Random(seed), end)) for seed in range(24)]
        samples = []
        while not all(each.done() for each in callers):
            with open("/proc/self/statm", encoding="ascii") as file:
                samples.append(int(file.read().split()[1]) * resource.getpagesize())
            await asyncio.sleep(0.2)
        await asyncio.gather(*callers)
        for _ in range(50 * HANGS):
            if llm.stats()["choices_running"] == 0 and llm.stats()["kv_blocks_used"] == 0:
                break
            await asyncio.sleep(0.02)
        assert llm.stats()["choices_running"] == llm.stats()["choices_waiting"] == llm.stats()["kv_blocks_used"] == 0
        assert not llm._queues
        llm.shutdown()
        return samples

    samples = asyncio.run(test())
    assert all(count > 0 for count in ends.values())
    if SECONDS < 60:
        return
    quarter = len(samples) // 4
    grown = statistics.mean(samples[-quarter:]) - statistics.mean(samples[quarter : 2 * quarter])
    hours = SECONDS / 2 / 3600
    print(f"{ends} in {SECONDS:.0f} s, {grown / 2**20:.2f} MiB more over {hours:.2f} h, {grown / hours / 2**20:.2f} MiB an hour more")
    # A page more or less is no slope, nor is what the first minutes take.
    assert grown < (hours + (0.5 if SECONDS >= 600 else 2)) * 2**20
