"""The columns that a table's answers are, with Arrow's layout, as C++ (answers.cc) makes them."""

from __future__ import annotations

from typing import Any

# Columns that a result adds, as `ray.data.llm` names them, in the order in which C++ (answers.cc) gives them.
NAMES = ("prompt_token_ids", "num_input_tokens", "generated_tokens", "generated_text", "num_generated_tokens", "finish_reason", "__inference_error__")
# Those of them that are a choice's, not the row's.
_OF_CHOICES = ("generated_tokens", "generated_text", "num_generated_tokens", "finish_reason")


def added_fields(pa: Any, in_lists: bool) -> list[Any]:
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
