"""Keyword arguments of LLM as the flags of `forebay run`."""

from __future__ import annotations

import math
import os
import sys
import warnings
from typing import Any

from . import _forebay
from .errors import InvalidValueError
from .params import SamplingParams, plain

# vLLM's arguments that mean nothing to an engine of CPUs.
_WITHOUT_MEANING = {
    "tokenizer", "tokenizer_mode", "trust_remote_code", "revision", "tokenizer_revision", "gpu_memory_utilization",
    "swap_space", "cpu_offload_gb", "enforce_eager", "hf_overrides", "disable_log_stats", "disable_custom_all_reduce",
    "load_format", "download_dir", "block_size", "distributed_executor_backend", "compilation_config",
    "enable_chunked_prefill", "async_scheduling", "hf_token", "allowed_local_media_path", "mm_processor_kwargs", "limit_mm_per_prompt",
    "max_seq_len_to_capture", "max_parallel_loading_workers", "enable_expert_parallel", "enable_sleep_mode", "model_impl", "config_format",
    "speculative_config", "structured_outputs_config", "disable_cascade_attn", "kv_cache_memory_bytes",
}
_warned: set[str] = set()


def _warn_once(caller: str, name: str) -> None:
    if name not in _warned:
        _warned.add(name)
        # The line of the user's that called, whatever of ours is between.
        level, frame = 1, sys._getframe().f_back
        while frame is not None and frame.f_globals.get("__package__") == __package__:
            level, frame = level + 1, frame.f_back
        warnings.warn(f"{caller}({name}=...) means nothing to Forebay and is not looked at", stacklevel=level + 1)


def _text_of(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValueError("invalid_argument", f"{name} is {text!r}; expected text that is UTF-8") from None
    return text


def path_of(name: str, value: Any) -> str:
    """The path that argument ``name`` gives. Raises TypeError, or InvalidValueError for one that no file can have."""
    path = os.fspath(value)
    if not isinstance(path, str):
        raise TypeError(f"{name} is {type(path).__name__}; expected str or os.PathLike")
    if "\0" in path:
        raise InvalidValueError("invalid_argument", f"{name} is {path!r}; expected a path without NUL")
    return _text_of(name, path)


def check_switches(caller: str, **given: object) -> None:
    """Raises TypeError for what is neither True nor False."""
    for name, value in given.items():
        if not isinstance(value, bool):
            raise TypeError(f"{caller}({name}={value!r}): expected True or False")


def check_numbers(least: float, most: float = math.inf, /, **given: Any) -> None:
    """Raises InvalidValueError for what is no number from ``least`` to ``most``, an integer where ``least`` is one."""
    whole = isinstance(least, int)
    for name, value in given.items():
        number = plain(value)
        is_number = isinstance(number, int if whole else (int, float)) and not isinstance(number, bool)
        if not is_number or not least <= number <= most:
            what = f"{'an integer' if whole else 'a number'} of at least {least:g}" + (f" and at most {most:g}" if most < math.inf else "")
            raise InvalidValueError("invalid_value", f"{name} is {value!r}; expected {what}", param=name)


def flags_of(arguments: dict[str, Any], caller: str = "LLM", model: str = "") -> list[str]:
    """Raises TypeError for an unknown argument and names the nearest known one; ``caller``: the function that got it."""
    known = {name: (has_text, has_many) for name, has_text, has_many in _forebay.flag_names()}
    # Of vLLM's, those that would change answers may say what is so anyway.
    as_the_model_is: dict[str, tuple[Any, ...]] = {"hf_overrides": ({},), "tokenizer": (model,)}
    flags: list[str] = []
    for name, value in arguments.items():
        if value is None:
            continue
        if name in _WITHOUT_MEANING and not (name == "gpu_memory_utilization" and "cuda" in str(arguments.get("devices"))):
            if value not in as_the_model_is.get(name, (value,)):
                raise InvalidValueError("invalid_argument", f"{name} is {value!r}, which would change answers; expected the model's own: leave it out")
            _warn_once(caller, name)
            continue
        if name == "devices" and "sim:" in str(value):
            raise InvalidValueError("invalid_argument", f"devices is {value!r}; simulated devices compute no answers: `forebay run --devices {value}`")
        flag = name.replace("_", "-")
        if flag not in known:
            import dataclasses
            import difflib

            of_requests = {field.name for field in dataclasses.fields(SamplingParams)}
            names = [each.replace("-", "_") for each in known]
            near = difflib.get_close_matches(name, names, 1)
            hint = "; it is one of SamplingParams" if name in of_requests else f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}{hint}")
        has_text, has_many = known[flag]
        if has_text:
            values = value if isinstance(value, (list, tuple)) else [value]
            if values is value and not has_many:
                raise TypeError(f"{caller}({name}={value!r}): expected one value")
            flags += [f"--{flag}={_text_of(name, format(each))}" for each in values]
            continue
        check_switches(caller, **{name: value})
        if value:
            flags.append(f"--{flag}")
        elif f"no-{flag}" in known:
            flags.append(f"--no-{flag}")
    return flags
