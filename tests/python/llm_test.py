"""LLM against `forebay run`, by tokens, texts, log probabilities and digests; bad input."""
import asyncio
import io
import itertools
import json
import os
import re
import tempfile
import threading
import time

import pytest

import forebay
from conftest import FLAGS, FOREBAY, HANGS, LLAMA, drawn, prompts, wait_until
from forebay import LLM, SamplingParams, progress
from forebay.metrics import Metric


def same(outputs, job_choices):
    for output, expected in zip(outputs, job_choices, strict=True):
        assert len(output.outputs) == len(expected)
        for ours, theirs in zip(output.outputs, expected, strict=True):
            assert ours.token_ids == theirs["token_ids"]
            assert ours.text == (theirs["text"] if "text" in theirs else theirs["message"]["content"])
            assert ours.finish_reason == theirs["finish_reason"]
            assert ours.stop_reason == theirs["stop_reason"]
            assert f"{ours.digest:016x}" == theirs["digest"]


def test_more_tokens_than_the_context_end_there(llm):
    most = llm.facts()["max_model_len"]
    params = SamplingParams(temperature=0, max_tokens=10**6, ignore_eos=True)
    # At least so many, and no bound but the context.
    free = SamplingParams(max_tokens=None, min_tokens=40, temperature=0, logit_bias={llm.get_tokenizer().eos_token_id: 100})
    assert len(llm.generate([[5] * 3], free, use_tqdm=False)[0].outputs[0].token_ids) == 41
    short, long = llm.generate([{"prompt_token_ids": [5] * 3}, {"prompt_token_ids": [5] * (most - 2)}], params, use_tqdm=False)
    for output, count in ((short, most - 3), (long, 2)):
        assert (len(output.outputs[0].token_ids), output.outputs[0].finish_reason) == (count, "length")
    with pytest.raises(forebay.Error) as caught:
        llm.generate([{"prompt_token_ids": [5] * most}], params, use_tqdm=False)
    assert caught.value.code == "context_length_exceeded"


def test_generate_gives_the_answers_of_run(llm, run):
    texts = prompts(60)
    params = SamplingParams(temperature=1.0, max_tokens=12, n=2, logprobs=2, stop=["e t", "ri"])
    asked = {"temperature": 1, "max_tokens": 12, "n": 2, "logprobs": 2, "stop": ["e t", "ri"], "return_token_ids": True}
    job = run([{"prompt": text, **asked} for text in texts])
    outputs = llm.generate(texts, params, use_tqdm=False)
    same(outputs, job.choices())
    assert [output.prompt for output in outputs] == texts
    assert [output.request_id for output in outputs] == [str(i) for i in range(60)]
    for output, expected in zip(outputs, job.choices()):
        assert output.prompt_token_ids == expected[0]["prompt_token_ids"]
        for ours, theirs in zip(output.outputs, expected):
            chosen = [position[token].logprob for position, token in zip(ours.logprobs, ours.token_ids)]
            assert chosen[: len(theirs["logprobs"]["token_logprobs"])] == pytest.approx(theirs["logprobs"]["token_logprobs"], abs=1e-6)
            assert ours.cumulative_logprob == pytest.approx(sum(chosen))
            assert all(list(position)[0] == token for position, token in zip(ours.logprobs, ours.token_ids))
    # A second call, other batches: the same.
    assert [o.outputs[0].token_ids for o in llm.generate(texts, params, use_tqdm=False)] == [o.outputs[0].token_ids for o in outputs]


def test_kinds_of_prompts_and_the_generation_config(llm, run):
    ids = [5, 6, 7, 8, 9]
    job = run([{"prompt": prompt, "return_token_ids": True} for prompt in ("the river", ids, "")])
    outputs = llm.generate(["the river", {"prompt_token_ids": ids}, ""], use_tqdm=False)
    same(outputs, job.choices())
    same(llm.generate([{"prompt": "the river"}], use_tqdm=False), job.choices()[:1])
    assert llm.generate(ids, use_tqdm=False, keys=[1])[0].outputs[0].token_ids == outputs[1].outputs[0].token_ids
    assert llm.generate([], use_tqdm=False) == []
    assert outputs[1].prompt == llm.get_tokenizer().decode(ids)
    assert llm.generate([tuple(ids)], use_tqdm=False, keys=[1])[0].outputs[0].token_ids == outputs[1].outputs[0].token_ids
    longest = llm.generate("the river", SamplingParams(max_tokens=None, ignore_eos=True), use_tqdm=False)[0]
    assert len(longest.prompt_token_ids) + len(longest.outputs[0].token_ids) == llm.facts()["max_model_len"]


