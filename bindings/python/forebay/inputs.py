"""Prompts and parameters, as callers write them, as lines of `forebay run`."""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import _forebay
from .errors import Error, InvalidValueError
from .params import SamplingParams, body_of

Prompt = str | list[int] | dict[str, Any]
Key = int | str
# Instead of a prompt's JSON: the parser refuses it.
NOTHING = "null"


def is_one_prompt(prompts: object) -> bool:
    """A prompt, not a list of them. A list of integers is token ids."""
    return isinstance(prompts, (str, dict)) or (isinstance(prompts, (list, tuple)) and bool(prompts) and hasattr(prompts[0], "__index__"))


def prompts_of(prompts: Any) -> Iterable[Any]:
    """One prompt, or an iterable of them."""
    if is_one_prompt(prompts):
        return [prompts]
    if isinstance(prompts, (bytes, bytearray)) or not isinstance(prompts, Iterable):
        raise TypeError(f"prompts are {type(prompts).__name__}; expected a prompt or an iterable of them")
    return prompts


def text_of(prompt: object) -> str | None:
    """The text of a prompt that has one."""
    text = prompt.get("prompt") if isinstance(prompt, dict) else prompt
    return text if isinstance(text, str) else None


def conversations_of(messages: Any) -> list[Any]:
    """One conversation, or a list of them."""
    if not isinstance(messages, (list, tuple)):
        raise TypeError(f"messages are {type(messages).__name__}; expected a conversation or a list of conversations")
    if messages and isinstance(messages[0], dict):
        return [messages]
    return list(messages)


def prompt_json(prompt: object, index: int) -> str:
    """A prompt as JSON. Raises TypeError, which names the index, for a value that is no prompt."""
    return _forebay.prompt_json(prompt, index)


def continuations_json(continuations: object, index: int) -> str:
    """As ``prompt_json``, for what may follow the prompt of that index."""
    expected = "expected a list of strings, or of lists of token ids"
    if isinstance(continuations, (str, bytes, dict)) or not isinstance(continuations, Iterable):
        raise TypeError(f"the continuations of prompt {index} are {type(continuations).__name__}; {expected}")
    every = list(continuations)
    for each in every:
        if not isinstance(each, (str, list, tuple)):
            raise TypeError(f"the continuations of prompt {index} hold {type(each).__name__}; {expected}")
    return f"[{', '.join(prompt_json(each, index) for each in every)}]"


def chat_json(conversation: object, index: int) -> str:
    """As ``prompt_json``, for a conversation."""
    if not isinstance(conversation, (list, tuple)):
        raise TypeError(f"prompt {index} is {type(conversation).__name__}; expected a conversation, a list of messages")
    try:
        return json.dumps(conversation, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"prompt {index}: {error}") from error


def value_of(prompt: object, index: int, json_of: Callable[[object, int], str], returns: bool, wrong: dict[int, Error]) -> str:
    """A prompt's JSON. If errors are returned, the error of a bad prompt goes to ``wrong``, and ``NOTHING`` keeps its place."""
    try:
        return json_of(prompt, index)
    except TypeError as error:
        if not returns:
            raise
        wrong[index] = InvalidValueError("invalid_type", str(error), index)
        return NOTHING


def returns_errors(on_error: str) -> bool:
    """Whether errors of prompts and of their requests are returned among the answers."""
    if on_error not in ("raise", "return"):
        raise InvalidValueError("invalid_value", f"on_error is {on_error!r}; expected 'raise' or 'return'")
    return on_error == "return"


class Lines:
    """Turns prompts, as JSON, into lines; the parameters that several share are written once."""

    def __init__(self, defaults: dict[str, Any], chat: bool, more: dict[str, Any] | None = None, no_bound: int | None = 2**31 - 1) -> None:
        """``no_bound``: what a line has for ``max_tokens=None``; an engine that ends answers at the context's end takes the greatest number."""
        self._defaults, self._chat, self._more, self._no_bound = defaults, chat, more or {}, no_bound
        self._begin = '{"messages": ' if chat else '{"prompt": '
        self._last: tuple[SamplingParams | None, str] | None = None

    def line(self, value: str, params: SamplingParams | None) -> str:
        begin, end = self.around(params)
        return f"{begin}{value}{end}"

    def around(self, params: SamplingParams | None) -> tuple[str, str]:
        """The text of a line before its prompt, and after it."""
        return self._begin, self.rest(params) + "}"

    def rest(self, params: SamplingParams | None) -> str:
        """The text of a line after its prompt."""
        if self._last is None or self._last[0] is not params:
            body = {**self._more, **body_of(params, self._defaults, self._chat)}
            if params is not None and params.max_tokens is None and self._no_bound is not None:
                body["max_tokens"] = self._no_bound
            try:
                self._last = (params, ", " + json.dumps(body, allow_nan=False)[1:-1] if body else "")
            except (TypeError, ValueError) as error:  # parameters have been checked
                raise TypeError(f"{' or '.join(self._more)}: {error}") from error
        return self._last[1]


def check_params(params: object) -> None:
    """Raises TypeError for a value that is no ``SamplingParams``. None stands for the model's generation config."""
    if params is not None and not isinstance(params, SamplingParams):
        raise TypeError(f"sampling_params is {type(params).__name__}; expected SamplingParams")


def params_for(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> Iterable[SamplingParams | None]:
    if params is None or isinstance(params, SamplingParams):
        return itertools.repeat(params, count)
    if isinstance(params, str) or not isinstance(params, Sequence):
        check_params(params)
    for each in params:
        check_params(each)
    if len(params) != count:
        raise InvalidValueError("invalid_value", f"there are {count} prompts and {len(params)} sampling_params; expected as many, or one")
    return params


def check_keys(keys: object) -> None:
    """Raises TypeError for a text, which would be a list of one-character keys."""
    if keys is not None and (isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable)):
        raise TypeError(f"keys are {type(keys).__name__}; expected an integer or a string for each prompt")


def keys_for(keys: Iterable[Key] | None, count: int) -> list[int]:
    """The keys by which requests without a seed draw: the caller's, else their index."""
    if keys is None:
        return list(range(count))
    check_keys(keys)
    found = [key_of(key) for key in keys]
    if len(found) != count:
        raise InvalidValueError("invalid_value", f"there are {count} prompts and {len(found)} keys; expected as many")
    return found


def key_of(key: Key | None) -> int:
    if isinstance(key, str):
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise InvalidValueError("invalid_value", f"a key is {key!r}; expected text that is UTF-8") from error
        return _forebay.hash_key(key)
    if key is None or isinstance(key, bool) or not hasattr(key, "__index__") or not 0 <= operator.index(key) < 2**63:
        raise InvalidValueError("invalid_value", f"a key is {key!r}; expected a string or an integer from 0 to 2^63 - 1")
    return operator.index(key)
