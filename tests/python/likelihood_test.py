"""Likelihoods of continuations: the call, the file's lines, and lm_eval's model."""
import importlib.util
import sys
import types

import pytest

from conftest import LLAMA, prompts
from forebay import SamplingParams
from forebay.errors import InvalidValueError

ANSWERS = [[" again", " the river", "!"], [" waits"], [" a", " b", " c", " d"]]


def test_the_call_and_the_file_agree(llm, run):
    texts = prompts(3)
    job = run([{"prompt": text, "continuations": answers, "return_token_ids": True} for text, answers in zip(texts, ANSWERS)])
    outputs = llm.loglikelihood(texts, ANSWERS, use_tqdm=False)
    for output, body in zip(outputs, job.bodies):
        assert [each.logprob for each in output.likelihoods] == [each["score"] for each in body["data"]]
        assert [each.is_greedy for each in output.likelihoods] == [each["is_greedy"] for each in body["data"]]
        assert [each.token_ids for each in output.likelihoods] == [each["token_ids"] for each in body["data"]]
        assert [sum(each.token_logprobs) for each in output.likelihoods] == pytest.approx([each.logprob for each in output.likelihoods])


def test_they_are_those_of_the_prompt(llm):
    context, answer = list(range(5, 75)), [90, 91, 92]
    likelihood = llm.loglikelihood([context], [[answer]], use_tqdm=False)[0].likelihoods[0]
    prompt = llm.generate([context + answer], SamplingParams(max_tokens=1, prompt_logprobs=0), use_tqdm=False)[0]
    assert likelihood.token_logprobs == [list(each.values())[0].logprob for each in prompt.prompt_logprobs[70:]]
    greedy = llm.generate([context], SamplingParams(max_tokens=3, temperature=0, ignore_eos=True), use_tqdm=False)[0].outputs[0].token_ids
    assert llm.loglikelihood([context], [[greedy]], use_tqdm=False)[0].likelihoods[0].is_greedy


def test_bad_ones(llm):
    with pytest.raises(InvalidValueError, match="2 prompts and 1 lists"):
        llm.loglikelihood(["a", "b"], [["c"]])
    with pytest.raises(InvalidValueError) as caught:
        llm.loglikelihood(["a", "b"], [["c"], [""]], use_tqdm=False)
    assert caught.value.code == "continuation_empty" and caught.value.index == 1
    good, bad = llm.loglikelihood(["a", "b"], [["c"], []], on_error="return", use_tqdm=False)
    assert good.error is None and len(good.likelihoods) == 1
    assert bad.error.code == "invalid_value" and not bad.likelihoods
    # A text alone would be a list of its characters.
    for bad, text in (("abc", "are str"), (b"abc", "are bytes"), (None, "are NoneType"), ([5, 6], "hold int"), (["c", None], "hold NoneType")):
        with pytest.raises(TypeError, match=f"the continuations of prompt 1 {text}; expected a list of strings"):
            llm.loglikelihood(["a", "b"], [["c"], bad], use_tqdm=False)
        good, failed = llm.loglikelihood(["a", "b"], [["c"], bad], on_error="return", use_tqdm=False)
        assert good.error is None and failed.error.code == "invalid_type" and failed.error.index == 1
    # Of whichever continuation: the prompt has the index.
    for bad in (["c", [5, None]], ["c", [6], [5, True]]):
        with pytest.raises(TypeError, match="prompt 1 holds what is no token id"):
            llm.loglikelihood(["a", "b"], [["c"], bad], use_tqdm=False)


def test_lm_eval(llm):
    pytest.importorskip("lm_eval")
    from lm_eval.api.instance import Instance
    from lm_eval.api.registry import get_model

    import forebay.lm_eval  # noqa: F401

    def ask(kind, *arguments):
        return [Instance(kind, {}, each, index) for index, each in enumerate(arguments)]

    model = get_model("forebay").create_from_arg_string(f"pretrained={LLAMA},memory=64MiB,threads=1", {"batch_size": 1, "device": None})
    texts = prompts(2)
    pairs = [(text, answer) for text in texts for answer in ANSWERS[0]]
    found = model.loglikelihood(ask("loglikelihood", *pairs), disable_tqdm=True)
    expected = [each for output in llm.loglikelihood(texts, [ANSWERS[0]] * 2, use_tqdm=False) for each in output.likelihoods]
    assert found == [(each.logprob, each.is_greedy) for each in expected]
    rolling, = model.loglikelihood_rolling(ask("loglikelihood_rolling", (texts[0],)), disable_tqdm=True)
    whole = model._loglikelihood_tokens([(None, [model.prefix_token_id], model.tok_encode(texts[0]))], disable_tqdm=True)[0][0]
    assert rolling == pytest.approx(whole) and rolling < 0
    text, = model.generate_until(ask("generate_until", (texts[0], {"until": ["zz"], "max_gen_toks": 4})), disable_tqdm=True)
    output = llm.generate(texts[:1], SamplingParams(temperature=0, max_tokens=4), use_tqdm=False)[0].outputs[0]
    assert text == output.text


@pytest.fixture
def lm(llm, monkeypatch):
    """Makes lm_eval's model around `llm`; without the package it stands on what the model's class takes of it."""
    if importlib.util.find_spec("lm_eval") is None:
        names = {"": {}, ".api": {}, ".api.model": {"TemplateLM": object}, ".api.registry": {"register_model": lambda name: lambda made: made},
                 # Of texts that are one window.
                 ".utils": {"get_rolling_token_windows": lambda token_list, prefix_token, **_: [([prefix_token], token_list)],
                            "make_disjoint_window": lambda pair: pair}}
        for name, members in names.items():
            module = types.ModuleType("lm_eval" + name)
            module.__dict__.update(members)
            monkeypatch.setitem(sys.modules, "lm_eval" + name, module)
    import forebay.lm_eval

    monkeypatch.setattr(forebay.lm_eval, "LLM", lambda *_, **__: llm)

    def make(**arguments):
        model = forebay.lm_eval.ForebayLM(LLAMA, **arguments)
        model.cache_hook = types.SimpleNamespace(add_partial=lambda *_: None)
        return model

    return make


def test_lm_eval_scores_whole_texts_behind_its_prefix(llm, lm):
    tokenizer, text = llm.get_tokenizer(), prompts(1)[0]
    bos, plain = tokenizer.bos_token_id, tokenizer.encode(prompts(1)[0], add_special_tokens=False)
    assert tokenizer.encode(text) == [bos, *plain], "this tokenizer adds BOS"
    for arguments, prefix, scored in (({}, bos, [bos, *plain]), ({"add_bos_token": False}, bos, plain),
                                      ({"add_bos_token": False, "prefix_token_id": 7}, 7, plain)):
        model = lm(**arguments)
        assert model.prefix_token_id == prefix and model.tok_encode(text) == scored
        rolling, = model.loglikelihood_rolling([types.SimpleNamespace(args=(text,))], disable_tqdm=True)
        expected = llm.loglikelihood([[prefix]], [[scored]], use_tqdm=False)[0].likelihoods[0].logprob
        assert rolling == pytest.approx(expected) and rolling < 0
    # A text that begins with the prefix gets no other begin.
    assert lm(add_bos_token=True).tok_encode(tokenizer.decode(bos) + text) == [bos, *plain]


def test_lm_eval_asks_for_any_number_behind_one_context(llm, lm):
    model = lm()
    found = model._loglikelihood_tokens([(None, [5], [6 + i % 50]) for i in range(2050)], disable_tqdm=True)
    assert found == [found[i % 50] for i in range(2050)] and len(set(found)) > 40
