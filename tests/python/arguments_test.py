"""Parameters, prompts and arguments: what is checked, and what is said of what is wrong."""
import copy
import dataclasses
import math
import pickle
import subprocess
import warnings

import pytest

import forebay
from conftest import FLAGS, FOREBAY, LLAMA, RANKS, prompts
from forebay import LLM, SamplingParams
from forebay.flags import flags_of


def test_a_list_of_parameters(llm):
    texts = prompts(6)
    params = [SamplingParams(max_tokens=1 + i, temperature=i % 2, n=1 + i % 3, logprobs=i % 2 or None, ignore_eos=True) for i in range(6)]
    outputs = llm.generate(texts, params, use_tqdm=False)
    assert [[len(choice.token_ids) for choice in output.outputs] for output in outputs] == [[1 + i] * (1 + i % 3) for i in range(6)]
    for index, (output, text, each) in enumerate(zip(outputs, texts, params)):
        alone = llm.generate(text, each, keys=[index], use_tqdm=False)[0]
        assert [choice.token_ids for choice in output.outputs] == [choice.token_ids for choice in alone.outputs]
        assert (output.outputs[0].logprobs is None) == (each.logprobs is None)


@pytest.mark.parametrize("arguments, text", [
    ({"temperature": math.nan}, "temperature"), ({"temperature": True}, "temperature"), ({"n": True}, "`n`"), ({"n": 1.5}, "`n`"),
    ({"max_tokens": 2**63}, "max_tokens"), ({"seed": 2**63}, "seed"), ({"top_p": math.inf}, "top_p"), ({"ignore_eos": 1}, "ignore_eos"),
    ({"output_kind": "DELTA"}, "output_kind"), ({"stop": [5]}, "stop"), ({"stop_token_ids": {5}}, "stop_token_ids"),
    ({"logit_bias": [1]}, "logit_bias"), ({"logit_bias": {5: "x"}}, "logit_bias"), ({"temperature": 10**400}, "temperature"),
])
def test_bad_types_of_parameters(arguments, text):
    with pytest.raises(ValueError, match=f"{text}.* is .*; expected ") as caught:
        SamplingParams(**arguments)
    assert caught.value.code == "invalid_value"
    # What is set later is checked too.
    params = SamplingParams()
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=text):
        setattr(params, name, value)
    assert params == SamplingParams()


def test_a_parameter_that_is_none_is_not_set():
    with pytest.raises(AttributeError, match="temprature"):
        SamplingParams().temprature = 0


def test_only_what_is_given_is_checked(monkeypatch):
    checked = []

    def noted(name, check):
        return lambda *args: (checked.append(name), check(*args))[1]

    checks = forebay.params._CHECKS
    monkeypatch.setattr(forebay.params, "_CHECKS", {name: noted(name, check) for name, check in checks.items()})
    params = SamplingParams(temperature=0.5, max_tokens=None, stop=["a"])
    assert checked == ["temperature", "stop"]
    params.top_p = 0.9
    assert checked == ["temperature", "stop", "top_p"]
    assert params == dataclasses.replace(SamplingParams(), temperature=0.5, max_tokens=None, stop=["a"], top_p=0.9)
    with pytest.raises(TypeError, match="unexpected keyword argument 'temprature'"):
        SamplingParams(temprature=0)
    with pytest.raises(TypeError, match="positional"):
        SamplingParams(1)


class Numpys:
    """A value as numpy has it."""

    def __init__(self, value):
        self.value = value

    def tolist(self):
        return self.value

    def __index__(self):
        return self.value


def test_numbers_of_numpy_are_numbers(llm):
    params = SamplingParams(temperature=Numpys(0.5), max_tokens=Numpys(3), stop_token_ids=Numpys([5]), stop=Numpys(["a"]))
    assert params == SamplingParams(temperature=0.5, max_tokens=3, stop_token_ids=[5], stop=["a"]) and type(params.max_tokens) is int
    outputs = llm.generate([[5, 6]] * 2, params, keys=[Numpys(7), 7], use_tqdm=False)
    assert outputs[0].outputs == outputs[1].outputs
    assert llm.generate([Numpys(5), Numpys(6)], params, keys=[7], use_tqdm=False)[0].outputs == outputs[0].outputs


def test_a_clone_shares_nothing():
    params = SamplingParams(stop=["a"], logit_bias={5: 1.0}, output_kind=forebay.RequestOutputKind.DELTA)
    for copied in (params.clone(), pickle.loads(pickle.dumps(params))):
        assert copied == params and copied.stop is not params.stop and copied.output_kind is params.output_kind


