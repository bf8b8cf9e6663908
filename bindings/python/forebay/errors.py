"""Errors, each with the stable code that docs/errors.md lists."""

from __future__ import annotations


class Error(Exception):
    """An error of Forebay: ``code`` is stable (docs/errors.md), ``str(error)`` is the message, ``index`` the prompt's, ``param`` the parameter's name."""

    def __init__(self, code: str, message: str, index: int | None = None, param: str | None = None) -> None:
        super().__init__(code, message, index, param)  # by which it is made again in another process
        self.code = code
        self.message = message
        self.index = index
        self.param = param

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


class InvalidValueError(Error, ValueError):
    """A value that the caller gave cannot be used."""


class EngineError(Error, RuntimeError):
    """The model, the machine or the engine failed."""


def make_error(code: str, message: str, usage: bool) -> Error:
    return (InvalidValueError if usage else EngineError)(code, message)


def prompt_error(index: int, code: str, message: str, param: str) -> Error:
    """The error of one prompt among several."""
    if code == "no_prompt":  # call.cc says all of it
        return InvalidValueError("invalid_type", message, index)
    error = make_error(code, f"prompt {index}: {message}", True)
    error.index, error.param = index, param or None
    return error
