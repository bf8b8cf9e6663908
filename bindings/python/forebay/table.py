"""Tables in, tables out: rows become requests, results become columns. Between the two lies a job with files.

pyarrow (the extra ``[arrow]``) reads and writes; it is imported when it is needed.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from . import _forebay
from .batch import run_batch
from .errors import InvalidValueError
from .inputs import Lines
from .params import SamplingParams

# Rows in memory at once, and in a row group of a Parquet file.
_ROWS = 4096


def run_table(
    source: Any,
    sink: str | os.PathLike[str] | None,
    model: str | os.PathLike[str],
    *,
    prompt: str | None = None,
    messages: str | None = None,
    params: SamplingParams | None = None,
    id: str | None = None,
    **arguments: Any,
) -> Any:
    """A row's answer beside the row, in the order of the source.

    ``source`` is a file (.parquet, .csv, .jsonl), a pandas or pyarrow table, or an iterable of record batches; ``prompt`` or
    ``messages`` names the column that asks. ``sink`` is a file of these kinds, or None for a table in memory (pandas' where the source is).
    Requests and results lie beside the sink (``SINK.requests.jsonl``, ``SINK.results.jsonl``) until it is whole: the same call goes on
    where a killed one ended. Other arguments are those of ``forebay.run_batch``.
    """
    if (prompt is None) == (messages is None):
        raise TypeError("run_table() takes one of prompt= and messages=, the name of a column")
    column = prompt if prompt is not None else str(messages)
    if sink is None:
        with tempfile.TemporaryDirectory(prefix="forebay-table-") as folder:
            return _run(source, None, os.path.join(folder, "table"), model, column, messages is not None, params, id, arguments)
    path = os.fspath(sink)
    _kind(path)
    return _run(source, path, path, model, column, messages is not None, params, id, arguments)


def _run(
    source: Any, sink: str | None, beside: str, model: Any, column: str, chat: bool, params: SamplingParams | None, key: str | None,
    arguments: dict[str, Any],
) -> Any:
    import pyarrow as pa

    schema, batches = _open(source)
    _check(schema, column, chat, key)
    requests, results = beside + ".requests.jsonl", beside + ".results.jsonl"
    rows = _write_requests(batches, requests, column, chat, params, key)
    if rows:
        run_batch(requests, results, model, preserve_order=True, **arguments)
    else:
        open(results, "wb").close()
    # A source that can be read once was kept by _open.
    out = pa.schema([*schema, *_added(pa)])
    made = _join(pa, _open(source)[1] if not isinstance(batches, _Kept) else batches, results, out)
    if sink is None:
        table = pa.Table.from_batches(made, schema=out)
        return table.to_pandas() if _is_pandas(source) else table
    temporary = sink + ".writing"
    _write(pa, temporary, _kind(sink), out, made)
    os.replace(temporary, sink)
    os.remove(requests)
    os.remove(results)
    return None


class _Kept(list[Any]):
    """Record batches in memory."""


def _is_pandas(source: Any) -> bool:
    return type(source).__module__.split(".")[0] == "pandas"


def _kind(path: str) -> str:
    kind = os.path.splitext(path)[1].lower()
    if kind in (".parquet", ".csv", ".jsonl"):
        return kind
    raise InvalidValueError("invalid_value", f"{path}: the name ends in {kind or 'nothing'}; expected .parquet, .csv or .jsonl")


def _open(source: Any) -> tuple[Any, Iterable[Any]]:
    """The schema, and record batches."""
    import pyarrow as pa

    if isinstance(source, (str, os.PathLike)):
        import pyarrow.dataset as dataset

        kind = _kind(os.fspath(source))
        data = dataset.dataset(os.fspath(source), format="json" if kind == ".jsonl" else kind[1:])
        return data.schema, data.to_batches(batch_size=_ROWS)
    if _is_pandas(source):
        source = pa.Table.from_pandas(source, preserve_index=False)
    if isinstance(source, pa.Table):
        return source.schema, _Kept(source.to_batches(max_chunksize=_ROWS))
    if isinstance(source, pa.RecordBatch):
        return source.schema, _Kept([source])
    kept = _Kept(source)
    if not kept or not all(isinstance(each, pa.RecordBatch) for each in kept):
        raise TypeError(f"source is {type(source).__name__}; expected a file, a table of pandas or pyarrow, or record batches")
    return kept[0].schema, kept


def _check(schema: Any, column: str, chat: bool, key: str | None) -> None:
    import pyarrow.types as types

    for name in (column, key):
        if name is not None and name not in schema.names:
            raise InvalidValueError("invalid_value", f"the table has no column {name!r}; it has {', '.join(schema.names) or 'none'}")
    found = schema.field(column).type
    value = found.value_type if types.is_dictionary(found) else found
    is_text = types.is_string(value) or types.is_large_string(value)
    is_list = types.is_list(value) or types.is_large_list(value)
    if not (is_text or is_list or types.is_null(value)):
        wanted = "messages, as lists of structs or as JSON" if chat else "strings or token ids"
        raise InvalidValueError("invalid_value", f"column {column!r} is of type {found}; expected {wanted}")
    taken = [name for name in _NAMES if name in schema.names]
    if taken:
        raise InvalidValueError("invalid_value", f"the table has columns that the result adds: {', '.join(taken)}; rename them")


def _write_requests(batches: Iterable[Any], path: str, column: str, chat: bool, params: SamplingParams | None, key: str | None) -> int:
    """The job's input; written anew each time, since the results file knows by hashes whether it is the same."""
    lines = Lines({}, chat, {"return_token_ids": True})
    seen: set[Any] = set()
    count = 0
    with open(path + ".writing", "w", encoding="utf-8") as file:
        for batch in batches:
            values = batch.column(batch.schema.names.index(column))
            made = [lines.line(value, params) for value in (_chats(values) if chat else _prompts(values))]
            if key is not None:
                names = batch.column(batch.schema.names.index(key)).to_pylist()
                for row, name in enumerate(names):
                    if name is None or name in seen:
                        raise InvalidValueError("invalid_value", f"row {count + row}: {key} is {name!r}, {'null' if name is None else 'twice'}")
                    seen.add(name)
                made = [f'{{"custom_id": {json.dumps(str(name))}, {line[1:]}' for name, line in zip(names, made)]
            file.writelines(line + "\n" for line in made)
            count += len(made)
    os.replace(path + ".writing", path)
    return count


def _prompts(column: Any) -> list[str]:
    """A column's prompts as JSON."""
    import pyarrow as pa

    kind = column.type
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_signed_integer(kind.value_type):
        ids = column.flatten()
        if ids.null_count == 0:
            return _forebay.id_lists_json(_int64(column.value_lengths().fill_null(-1)), _int64(ids))
    return [json.dumps(value) for value in column.to_pylist()]


def _int64(numbers: Any) -> bytes:
    """An array without nulls as the bytes of its numbers."""
    wide = numbers.cast("int64")
    return memoryview(wide.buffers()[1])[wide.offset * 8 : (wide.offset + len(wide)) * 8].tobytes() if len(wide) else b""


def _chats(column: Any) -> list[str]:
    return [json.dumps(_messages(value)) for value in column.to_pylist()]


def _messages(value: Any) -> Any:
    """A conversation; members that are null in a struct, since another message has them, are left out."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    if isinstance(value, list):
        return [{k: v for k, v in each.items() if v is not None} if isinstance(each, dict) else each for each in value]
    return value


# Columns that a result adds, as `ray.data.llm` names them, in the order in which C++ (answers.cc) gives them.
_NAMES = ("prompt_token_ids", "num_input_tokens", "generated_tokens", "generated_text", "num_generated_tokens", "finish_reason", "__inference_error__")


def _added(pa: Any) -> list[Any]:
    ids = pa.list_(pa.int32())
    types = (ids, pa.int64(), ids, pa.string(), pa.int64(), pa.string(), pa.string())
    return [pa.field(name, kind) for name, kind in zip(_NAMES, types)]


def _join(pa: Any, batches: Iterable[Any], results: str, out: Any) -> Iterator[Any]:
    answers = _forebay.Answers(results)
    for batch in batches:
        read = answers.read(batch.num_rows)
        added = [_array(pa, field.type, batch.num_rows, column) for field, column in zip(_added(pa), read)]
        yield pa.RecordBatch.from_arrays([*batch.columns, *added], schema=out)


def _array(pa: Any, kind: Any, rows: int, column: tuple[bytes, bytes, bytes]) -> Any:
    """A column of answers, which has Arrow's layout: who has a value, where each begins, values."""
    valid, offsets, values = (pa.py_buffer(each) for each in column)
    if pa.types.is_list(kind):
        ids = pa.Array.from_buffers(kind.value_type, len(values) // 4, [None, values])
        return pa.Array.from_buffers(kind, rows, [valid, offsets], children=[ids])
    return pa.Array.from_buffers(kind, rows, [valid, offsets, values] if pa.types.is_string(kind) else [valid, values])


def _write(pa: Any, path: str, kind: str, schema: Any, batches: Iterator[Any]) -> None:
    if kind == ".jsonl":
        with open(path, "w", encoding="utf-8") as file:
            for batch in batches:
                file.writelines(json.dumps(row, default=str) + "\n" for row in batch.to_pylist())
        return
    writer: Any
    if kind == ".parquet":
        import pyarrow.parquet as parquet

        writer = parquet.ParquetWriter(path, schema)
    else:
        import pyarrow.csv as csv

        nested = [pa.types.is_nested(field.type) for field in schema]
        flat = pa.schema([pa.field(field.name, pa.string() if deep else field.type) for field, deep in zip(schema, nested)])
        writer = csv.CSVWriter(path, flat)
        batches = (_flat(pa, batch, nested, flat) for batch in batches)
    with writer:
        for batch in batches:
            writer.write_batch(batch)


def _flat(pa: Any, batch: Any, nested: list[bool], schema: Any) -> Any:
    """CSV has no lists: they become JSON."""
    columns = [
        pa.array([None if value is None else json.dumps(value) for value in column.to_pylist()], pa.string()) if deep else column
        for column, deep in zip(batch.columns, nested)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
