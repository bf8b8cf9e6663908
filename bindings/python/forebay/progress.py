"""A bar of progress as tqdm draws it; where stderr is no terminal, a line every few seconds, as ``forebay run`` has it."""

from __future__ import annotations

import sys
import time
from typing import Any

# How often it draws, seconds: on a terminal, and elsewhere.
_OFTEN = 0.1
_LINES = 5.0


class Progress:
    """Draws on stderr."""

    def __init__(self, total: int, shown: bool) -> None:
        self._total, self._done, self._prompt, self._output = total, 0, 0, 0
        self._shown = shown and sys.stderr is not None
        self._live = self._shown and sys.stderr.isatty()
        self._began = self._drawn = time.monotonic()
        self.often = (_OFTEN if self._live else _LINES) if self._shown else None

    def add(self, outputs: list[Any]) -> None:
        if self._shown:
            prompt = sum(len(getattr(output, "prompt_token_ids", None) or ()) for output in outputs)
            generated = sum(len(choice.token_ids) for output in outputs for choice in getattr(output, "outputs", ()))
            self.at(self._done + len(outputs), self._prompt + prompt, self._output + generated)

    def at(self, done: int, prompt_tokens: int, output_tokens: int) -> None:
        self._done, self._prompt, self._output = done, prompt_tokens, output_tokens
        now = time.monotonic()
        due = self.often is not None and now - self._drawn > self.often
        if self._shown and self._done and (due or self._live and self._done == self._total):
            self._drawn = now
            self._draw(max(now - self._began, 1e-9))

    def _draw(self, seconds: float) -> None:
        left = seconds / self._done * (self._total - self._done)
        if self._live:
            part = self._done / max(self._total, 1)
            text = f"\rProcessed prompts: {part:4.0%}|{'█' * int(20 * part):<20}| {self._done}/{self._total} [{_clock(seconds)}<{_clock(left)}, "
        else:
            text = f"forebay: {self._done}/{self._total} prompts done [{_clock(seconds)}<{_clock(left)}, "
        text += (
            f"{self._done / seconds:.2f}it/s, est. speed input: "
            f"{self._prompt / seconds:.2f} toks/s, output: {self._output / seconds:.2f} toks/s]"
        )
        sys.stderr.write(text if self._live else text + "\n")
        sys.stderr.flush()

    def close(self) -> None:
        if self._live and self._done:
            sys.stderr.write("\n")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02}:{rest:02}"