def test_prompts_of_any_characters(llm, run):
    texts = ['"quoted" \\ and\tcut\r\n', "\0\x1f\x7f", "été 漢字 \U0001f980", "\u2028\ufeff</s>"]
    job = run([{"prompt": text, "max_tokens": 3, "return_token_ids": True} for text in texts])
    outputs = llm.generate(texts, SamplingParams(max_tokens=3), use_tqdm=False)
    same(outputs, job.choices())
    assert [output.prompt for output in outputs] == texts
    assert [output.prompt_token_ids for output in outputs] == [choices[0]["prompt_token_ids"] for choices in job.choices()]


def test_chat(llm, run):
    chats = [[{"role": "user", "content": text}] for text in prompts(8)]
    job = run([{"messages": chat, "max_tokens": 7, "temperature": 0, "return_token_ids": True, "logprobs": True, "top_logprobs": 2}
               for chat in chats])
    outputs = llm.chat(chats, SamplingParams(max_tokens=7, temperature=0, logprobs=2), use_tqdm=False)
    same(outputs, job.choices())
    for output, body in zip(outputs, job.bodies):
        assert output.prompt_token_ids == body["prompt_token_ids"]
        ours = [p[t].logprob for p, t in zip(output.outputs[0].logprobs, output.outputs[0].token_ids)]
        theirs = [each["logprob"] for each in body["choices"][0]["logprobs"]["content"]]
        assert ours[: len(theirs)] == pytest.approx(theirs, abs=1e-6)
    assert len(llm.chat(chats[0], use_tqdm=False)) == 1
    tokenizer = llm.get_tokenizer()
    text = tokenizer.apply_chat_template(chats[0], add_generation_prompt=True, tokenize=False)
    assert tokenizer.encode(text, add_special_tokens=False) == outputs[0].prompt_token_ids
    assert tokenizer.decode(outputs[0].prompt_token_ids) == text


def test_keys_keep_a_rows_answer(llm):
    texts = prompts(20)
    whole = llm.generate(texts, SamplingParams(max_tokens=8), keys=list("abcdefghijklmnopqrst"), use_tqdm=False)
    part = llm.generate(texts[7:12], SamplingParams(max_tokens=8), keys=list("hijkl"), use_tqdm=False)
    assert [o.outputs[0].token_ids for o in part] == [o.outputs[0].token_ids for o in whole[7:12]]
    other = llm.generate(texts[7:12], SamplingParams(max_tokens=8), keys=[100, 101, 102, 103, 104], use_tqdm=False)
    assert [o.outputs[0].token_ids for o in part] != [o.outputs[0].token_ids for o in other]


def test_generate_iter_reads_ahead_only_by_what_it_needs(llm):
    read = itertools.count()
    texts = prompts(40)
    taken = 0

    def source():
        while True:
            yield texts[next(read) % 40]

    expected = llm.generate(texts[:10], SamplingParams(max_tokens=5), use_tqdm=False)
    got = {}
    results = llm.generate_iter(source(), SamplingParams(max_tokens=5))
    for output in results:
        got[int(output.request_id)] = output
        taken += 1
        if taken == 100:
            break
    results.close()
    assert next(read) <= 100 + 2 * FLAGS["max_num_seqs"] + 1
    for i in range(10):
        assert got[i].outputs[0].token_ids == expected[i].outputs[0].token_ids
    assert len(list(llm.generate_iter(iter(texts), SamplingParams(max_tokens=2)))) == 40


def test_an_iterable_that_raises(llm):
    def source():
        yield from prompts(40)
        wait_until(lambda: llm.stats()["requests_finished"] > before, HANGS)
        raise KeyError("the source")

    before, yielded = llm.stats()["requests_finished"], []
    with pytest.raises(KeyError, match="the source"):
        for output in llm.generate_iter(source(), SamplingParams(max_tokens=2)):
            yielded.append(output)
    assert 0 < len(yielded) <= 40
    wait_until(lambda: llm.stats()["choices_running"] == 0, HANGS)


def test_an_iterable_that_waits_for_the_answers(llm):
    before = llm.stats()["requests_finished"]

    def source():
        for count in range(1, 5):
            yield "the river"
            wait_until(lambda: llm.stats()["requests_finished"] >= before + count, HANGS)

    assert len(list(llm.generate_iter(source(), SamplingParams(max_tokens=2)))) == 4
    # So may an iterable of keys.
    before, keys = llm.stats()["requests_finished"], (index for index, _ in enumerate(source()))
    assert len(list(llm.generate_iter(["the river"] * 4, SamplingParams(max_tokens=2), keys=keys))) == 4


