"""Forebay: offline LLM inference, the same answer for the same request, bit for bit."""

from typing import TYPE_CHECKING, Any

from ._forebay import __version__
from .errors import EngineError, Error, InvalidValueError
from .llm import LLM
from .outputs import (
    ClassificationOutput, ClassificationRequestOutput, CompletionOutput, EmbeddingOutput, EmbeddingRequestOutput, Interrupted, Likelihood,
    LikelihoodOutput, Logprob, RequestOutput, ScoringOutput, ScoringRequestOutput,
)
from .params import RequestOutputKind, SamplingParams
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .async_llm import AsyncLLM
    from .batch import run_batch
    from .table import run_table

__all__ = [
    "LLM",
    "AsyncLLM",
    "ClassificationOutput",
    "ClassificationRequestOutput",
    "CompletionOutput",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "EngineError",
    "Error",
    "Interrupted",
    "InvalidValueError",
    "Likelihood",
    "LikelihoodOutput",
    "Logprob",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "ScoringOutput",
    "ScoringRequestOutput",
    "Tokenizer",
    "__version__",
    "run_batch",
    "run_table",
]


# What is slow to import, and few need.
_LATE = {"AsyncLLM": "async_llm", "run_batch": "batch", "run_table": "table"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'forebay' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_LATE[name]}", __name__), name)