class OfATask(forebay.InvalidValueError):
    """As Ray makes one of a task's error."""

    def __init__(self, cause):
        self.cause, self.args = cause, (cause,)


def test_errors_go_to_other_processes_as_they_are(llm):
    output, = llm.generate([[10**6]], on_error="return", use_tqdm=False)
    output.error.add_note("beside it")
    output.error.row = 7
    for copied in (pickle.loads(pickle.dumps(output)), copy.deepcopy(output)):
        assert type(copied.error) is type(output.error) and str(copied.error) == str(output.error)
        assert vars(copied.error) == vars(output.error) and copied.error.__notes__ == ["beside it"]
    assert vars(pickle.loads(pickle.dumps(OfATask(output.error))).cause) == vars(output.error)
    assert pickle.loads(pickle.dumps(forebay.Interrupted({3: "x"}))).outputs == {3: "x"}


def test_what_are_no_parameters_prompts_or_keys(llm):
    for bad in ({"temperature": 0}, [{"temperature": 0}], "text", 5, SamplingParams):
        with pytest.raises(TypeError, match="sampling_params is (dict|str|int|type); expected SamplingParams"):
            llm.generate(["a"], bad)
    with pytest.raises(TypeError, match="sampling_params is list"):
        llm.generate_iter(["a"], [SamplingParams()])
    for ask in (llm.generate, llm.generate_iter):
        for bad in (5, b"bytes"):
            with pytest.raises(TypeError, match="prompts are (int|bytes)"):
                ask(bad)
        for bad in (5, "ab"):
            with pytest.raises(TypeError, match="keys are (int|str)"):
                ask(["a", "b"], keys=bad)
    with pytest.raises(ValueError, match="a key is .* UTF-8"):
        llm.generate(["a"], keys=["\ud800"])
    with pytest.raises(TypeError, match="NoneType"):
        LLM(None)


def test_one_prompt_is_a_prompt_not_its_parts(llm):
    params = SamplingParams(max_tokens=3)
    for prompt in ("the river", {"prompt": "the river"}, [5, 6], (5, 6)):
        (one,), (other,) = llm.generate(prompt, params, use_tqdm=False), llm.generate_iter(prompt, params)
        assert one.prompt_token_ids == other.prompt_token_ids and one.outputs == other.outputs


def test_members_of_a_prompt_that_nobody_reads(llm):
    params = SamplingParams(max_tokens=2)
    llm.generate({"prompt": "a", "prompt_token_ids": None, "multi_modal_data": None, "cache_salt": "x"}, params, use_tqdm=False)
    image = {"prompt": "a", "multi_modal_data": {"image": 1}}
    for ask in (llm.generate, lambda *args: list(llm.generate_iter(*args))):
        with pytest.raises(TypeError, match="prompt 1 has the member multi_modal_data"):
            ask(["a", image], params)
    good, bad = llm.generate(["a", image], params, on_error="return", use_tqdm=False)
    assert good.error is None and bad.error.code == "invalid_type"


@pytest.mark.parametrize("arguments", [
    {"structured_outputs": object()}, {"structured_outputs": {"regex": "a"}},
])
def test_what_the_engine_does_not_have_is_refused_when_it_is_given(arguments):
    (name, value), = arguments.items()
    params = SamplingParams(structured_outputs=None)
    for give in (lambda: SamplingParams(**arguments), lambda: setattr(params, name, value)):
        with pytest.raises(ValueError, match=name) as caught:
            give()
        assert caught.value.code == "unsupported_parameter" and caught.value.param == name


def test_what_a_tokenizer_refuses(llm):
    tokenizer = llm.get_tokenizer()
    assert tokenizer.decode(iter([5, Numpys(6)])) == tokenizer.decode([5, 6]) and tokenizer.decode(5) == tokenizer.decode([5])
    for bad in (None, ["a"]):
        with pytest.raises(TypeError, match="text is (NoneType|list); expected str"):
            tokenizer.encode(bad)
    with pytest.raises(ValueError, match="no UTF-8"):
        tokenizer.encode("\ud800")
    for bad in (-1, 10**5, 10**12):
        with pytest.raises(ValueError, match=f"{bad} is no token id; expected integers from 0 to"):
            tokenizer.decode([5, bad])
    chat = [{"role": "user", "content": "the river"}]
    for name, value in (("chat_template", "{{ messages }}"), ("return_tensors", "pt"), ("return_dict", True)):
        with pytest.raises(ValueError, match=name):
            tokenizer.apply_chat_template(chat, **{name: value})
    assert tokenizer.apply_chat_template(chat, return_dict=False) == tokenizer.apply_chat_template(chat)
    for name, value in (("truncation", True), ("padding", "max_length"), ("return_tensors", "pt"), ("text_pair", "b")):
        with pytest.raises(ValueError, match=name):
            tokenizer("a", **{name: value})
    with pytest.raises(TypeError, match="'truncate'"):
        tokenizer("a", truncate=False)
    for bad in (None, 5, ["a", 5]):
        with pytest.raises(TypeError, match="text is (NoneType|int); expected str"):
            tokenizer(bad)