class FailingCall:
    """A call of which the engine fails request 3."""

    def __init__(self, model, made=forebay._forebay.Call):
        self.call = made(model)

    def __getattr__(self, name):
        return getattr(self.call, name)

    def take(self, *arguments):
        taken = self.call.take(*arguments)
        for tag, output, _ in taken:
            if tag == 3:
                output.error, output.outputs = forebay.EngineError("logits_not_finite", "a logit is NaN"), []
        return taken


def test_a_request_that_the_engine_fails_costs_itself(llm, monkeypatch):
    monkeypatch.setattr(forebay._forebay, "Call", FailingCall)
    params = SamplingParams(max_tokens=2)
    for outputs in (llm.generate(prompts(8), params, on_error="return", use_tqdm=False), llm.generate_iter(prompts(8), params, on_error="return")):
        by_index = {int(output.request_id): output for output in outputs}
        assert sorted(by_index) == list(range(8))
        assert [index for index, output in by_index.items() if output.error is not None] == [3]
        assert by_index[3].error.code == "logits_not_finite" and by_index[3].outputs == []
    for ask in (lambda: llm.generate(prompts(8), params, use_tqdm=False), lambda: list(llm.generate_iter(prompts(8), params))):
        with pytest.raises(forebay.EngineError, match="NaN"):
            ask()


def test_what_on_error_may_be(llm):
    for ask in (llm.generate, llm.chat, llm.generate_iter):
        # An iterator says so before it is read.
        with pytest.raises(forebay.InvalidValueError, match="on_error is 'ignore'; expected 'raise' or 'return'"):
            ask([], on_error="ignore")


@pytest.mark.parametrize("bad, error, text", [
    (None, TypeError, "None"),
    (["ok", None], TypeError, "prompt 1"),
    (["ok", b"bytes"], TypeError, "prompt 1"),
    (["ok", "\ud800"], forebay.Error, "prompt 1"),
    ([[5, 10**6]], forebay.Error, "prompt 0"),
    ([[5, -1]], forebay.Error, "prompt 0"),
    ([[5, 2**70]], forebay.Error, "prompt 0"),
    (["ok", {"prompt": None}], TypeError, "prompt 1 is NoneType"),
    ([[5, True]], TypeError, "prompt 0"),
    (["ok", {"prompt_token_ids": [5] * 5000}], forebay.Error, "context_length_exceeded"),
    ([{"prompt_token_ids": []}], forebay.Error, "prompt 0"),
    ([3.5], TypeError, "prompt 0"),
])
def test_bad_prompts(llm, bad, error, text):
    before = llm.stats()["requests_finished"]
    with pytest.raises(error, match=text.replace("(", "\\(")):
        llm.generate(bad, use_tqdm=False)
    assert llm.stats()["requests_finished"] == before, "nothing ran"


def test_a_bad_prompt_costs_itself(llm):
    outputs = llm.generate(["good", [10**6], "good"], SamplingParams(max_tokens=3), on_error="return", use_tqdm=False)
    assert [output.error is None for output in outputs] == [True, False, True]
    assert outputs[1].error.code and outputs[1].error.index == 1 and outputs[1].outputs == []
    assert isinstance(outputs[1].error, ValueError)


@pytest.mark.parametrize("ask", ["generate", "generate_iter"])
def test_what_is_no_prompt_costs_itself(llm, ask):
    params = SamplingParams(max_tokens=3, temperature=1)
    good, bad = prompts(3), [None, b"bytes", {"prompt": None}, [5, True], 3.5]
    kwargs = {"use_tqdm": False} if ask == "generate" else {}
    outputs = list(getattr(llm, ask)([good[0], *bad, *good[1:]], params, on_error="return", keys=[0, *"abcde", 1, 2], **kwargs))
    outputs.sort(key=lambda output: int(output.request_id))
    assert [output.error is None for output in outputs] == [True, *[False] * 5, True, True]
    for index, output in enumerate(outputs[1:6], 1):
        assert output.error.code == "invalid_type" and output.error.index == index and f"prompt {index} " in str(output.error)
    expected = llm.generate(good, params, use_tqdm=False)
    assert [output.outputs[0].token_ids for output in outputs if output.error is None] == [output.outputs[0].token_ids for output in expected]
    if ask == "generate_iter":
        with pytest.raises(TypeError, match="prompt 1 is NoneType"):
            list(llm.generate_iter([good[0], None], params))
        # Keys that end before the prompts do.
        with pytest.raises(ValueError, match="a key is None"):
            list(llm.generate_iter(good, params, keys=["a"]))


