"""Names, order and defaults against a committed list of vLLM's: what its users type means the same here. Stubs and pages against the package."""
import ast
import contextlib
import dataclasses
import enum
import importlib
import inspect
import json
import pathlib
import re

import pytest

import forebay
from conftest import LLAMA, TESTS

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


def test_methods_of_theirs_are_there():
    for name in THEIRS["methods"]:
        assert inspect.isfunction(getattr(forebay.LLM, name)) and inspect.isfunction(getattr(forebay.AsyncLLM, name))


def test_sampling_params_are_theirs():
    ours = [[field.name, plain(field.default)] for field in dataclasses.fields(forebay.SamplingParams)]
    assert ours == THEIRS["SamplingParams"]


def request_page():
    """LineParserTest.TheDocumentListsEveryParameter holds it to the engine's table."""
    return (pathlib.Path(TESTS).parent / "docs" / "formats" / "requests.md").read_text()


def listed_parameters():
    return set(re.findall(r"^\| `(\w+)`", request_page(), re.MULTILINE))


def test_every_parameter_of_a_line_may_be_asked_for():
    page = request_page()
    asked, refused = page[page.index("## Sampling") : page.index("## Accepted")], page[page.index("## Refused") :]
    of_lines, of_nobody = (set(re.findall(r"^\| `(\w+)`", part, re.MULTILINE)) for part in (asked, refused))
    ours = {field.name for field in dataclasses.fields(forebay.SamplingParams)}
    # Other names of `n`, `max_tokens` and `logprobs`; what every output has (the prompt's ids, the tokens') or a caller can put together;
    # what other calls are for (`loglikelihood`, `embed`, `classify`); and `service_tier`, which lines alone have.
    assert of_lines - ours == {
        "best_of", "max_completion_tokens", "top_logprobs", "return_token_ids", "return_tokens_as_token_ids", "echo", "prompt_logprobs_from",
        "service_tier", "dimensions", "top_n", "encoding_format", "normalize", "use_activation",
    }
    assert ours - of_lines - of_nobody == {"detokenize", "output_kind"}


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


def test_the_stub_is_of_the_module():
    package = pathlib.Path(forebay.__file__).parent
    stub = ast.parse((package / "_forebay.pyi").read_text())

    def told(body, kind):
        return {each.name: each for each in body if isinstance(each, kind)}

    classes, functions = told(stub.body, ast.ClassDef), told(stub.body, ast.FunctionDef)
    module = forebay._forebay
    assert {name for name in vars(module) if not name.startswith("_")} == set(classes) | set(functions)
    for name, each in classes.items():
        members = {member for member in vars(getattr(module, name)) if not member.startswith("_")}
        assert members | {"__init__"} == set(told(each.body, ast.FunctionDef)), name


def test_codes_of_python_are_in_the_document():
    """Those of C++ are held to it by tidy."""
    listed = (pathlib.Path(TESTS).parent / "docs" / "errors.md").read_text()
    made = r'(?:InvalidValueError|EngineError|make_error)\(\s*"([a-z_]+)"'
    codes = {code for path in pathlib.Path(forebay.__file__).parent.glob("*.py") for code in re.findall(made, path.read_text())}
    assert len(codes) >= 6 and {code for code in codes if f"`{code}`" not in listed} == set()


@pytest.mark.parametrize("module, name", [
    ("openai.types.chat.completion_create_params", "CompletionCreateParamsBase"), ("openai.types.completion_create_params", "CompletionCreateParamsBase"),
    ("openai.types.embedding_create_params", "EmbeddingCreateParams"),
])
def test_every_parameter_of_openai_is_on_the_page(module, name):
    theirs = set(getattr(importlib.import_module(module), name).__annotations__) | {"stream"}
    assert theirs - listed_parameters() == set()


@pytest.mark.parametrize("name", ["SamplingParams", "PoolingParams"])
def test_every_parameter_of_vllm_is_on_the_page(name):
    theirs = set(THEIRS[f"fields of {name}"])
    assert theirs - listed_parameters() == set()
    assert name == "PoolingParams" or {field for field, _ in THEIRS[name]} - theirs == {"detokenize", "output_kind"}
