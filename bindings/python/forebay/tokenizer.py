"""The model's tokenizer and chat template, with the calls that Hugging Face's users know."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from . import _forebay


class Tokenizer:
    def __init__(self, model: _forebay.Model) -> None:
        self._model = model

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self._model.encode(text, add_special_tokens)

    def decode(self, token_ids: Sequence[int] | int, skip_special_tokens: bool = False) -> str:
        return self._model.decode([token_ids] if isinstance(token_ids, int) else list(token_ids), skip_special_tokens)

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
        text = self._model.render(
            json.dumps(conversation),
            json.dumps(tools) if tools else "",
            json.dumps(kwargs) if kwargs else "",
            add_generation_prompt,
            continue_final_message,
        )
        return self.encode(text, add_special_tokens=False) if tokenize else text