@pytest.mark.parametrize("on_error", ["raise", "return"])
def test_a_prompt_is_read_once(llm, on_error):
    class Ids(list):
        """Token ids that count how often they are looked at."""

        read = 0

        def __iter__(self):
            Ids.read += 1
            return super().__iter__()

    class Sequence:
        def __init__(self, ids):
            self.ids = Ids(ids)

        def __len__(self):
            return len(self.ids)

        def __iter__(self):
            return iter(self.ids)

    asked = [{"prompt_token_ids": Sequence([5, 6, 7 + i])} for i in range(4)]
    outputs = llm.generate(asked, SamplingParams(max_tokens=2), on_error=on_error, use_tqdm=False)
    assert Ids.read == 4 and [output.prompt_token_ids for output in outputs] == [[5, 6, 7 + i] for i in range(4)]
    # What is no sequence says so as what is no prompt does.
    bad = ["good", {"prompt_token_ids": 5}]
    if on_error == "return":
        error = llm.generate(bad, SamplingParams(max_tokens=2), on_error=on_error, use_tqdm=False)[1].error
        assert error.code == "invalid_type" and error.index == 1 and "prompt 1: token ids are no sequence" in str(error)
    else:
        with pytest.raises(TypeError, match="prompt 1: token ids are no sequence"):
            llm.generate(bad, use_tqdm=False)


def test_what_is_no_conversation_is_named(llm):
    chat, params = [{"role": "user", "content": "the river"}], SamplingParams(max_tokens=2)
    for bad, text in ((None, "prompt 1 is NoneType"), ("text", "prompt 1 is str"), ([{"role": "user", "content": b"bytes"}], "prompt 1: .*bytes")):
        with pytest.raises(TypeError, match=text):
            llm.chat([chat, bad, chat], params, use_tqdm=False)
        outputs = llm.chat([chat, bad, chat], params, on_error="return", use_tqdm=False)
        assert [output.error is None for output in outputs] == [True, False, True]
        assert outputs[1].error.code == "invalid_type" and outputs[1].error.index == 1
        assert outputs[0].outputs[0].token_ids == llm.chat(chat, params, use_tqdm=False)[0].outputs[0].token_ids
    for bad in ([{"f": object()}], [{"f": float("nan")}]):
        with pytest.raises(TypeError, match="^tools: "):
            llm.chat(chat, params, use_tqdm=False, tools=bad)


