"""The model's tokenizer and chat template, with the calls that Hugging Face's users know."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable
from typing import Any

from . import _forebay
from .errors import InvalidValueError

# What Hugging Face's call takes and this one does not do; any other argument is the template's.
_NOT_DONE = ("chat_template", "max_length", "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors", "truncation")


class Tokenizer:
    """The tokens of texts, and the texts of conversations."""

    def __init__(self, model: _forebay.Model) -> None:
        self._model = model
        self._vocab_size: int = model.facts()["vocab_size"]

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """``add_special_tokens``: with those that the tokenizer puts around a text, BOS for example."""
        if not isinstance(text, str):
            raise TypeError(f"text is {type(text).__name__}; expected str")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidValueError("invalid_value", f"the text is no UTF-8: {error}") from error
        return self._model.encode(text, add_special_tokens)

    def decode(self, token_ids: Iterable[int] | int, skip_special_tokens: bool = False) -> str:
        """The text of one token, or of a list of them."""
        ids = [operator.index(each) for each in (token_ids if isinstance(token_ids, Iterable) else [token_ids])]
        for each in ids:
            if not 0 <= each < self._vocab_size:
                raise InvalidValueError("invalid_value", f"{each} is no token id; expected integers from 0 to {self._vocab_size - 1}")
        return self._model.decode(ids, skip_special_tokens)

    def apply_chat_template(
        self,
        conversation: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        **kwargs: Any,
    ) -> str | list[int]:
        """A conversation as the model's template writes it, or its tokens; ``kwargs`` are variables of the template."""
        for name in _NOT_DONE:
            if kwargs.pop(name, None):
                raise InvalidValueError("unsupported_parameter", f"apply_chat_template({name}=...) is not supported; chat_template belongs to LLM(...)")
        text = self._model.render(
            json.dumps(conversation),
            json.dumps(tools) if tools else "",
            json.dumps(kwargs) if kwargs else "",
            add_generation_prompt,
            continue_final_message,
        )
        return self.encode(text, add_special_tokens=False) if tokenize else text