def test_a_tokenizer_is_called_as_hugging_faces_is(llm):
    tokenizer = llm.get_tokenizer()
    one, several = tokenizer("the river"), tokenizer(["the river", "a"], add_special_tokens=False, padding=False)
    assert one.input_ids == one["input_ids"] == tokenizer.encode("the river") and dict(one).keys() == {"input_ids", "attention_mask"}
    assert one.attention_mask == [1] * len(one.input_ids)
    assert several["input_ids"] == [tokenizer.encode(text, add_special_tokens=False) for text in ("the river", "a")]
    assert [len(mask) for mask in several.attention_mask] == [len(ids) for ids in several.input_ids]
    assert pickle.loads(pickle.dumps(one)) == one and copy.deepcopy(several) == several
    with pytest.raises(AttributeError, match="token_type_ids"):
        print(one.token_type_ids)


def test_texts_of_several_lists_of_tokens(llm):
    tokenizer = llm.get_tokenizer()
    texts = ["the river", "", "été 漢字"]
    encoded = tokenizer(texts).input_ids
    assert tokenizer.batch_decode(encoded, skip_special_tokens=True) == texts
    assert tokenizer.batch_decode(iter(encoded)) == [tokenizer.decode(ids) for ids in encoded] and tokenizer.batch_decode([]) == []
    with pytest.raises(ValueError, match="-1 is no token id"):
        tokenizer.batch_decode([[5], [5, -1]])


def test_the_special_tokens_of_a_tokenizer(llm):
    tokenizer = llm.get_tokenizer()
    assert tokenizer.decode(tokenizer.bos_token_id) == "<|begin_of_text|>" and tokenizer.decode(tokenizer.eos_token_id) == "<|end_of_text|>"
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|begin_of_text|>", "<|end_of_text|>")
    assert tokenizer.bos_token_id == tokenizer.encode("a")[0]
    assert max(tokenizer.bos_token_id, tokenizer.eos_token_id) < len(tokenizer) == tokenizer.vocab_size <= llm.facts()["vocab_size"]
    with LLM(LLAMA, skip_tokenizer_init=True, **FLAGS) as ids_alone:
        tokenizer = ids_alone.get_tokenizer()
        assert tokenizer
        for ask in (lambda: tokenizer.eos_token_id, lambda: tokenizer.eos_token, lambda: len(tokenizer), lambda: tokenizer("a")):
            with pytest.raises(ValueError, match="skip_tokenizer_init"):
                ask()


@pytest.mark.parametrize("arguments, texts", [
    ({"temperature": 9.0}, ["temperature", "9", "0 to 2"]), ({"top_p": -0.5}, ["top_p", "-0.5"]), ({"n": 0}, ["`n`", "0", "1 to 128"]),
])
def test_bad_ranges_of_parameters(llm, arguments, texts):
    with pytest.raises(forebay.Error) as caught:
        llm.generate("x", SamplingParams(**arguments), use_tqdm=False)
    for text in texts:
        assert text in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_numbers_that_do_not_fit_each_other(llm):
    with pytest.raises(ValueError, match="2 prompts and 3 sampling_params"):
        llm.generate(["a", "b"], [SamplingParams()] * 3)
    with pytest.raises(ValueError, match="2 prompts and 1 keys"):
        llm.generate(["a", "b"], keys=[1])
    with pytest.raises(TypeError):
        SamplingParams(temprature=1)


