"""Names, order and defaults against a committed list of vLLM's: what its users type means the same here."""
import contextlib
import dataclasses
import enum
import inspect
import json
import pathlib

import pytest

import forebay
from conftest import LLAMA

THEIRS = json.loads((pathlib.Path(__file__).parent / "vllm_signatures.json").read_text())


def plain(value):
    return value.name if isinstance(value, enum.Enum) else value


def signature_of(function):
    """As the list writes it: [name], [name, default], "*" before the first that is given by name alone."""
    listed = []
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in listed:
            listed.append("*")
        listed.append([name] if parameter.default is parameter.empty else [name, plain(parameter.default)])
    return listed


@pytest.mark.parametrize("name", ["generate", "chat"])
def test_calls_begin_as_theirs_do(name):
    theirs = THEIRS[f"LLM.{name}"]
    ours = signature_of(getattr(forebay.LLM, name))
    assert ours[: len(theirs)] == theirs
    # What is ours alone can be given by name alone.
    more = ours[len(theirs) :]
    assert "*" in theirs or not more or more[0] == "*"


def test_sampling_params_are_theirs():
    ours = [[field.name, plain(field.default)] for field in dataclasses.fields(forebay.SamplingParams)]
    assert ours == THEIRS["SamplingParams"]


@pytest.mark.parametrize("name", ["RequestOutput", "CompletionOutput", "Logprob"])
def test_outputs_begin_as_theirs_do(name):
    ours = [field.name for field in dataclasses.fields(getattr(forebay, name))]
    assert ours[: len(THEIRS[name])] == THEIRS[name]


@pytest.mark.filterwarnings("ignore:LLM")
def test_every_argument_of_theirs_is_known():
    from forebay.errors import InvalidValueError
    from forebay.flags import flags_of

    for name in THEIRS["LLM"]:
        with contextlib.suppress(InvalidValueError):  # known, and not what it may be
            flags_of({name: True})  # a TypeError would name it
    with pytest.raises(TypeError, match="max_model_len"):
        forebay.LLM(LLAMA, max_modellen=3)
