"""The model's tokenizer and chat template, with the method names of Hugging Face's tokenizers."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable
from typing import Any

from . import _forebay
from .errors import InvalidValueError

# What Hugging Face's calls take and these do not do.
_NOT_DONE_BY_CALLS = frozenset((
    "is_split_into_words", "max_length", "pad_to_multiple_of", "padding", "padding_side", "return_length", "return_offsets_mapping",
    "return_overflowing_tokens", "return_special_tokens_mask", "return_tensors", "return_token_type_ids", "stride", "text_pair", "text_pair_target",
    "text_target", "truncation", "verbose",
))
# Any other argument is the template's.
_NOT_DONE = ("chat_template", "max_length", "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors", "truncation")


class Encoding(dict[str, Any]):
    """``input_ids`` and ``attention_mask``, as items and as attributes: lists for one text, lists of lists for several."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)


class Tokenizer:
    """Turns text into tokens and back, and conversations into text."""

    def __init__(self, model: _forebay.Model) -> None:
        self._model = model
        self._vocab_size: int = model.facts()["vocab_size"]

    def __len__(self) -> int:
        """One more than the greatest id, added tokens included."""
        return self._model.vocabulary()[0]

    def __bool__(self) -> bool:
        return True

    @property
    def vocab_size(self) -> int:
        """As ``len``."""
        return len(self)

    @property
    def bos_token_id(self) -> int | None:
        """The id of the token that begins texts, or None."""
        return self._model.vocabulary()[1]

    @property
    def eos_token_id(self) -> int | None:
        """The id of the token that ends texts. Generation also ends at the tokens of the model's generation config."""
        return self._model.vocabulary()[2]

    @property
    def bos_token(self) -> str | None:
        """The text of ``bos_token_id``."""
        return self._text_of(self.bos_token_id)

    @property
    def eos_token(self) -> str | None:
        """The text of ``eos_token_id``."""
        return self._text_of(self.eos_token_id)

    def _text_of(self, token: int | None) -> str | None:
        return None if token is None else self.decode(token)

    def __call__(self, text: str | Iterable[str], add_special_tokens: bool = True, **kwargs: Any) -> Encoding:
        """The tokens of one text, or of each of several."""
        for name, value in kwargs.items():
            if name not in _NOT_DONE_BY_CALLS:
                raise TypeError(f"a tokenizer's call got an unexpected keyword argument {name!r}")
            if value:
                raise InvalidValueError("unsupported_parameter", f"tokenizer({name}=...) is not supported; expected it left out")
        if isinstance(text, str):
            ids = self.encode(text, add_special_tokens)
            return Encoding(input_ids=ids, attention_mask=[1] * len(ids))
        if not isinstance(text, Iterable):
            raise TypeError(f"text is {type(text).__name__}; expected str, or several of them")
        every = [self.encode(each, add_special_tokens) for each in text]
        return Encoding(input_ids=every, attention_mask=[[1] * len(ids) for ids in every])

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text. ``add_special_tokens``: with the tokens that the tokenizer adds around a text, such as BOS."""
        if not isinstance(text, str):
            raise TypeError(f"text is {type(text).__name__}; expected str")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidValueError("invalid_value", f"the text is no UTF-8: {error}") from error
        return self._model.encode(text, bool(add_special_tokens))

    def decode(self, token_ids: Iterable[int] | int, skip_special_tokens: bool = False) -> str:
        """The text of one token, or of a list of them."""
        ids = [operator.index(each) for each in (token_ids if isinstance(token_ids, Iterable) else [token_ids])]
        for each in ids:
            if not 0 <= each < self._vocab_size:
                raise InvalidValueError("invalid_value", f"{each} is no token id; expected integers from 0 to {self._vocab_size - 1}")
        return self._model.decode(ids, bool(skip_special_tokens))

    def batch_decode(self, sequences: Iterable[Iterable[int] | int], skip_special_tokens: bool = False) -> list[str]:
        """The text of each of several lists of tokens."""
        return [self.decode(each, skip_special_tokens) for each in sequences]

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
        """A conversation rendered by the model's template, as text or token ids; ``kwargs`` are variables of the template."""
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
