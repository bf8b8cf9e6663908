"""What a request asks for: vLLM's names, order and defaults."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, fields
from typing import Any

from .errors import InvalidValueError


class RequestOutputKind(enum.Enum):
    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


_INTEGERS = ("n", "top_k", "seed", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs")
_FLOATS = ("presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "min_p")
_BOOLEANS = ("ignore_eos", "detokenize", "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output")
# Members that the engine's parameters do not have.
_OWN = ("detokenize", "output_kind", "logprobs", "max_tokens")


@dataclass(kw_only=True)
class SamplingParams:
    """Checked when it is made as far as types go; ranges are the engine's, and are checked before anything runs."""

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    structured_outputs: Any = None
    logit_bias: dict[int, float] | dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None

    def __post_init__(self) -> None:
        for name in _INTEGERS:
            value = getattr(self, name)
            if value is None and name in ("seed", "max_tokens", "logprobs", "prompt_logprobs"):
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise _wrong(name, value, "an integer")
            if not -(2**63) <= value < 2**63:
                raise _wrong(name, value, "an integer of 64 bits with a sign")
        for name in _FLOATS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise _wrong(name, value, "a number")
            if not math.isfinite(value):
                raise _wrong(name, value, "a number that is finite")
        for name in _BOOLEANS:
            if not isinstance(getattr(self, name), bool):
                raise _wrong(name, getattr(self, name), "True or False")
        for bias in (self.logit_bias or {}).values():
            if isinstance(bias, bool) or not math.isfinite(bias):
                raise _wrong("logit_bias", bias, "numbers from -100 to 100")


def _wrong(name: str, value: object, expected: str) -> InvalidValueError:
    return InvalidValueError("invalid_value", f"`{name}` is {value!r}; expected {expected}", param=name)


def body_of(params: SamplingParams | None, defaults: dict[str, Any], chat: bool) -> dict[str, Any]:
    """The parameters of a line of `forebay run` that asks for the same. None: what the model's generation config says.

    ``defaults`` are the generation config's; what is a default anyway is left out.
    """
    if params is None:
        return {}
    if not isinstance(params, SamplingParams):
        raise TypeError(f"sampling_params is {type(params).__name__}; expected SamplingParams")
    body: dict[str, Any] = {}
    for field in fields(params):
        value = getattr(params, field.name)
        default = defaults.get(field.name, field.default)
        if field.name not in _OWN and value is not None and value != default:
            body[field.name] = value
    if params.logit_bias is not None:
        body["logit_bias"] = {str(token): bias for token, bias in params.logit_bias.items()}
    if params.max_tokens is not None:
        body["max_tokens"] = params.max_tokens
    if params.logprobs is not None:
        body.update({"logprobs": True, "top_logprobs": params.logprobs} if chat else {"logprobs": params.logprobs})
    return body