def test_several_threads_and_two_models(llm):
    expected = [o.outputs[0].token_ids for o in llm.generate(prompts(20), SamplingParams(max_tokens=6), use_tqdm=False)]
    found, errors = [], []

    def work(model):
        try:
            for _ in range(5):
                found.append([o.outputs[0].token_ids for o in model.generate(prompts(20), SamplingParams(max_tokens=6), use_tqdm=False)])
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    with LLM(LLAMA, **FLAGS) as second:
        threads = [threading.Thread(target=work, args=(model,)) for model in (llm, llm, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors and len(found) == 15
    assert all(each == expected for each in found)


def test_an_engine_that_is_closed_says_so():
    model = LLM(LLAMA, **FLAGS)
    model.close()
    model.close()
    with pytest.raises(forebay.Error) as caught:
        model.generate("x")
    assert caught.value.code == "session_closed"


def test_progress_is_drawn_as_tqdm_draws_it():
    call = f"import forebay; forebay.LLM({LLAMA!r}, memory='64MiB', threads=1).generate(['the river'] * 40, use_tqdm="
    bars = drawn(call + "True)").strip().split("\r")
    bar = r"Processed prompts: +(\d+)%\|[█ ]{20}\| (\d+)/40 \[\d\d:\d\d<\d\d:\d\d, [\d.]+it/s, est. speed input: [\d.]+ toks/s, output: [\d.]+ toks/s\]"
    done = [re.fullmatch(bar, each) for each in bars]
    assert all(done) and done[-1].groups() == ("100", "40"), bars
    assert drawn(call + "False)") == ""


def test_progress_without_a_terminal_is_a_line_every_five_seconds(monkeypatch):
    now, written = [0.0], io.StringIO()
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress.sys, "stderr", written)
    bar = progress.Progress(40, True)
    for done in range(1, 13):
        now[0] += 1
        bar.at(done, 10 * done, 20 * done)
    bar.close()
    assert written.getvalue().splitlines() == [
        "forebay: 6/40 prompts done [00:06<00:34, 1.00it/s, est. speed input: 10.00 toks/s, output: 20.00 toks/s]",
        "forebay: 12/40 prompts done [00:12<00:28, 1.00it/s, est. speed input: 10.00 toks/s, output: 20.00 toks/s]",
    ]


def test_log_probabilities_of_prompts_and_of_all_tokens(run):
    texts = prompts(5)
    asked = {"temperature": 0, "max_tokens": 3, "prompt_logprobs": 1, "logprobs": 5, "return_token_ids": True}
    job = run([{"prompt": text, **asked} for text in texts])
    with LLM(LLAMA, max_logprobs=-1, **FLAGS) as all_tokens:
        outputs = all_tokens.generate(texts, SamplingParams(temperature=0, max_tokens=3, prompt_logprobs=1, logprobs=-1), use_tqdm=False)
        same(outputs, job.choices())
        size = all_tokens.facts()["vocab_size"]
    for output, (theirs,) in zip(outputs, job.choices()):
        assert output.prompt_logprobs[0] is None and theirs["prompt_logprobs"][0] is None
        for position, other in zip(output.prompt_logprobs[1:], theirs["prompt_logprobs"][1:], strict=True):
            assert {str(token): (each.rank, each.decoded_token) for token, each in position.items()} == {
                token: (each["rank"], each["decoded_token"]) for token, each in other.items()}
            assert [each.logprob for each in position.values()] == pytest.approx([other[str(token)]["logprob"] for token in position], abs=1e-6)
        for position in output.outputs[0].logprobs:
            assert len(position) == size and sorted(each.rank for each in position.values()) == list(range(1, size + 1))


def test_the_prefix_cache_may_be_reset(llm):
    # Of several blocks each, which no two share.
    texts = [f"{i} {text * 8}" for i, text in enumerate(prompts(6))]
    params = SamplingParams(max_tokens=3, temperature=1)
    found = []
    for call in range(4):
        assert call != 2 or llm.reset_prefix_cache() is True
        found.append(llm.generate(texts, params, use_tqdm=False))
    assert [[output.num_cached_tokens > 0 for output in outputs] for outputs in found] == [[False] * 6, [True] * 6] * 2
    for outputs in found:
        assert [output.outputs for output in outputs] == [output.outputs for output in found[0]]


def test_what_was_kept_before_a_reset_stays_unfound():
    with tempfile.TemporaryDirectory(dir=os.path.dirname(FOREBAY)) as folder:  # on a disk, where pytest's may lie in memory
        kept = {"kv_file": os.path.join(folder, "kv"), "kv_file_size": "64MiB", "kv_file_keep": True}

        def found(reset):
            with forebay.LLM(LLAMA, **FLAGS, **kept) as job:
                assert not reset or job.reset_prefix_cache() is True
                return job.generate([[5] * 200], SamplingParams(max_tokens=3), use_tqdm=False)[0].num_cached_tokens

        assert [found(reset) > 0 for reset in (True, True, False, False)] == [False, False, False, True]


def test_text_that_nobody_wants(llm):
    told, hidden = (llm.generate("the river", SamplingParams(max_tokens=4, detokenize=detokenize), use_tqdm=False)[0].outputs[0]
                    for detokenize in (True, False))
    assert told.text and hidden.text == "" and hidden.token_ids == told.token_ids


METRICS = {
    **dict.fromkeys(("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:cache_config_info"), "Gauge"),
    **dict.fromkeys(("vllm:prompt_tokens", "vllm:generation_tokens", "vllm:num_preemptions", "vllm:prefix_cache_hits", "vllm:prefix_cache_queries"),
                    "Counter"),
    **dict.fromkeys((
        "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds", "vllm:request_time_per_output_token_seconds",
        "vllm:e2e_request_latency_seconds", "vllm:request_queue_time_seconds", "vllm:request_inference_time_seconds",
        "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds", "vllm:iteration_tokens_total", "vllm:request_prompt_tokens",
        "vllm:request_generation_tokens", "vllm:request_max_num_generation_tokens", "vllm:request_params_max_tokens", "vllm:request_params_n",
    ), "Histogram"),
}


def test_metrics():
    with forebay.LLM(LLAMA, max_model_len=256, **FLAGS) as llm:
        began = time.monotonic()
        params = SamplingParams(max_tokens=6, n=2, ignore_eos=True)
        outputs = llm.generate([[5, 6, 7], [8, 9], [5] * 40], params, use_tqdm=False)
        llm.generate([[10**6]], on_error="return", use_tqdm=False)
        took = time.monotonic() - began
        made = llm.get_metrics()
        assert all(isinstance(each, Metric) and each.labels["model_name"] == "llama3-gqa" and each.labels["engine"] == "0" for each in made)
        found = {each.name: each for each in made if "finished_reason" not in each.labels}
        # The whole list of what vLLM calls so and we have.
        assert set(found) == set(METRICS)
        assert {name: type(each).__name__ for name, each in found.items()} == METRICS
        ends = {each.labels["finished_reason"]: each.value for each in made if each.name == "vllm:request_success"}
        assert ends == {"stop": 0, "length": 6, "abort": 0, "error": 0}
        assert found["vllm:prompt_tokens"].value == 45 and found["vllm:generation_tokens"].value == 36
        assert found["vllm:prefix_cache_queries"].value == 45 and found["vllm:num_requests_running"].value == 0
        assert 0 <= found["vllm:kv_cache_usage_perc"].value <= 1
        assert found["vllm:cache_config_info"].labels["block_size"] == "32"
        expected = {"vllm:time_to_first_token_seconds": 3, "vllm:e2e_request_latency_seconds": 3, "vllm:request_queue_time_seconds": 3,
                    "vllm:request_inference_time_seconds": 3, "vllm:request_prefill_time_seconds": 3, "vllm:request_decode_time_seconds": 3,
                    "vllm:request_time_per_output_token_seconds": 3, "vllm:inter_token_latency_seconds": 6 * 5, "vllm:request_prompt_tokens": 3,
                    "vllm:request_generation_tokens": 6, "vllm:request_max_num_generation_tokens": 3, "vllm:request_params_max_tokens": 3,
                    "vllm:request_params_n": 3, "vllm:iteration_tokens_total": llm.stats()["steps"]}
        for name, count in expected.items():
            each = found[name]
            counts = list(each.buckets.values())
            assert each.count == count == counts[-1] and counts == sorted(counts) and list(each.buckets)[-1] == "+Inf", name
        assert found["vllm:iteration_tokens_total"].sum == llm.stats()["computed_tokens"]
        buckets = found["vllm:request_prompt_tokens"].buckets
        assert buckets == {"1.0": 0, "2.0": 1, "5.0": 2, "10.0": 2, "20.0": 2, "50.0": 3, "100.0": 3, "200.0": 3, "+Inf": 3}
        assert list(found["vllm:time_to_first_token_seconds"].buckets)[:2] == ["0.001", "0.005"]
        first, end, decode = (found[f"vllm:{name}_seconds"].sum for name in ("time_to_first_token", "e2e_request_latency", "request_decode_time"))
        assert 0 < first < end and abs(first + decode - end) < 1e-6 and end < 3 * took
        queue, inference, prefill = (found[f"vllm:request_{name}_time_seconds"].sum for name in ("queue", "inference", "prefill"))
        assert min(queue, prefill, decode) > 0
        assert abs(queue + prefill + decode - end) < 1e-6 and abs(queue + inference - end) < 1e-6
        assert list(found["vllm:request_queue_time_seconds"].buckets) == list(found["vllm:e2e_request_latency_seconds"].buckets)
        # Between two tokens of a choice lies what lies between its first and its last.
        assert found["vllm:inter_token_latency_seconds"].sum <= 2 * decode + 1e-6
        assert len(outputs) == 3


def test_a_request_that_is_given_up_counts_as_such():
    async def ask(llm):
        async for _ in (stream := llm.generate("the river", SamplingParams(max_tokens=None, ignore_eos=True))):
            break
        await stream.aclose()
        wait_until(lambda: llm.stats()["choices_running"] == 0, HANGS)
        found = {each.labels.get("finished_reason"): each for each in llm.get_metrics() if each.name == "vllm:request_success"}
        assert [found[reason].value for reason in ("stop", "length", "abort", "error")] == [0, 0, 1, 0]
        llm.shutdown()

    asyncio.run(ask(forebay.AsyncLLM(LLAMA, **FLAGS)))


def test_what_is_known_of_a_model(llm):
    assert llm.get_default_sampling_params().max_tokens >= 1
    assert json.dumps(llm.stats()) and json.dumps(llm.facts())
