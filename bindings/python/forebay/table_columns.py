"""A table's columns: those that ask, as JSON, and those that its answers are, with Arrow's layout, as C++ (answers.cc) makes them."""

from __future__ import annotations

import json
import string
from typing import Any

from . import _forebay
from .errors import InvalidValueError

# Columns that a result adds, as `ray.data.llm` names them, in the order in which C++ (answers.cc) gives them.
NAMES = ("prompt_token_ids", "num_input_tokens", "generated_tokens", "generated_text", "num_generated_tokens", "finish_reason", "__inference_error__")
# The same where a row gets a vector.
VECTOR_NAMES = ("num_input_tokens", "embedding", "__inference_error__")
# Those of them that are a choice's, not the row's.
_OF_CHOICES = ("generated_tokens", "generated_text", "num_generated_tokens", "finish_reason")


def added_fields(pa: Any, in_lists: bool, vectors: bool) -> list[Any]:
    if vectors:
        return [pa.field(name, kind) for name, kind in zip(VECTOR_NAMES, (pa.int64(), pa.list_(pa.float32()), pa.string()))]
    ids = pa.list_(pa.int32())
    types = (ids, pa.int64(), ids, pa.string(), pa.int64(), pa.string(), pa.string())
    return [pa.field(name, pa.list_(kind) if in_lists and name in _OF_CHOICES else kind) for name, kind in zip(NAMES, types)]


def added_arrays(pa: Any, fields: list[Any], rows: int, columns: list[tuple[bytes, bytes, bytes]], in_lists: bool) -> list[Any]:
    """So many rows; the last of the columns says which entries of a choice's columns are a row's, where it has a list of them."""
    *columns, (valid, offsets, _) = columns
    arrays = []
    for field, column in zip(fields, columns, strict=True):
        if in_lists and field.name in _OF_CHOICES:
            entries = _array(pa, field.type.value_type, int.from_bytes(offsets[-4:], "little"), column)
            arrays.append(pa.Array.from_buffers(field.type, rows, [pa.py_buffer(valid), pa.py_buffer(offsets)], children=[entries]))
        else:
            arrays.append(_array(pa, field.type, rows, column))
    return arrays


def _array(pa: Any, kind: Any, rows: int, column: tuple[bytes, bytes, bytes]) -> Any:
    """A column of answers, which has Arrow's layout: who has a value, where each begins, values."""
    valid, offsets, values = (pa.py_buffer(each) for each in column)
    if pa.types.is_list(kind):
        ids = pa.Array.from_buffers(kind.value_type, len(values) // 4, [None, values])
        return pa.Array.from_buffers(kind, rows, [valid, offsets], children=[ids])
    return pa.Array.from_buffers(kind, rows, [valid, offsets, values] if pa.types.is_string(kind) else [valid, values])


def as_read(kind: Any) -> Any:
    """A type that differs from another in its layout alone is read as that one."""
    import pyarrow as pa

    name = str(kind)  # not every pyarrow has all of them
    if name == "string_view":
        return pa.large_string()
    return pa.large_list(kind.value_type) if name.startswith(("fixed_size_list", "list_view", "large_list_view")) else kind


def names_of(template: str) -> list[str]:
    """The columns that a text has in braces, as ``str.format`` has them; [] where it has none."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError:
        return []
    names = [name for _, name, _, _ in parsed if name is not None]
    if any(form or change for _, name, form, change in parsed if name is not None):
        raise InvalidValueError("invalid_value", f"prompt is {template!r}; expected columns alone in braces, as {{product}}")
    return list(dict.fromkeys(names))


def plain_values(column: Any, as_json: bool) -> list[Any]:
    """A column's values; of a column of JSON the texts, nulls, and the JSON of all else."""
    values: list[Any] = column.to_pylist()
    if not as_json:
        return values
    held = [None if value is None else json.loads(value) for value in values]
    return [each if each is None or isinstance(each, str) else value for each, value in zip(held, values)]


def filled(template: str, columns: list[list[Any]], names: list[str], first_row: int) -> list[bytes]:
    """The text with each row's values in it, as JSON. A row without a value has no prompt: that ends the job before it begins."""
    parts = [(text, names.index(name) if name is not None else None) for text, name, _, _ in string.Formatter().parse(template)]
    texts = []
    for row, values in enumerate(zip(*columns)):
        if None in values:
            raise InvalidValueError("invalid_value", f"row {first_row + row}: {names[values.index(None)]} is None, null; the prompt names it")
        texts.append(json.dumps("".join(text + (str(values[at]) if at is not None else "") for text, at in parts)).encode())
    return texts


def prompts(column: Any) -> list[bytes]:
    """A column's prompts as JSON; text and token ids by the buffers that hold them, so that no value becomes an object."""
    import pyarrow.types as types

    kind, rows = as_read(column.type), len(column)
    if rows == 0:
        return []
    if types.is_null(kind):
        return [b"null"] * rows
    if "list_view" in str(column.type):  # whose cast pyarrow 26 gets wrong
        return [json.dumps(value).encode() for value in column.to_pylist()]
    if kind != column.type:
        column = column.cast(kind)
    bits, begins = column.buffers()[:2]
    if types.is_string(kind) or types.is_large_string(kind):
        width = 8 if types.is_large_string(kind) else 4
        return _forebay.column_json(rows, column.offset, bits or b"", begins, width, 0, column.buffers()[2] or b"", 0)
    if (types.is_list(kind) or types.is_large_list(kind)) and types.is_signed_integer(kind.value_type) and column.values.null_count == 0:
        ids, width = column.values, 8 if types.is_large_list(kind) else 4
        held = ids.buffers()[1] or b""
        return _forebay.column_json(rows, column.offset, bits or b"", begins, width, ids.offset, held, kind.value_type.bit_width // 8)
    return [json.dumps(value).encode() for value in column.to_pylist()]


def json_texts(column: Any) -> list[bytes]:
    """Of a column of JSON (table_files.is_json): a row whose value is no prompt is an error of that row alone; so is one of several prompts,
    since a list in a list is token ids."""
    texts = ("null" if value is None else value for value in column.to_pylist())
    return [(f"[{text}]" if text.startswith("[") else text).encode() for text in texts]


def chats(column: Any) -> list[bytes]:
    return [json.dumps(_messages(value)).encode() for value in column.to_pylist()]


def _messages(value: Any) -> Any:
    """A conversation, or its JSON; members that are null in a struct, since another row or message has them, are left out."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            return value
        return _messages(parsed) if isinstance(parsed, str) else parsed  # a column of JSON may hold texts that are JSON
    return _without_padding(value)


def _without_padding(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_padding(each) for name, each in value.items() if each is not None}
    return [_without_padding(each) for each in value] if isinstance(value, list) else value