@pytest.mark.parametrize("model, arguments, code, kind", [
    ("/no/such", {}, "model_not_found", RuntimeError),
    (LLAMA, {"layout": "dp=nine"}, "layout_invalid", ValueError),
    (LLAMA, {"memory": "1MiB"}, "memory_too_small", RuntimeError),
    (LLAMA, {"max_num_seqs": -3}, "invalid_argument", ValueError),
    (LLAMA, {"dtype": "float8"}, "invalid_argument", ValueError),
    (LLAMA, {"pool_slots": "1GiB"}, "invalid_argument", ValueError),
    (LLAMA, {"mode": "ship"}, "invalid_argument", ValueError),
    (LLAMA, {"kv_offload": "always"}, "kv_offload_invalid", ValueError),
    (LLAMA, {"tensor_parallel_size": 5, "memory": "512MiB"}, "layout_leaves", ValueError),
    (LLAMA, {"max_model_len": 10**9}, "max_model_len_too_large", ValueError),
])
def test_models_that_do_not_open(model, arguments, code, kind, tmp_path):
    with pytest.raises(forebay.Error) as caught:
        LLM(model, **{"memory": "64MiB", "threads": 1, **arguments})
    assert isinstance(caught.value, kind)
    assert caught.value.code == code or code == "max_model_len_too_large"
    # The command says the same, and where its flags are explained.
    (tmp_path / "in.jsonl").write_text('{"prompt": "x"}\n')
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in {"memory": "64MiB", "threads": 1, **arguments}.items()]
    command = [FOREBAY, "run", "-m", model, "-i", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl"), "--quiet", *flags]
    said = subprocess.run(command, stderr=subprocess.PIPE, text=True).stderr
    assert said.replace("; see `forebay run --help`", "") == f"forebay: error: {caught.value}\n"


def test_arguments():
    with pytest.raises(TypeError, match="did you mean 'max_model_len'"):
        LLM(LLAMA, max_model_length=5)
    with pytest.raises(TypeError, match="'temperature'; it is one of SamplingParams"):
        LLM(LLAMA, temperature=0)
    # It means something on GPUs alone.
    assert flags_of({"devices": "cuda", "gpu_memory_utilization": 0.5}) == ["--devices=cuda", "--gpu-memory-utilization=0.5"]
    with pytest.warns(UserWarning, match="enforce_eager"):
        LLM(LLAMA, enforce_eager=True, **FLAGS).close()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(2):
            LLM(LLAMA, swap_space=4, **FLAGS).close()
    assert [str(each.message) for each in warned] == ["LLM(swap_space=...) means nothing to Forebay and is not looked at"], "once"
    assert warned[0].filename == __file__, "where it was said"
    with LLM(LLAMA, enable_prefix_caching=False, data_parallel_size=2, memory="96MiB", threads=2) as two:
        assert len(two.generate(prompts(6), SamplingParams(max_tokens=3), use_tqdm=False)) == 6


@pytest.mark.filterwarnings("ignore:LLM")
@pytest.mark.parametrize("argument", [{"hf_overrides": {"num_hidden_layers": 1}}, {"tokenizer": "/other"}])
def test_what_would_change_answers_is_refused(argument):
    with pytest.raises(forebay.Error, match=f"{next(iter(argument))} is .*leave it out"):
        LLM(LLAMA, **argument, **FLAGS)
    LLM(LLAMA, tokenizer=LLAMA, hf_overrides={}, **FLAGS).close()


def test_the_cache_takes_a_byte_an_element():
    for dtype, numerics in (("auto", "kvbf16"), ("int8", "kvint8"), ("fp8_e4m3", "kvfp8")):
        with LLM(LLAMA, kv_cache_dtype=dtype, **FLAGS) as llm:
            assert llm.facts()["numerics_class"].endswith(numerics)
            assert len(llm.generate(prompts(2), SamplingParams(max_tokens=3), use_tqdm=False)) == 2


def test_simulated_devices_are_refused(tmp_path):
    for ask in (
        lambda: LLM("builtin:Qwen3-32B", devices="sim:8xh200"),
        lambda: forebay.run_batch(tmp_path / "in.jsonl", tmp_path / "out.jsonl", LLAMA, devices="sim:h200"),
    ):
        with pytest.raises(ValueError, match="simulated devices compute no answers"):
            ask()
    with pytest.raises(TypeError, match=r"^run_batch\(\) got .*'retry_fail'"):
        forebay.run_batch(tmp_path / "in.jsonl", tmp_path / "out.jsonl", LLAMA, retry_fail=True)


def test_a_layout_is_chosen_by_the_lengths_of_what_will_be_asked(llm):
    expected = [output.outputs[0].token_ids for output in llm.generate(prompts(12), SamplingParams(max_tokens=6), use_tqdm=False)]
    with pytest.raises(forebay.Error, match="the job is not known before it runs"):
        LLM(LLAMA, layout="auto", **RANKS)
    with pytest.raises(ValueError, match="synthetic") as caught:
        LLM(LLAMA, layout="auto", trace="synthetic:n=0,words=5", **RANKS)
    assert caught.value.code == "trace_invalid"
    for layout in ("auto", "dp=2,weights=striped,pool=auto"):
        with LLM(LLAMA, layout=layout, trace="synthetic:n=400,prompt=64,output=64", **RANKS) as two:
            outputs = two.generate(prompts(12), SamplingParams(max_tokens=6), use_tqdm=False)
            assert two.stats()["expected_ms"] > 0
        assert [output.outputs[0].token_ids for output in outputs] == expected
