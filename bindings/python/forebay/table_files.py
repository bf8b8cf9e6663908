"""Files and tables in memory as record batches, and record batches as files. pyarrow (the extra ``[arrow]``) reads and writes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from .errors import InvalidValueError

# Rows in memory at once, and in a row group of a Parquet file.
_ROWS = 4096
# Bytes of lines that are read at once.
_BLOCK = 4 << 20


class Kept(list[Any]):
    """Record batches in memory."""


def is_pandas(source: Any) -> bool:
    return type(source).__module__.split(".")[0] == "pandas"


def kind_of(path: str) -> str:
    kind = os.path.splitext(path)[1].lower()
    if kind in (".parquet", ".csv", ".jsonl"):
        return kind
    raise InvalidValueError("invalid_value", f"{path}: the name ends in {kind or 'nothing'}; expected .parquet, .csv or .jsonl")


def check_sink(source: Any, sink: str) -> None:
    """What is found out before anything runs. The sink comes into being by a rename, which would replace the source."""
    kind_of(sink)
    if isinstance(source, (str, os.PathLike)) and os.path.exists(sink) and os.path.samefile(source, sink):
        raise InvalidValueError("output_taken", f"{sink} is the source too; expected another file for the result")
    if os.path.isdir(sink):
        raise InvalidValueError("output_taken", f"{sink} is a folder; expected a file")


def check_columns(schema: Any, sink: str) -> None:
    """A file of text has no bytes; that is found out before anything runs."""
    import pyarrow as pa

    if kind_of(sink) == ".parquet":
        return
    for field in schema:
        kind = field.type
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            raise InvalidValueError("invalid_value", f"column {field.name!r} is of type {kind}, which {sink} cannot hold; leave it out, or write .parquet")


def beside_pandas(source: Any, added: Any) -> Any:
    """The frame with the columns of a table of as many rows; its own keep their types, and rows their index."""
    columns = added.to_pandas()
    columns.index = source.index
    return source.assign(**{name: columns[name] for name in columns})


def open_table(source: Any, text: str) -> tuple[Any, Iterable[Any]]:
    """The schema, and record batches: ``Kept`` where the source is no file. ``text`` names a column that is text, also where a file of
    text has numbers there."""
    import pyarrow as pa

    if isinstance(source, (str, os.PathLike)):
        return _open_file(os.fspath(source), kind_of(os.fspath(source)), text)
    if is_pandas(source):
        source = pa.Table.from_pandas(source, preserve_index=False)
    if isinstance(source, pa.Table):
        return source.schema, Kept(source.to_batches(max_chunksize=_ROWS))
    if isinstance(source, pa.RecordBatch):
        return source.schema, Kept([source])
    kept = Kept(source)
    if not kept or not all(isinstance(each, pa.RecordBatch) for each in kept):
        raise TypeError(f"source is {type(source).__name__}; expected a file, a table of pandas or pyarrow, or record batches")
    return kept[0].schema, kept


def _open_file(path: str, kind: str, text: str) -> tuple[Any, Iterable[Any]]:
    """Datasets are for what nothing else reads: their import brings pandas' with it, a third of a second."""
    import pyarrow as pa

    if kind == ".parquet" and not os.path.isdir(path):
        import pyarrow.parquet as parquet

        # Read ahead, the whole file would stay in memory.
        file = parquet.ParquetFile(path, pre_buffer=False)
        return file.schema_arrow, file.iter_batches(batch_size=_ROWS)
    if kind == ".csv" and not os.path.isdir(path):
        import pyarrow.csv as csv

        # A prompt has lines, and a block of the file may end within it.
        lines, columns = csv.ParseOptions(newlines_in_values=True), csv.ConvertOptions(column_types={text: pa.string()})
        reader = csv.open_csv(path, parse_options=lines, convert_options=columns)
        return reader.schema, _cut(reader)
    if kind == ".jsonl" and not os.path.isdir(path):
        schema = _schema_of_lines(path)
        return schema, _rows_of_lines(path, schema)
    import pyarrow.dataset as dataset

    data = dataset.dataset(path, format="json" if kind == ".jsonl" else kind[1:])
    return data.schema, data.to_batches(batch_size=_ROWS)


def _blocks(path: str) -> Iterator[bytes]:
    """A file's lines, many at a time."""
    with open(path, "rb") as file:
        while block := file.read(_BLOCK) + file.readline():
            if not block.isspace():
                yield block


def _table_of_lines(block: bytes, **how: Any) -> Any:
    import pyarrow as pa
    import pyarrow.json as reader

    options = reader.ReadOptions(block_size=len(block) + 1)
    return reader.read_json(pa.BufferReader(block), read_options=options, parse_options=reader.ParseOptions(**how))


def _schema_of_lines(path: str) -> Any:
    """That of all lines: a member that only late ones have is a column too."""
    import pyarrow as pa

    schema = pa.schema([])
    for block in _blocks(path):
        fields = [pa.field(field.name, _without_times(field.type)) for field in _table_of_lines(block).schema]
        schema = pa.unify_schemas([schema, pa.schema(fields)], promote_options="permissive")
    return schema


def _without_times(kind: Any) -> Any:
    """JSON has no times: what looks like one is text, and stays as it is."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _without_times(each.type)) for each in kind])
    return kind


def _rows_of_lines(path: str, schema: Any) -> Iterator[Any]:
    for block in _blocks(path):
        yield from _table_of_lines(block, explicit_schema=schema, unexpected_field_behavior="error").to_batches(max_chunksize=_ROWS)


def _cut(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for begin in range(0, batch.num_rows, _ROWS):
            yield batch.slice(begin, _ROWS)


class Writer(Protocol):
    def write_batch(self, batch: Any) -> None: ...
    def close(self) -> None: ...


def writer_of(path: str, kind: str, schema: Any) -> Writer:
    if kind == ".jsonl":
        return _JsonLines(path)
    if kind == ".csv":
        return _Csv(path, schema)
    import pyarrow.parquet as parquet

    writer: Writer = parquet.ParquetWriter(path, schema)
    return writer


def _json(value: Any) -> str:
    """JSON has no dates and the like, which become text, nor what is no number, which becomes null."""
    try:
        return json.dumps(value, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _JsonLines:
    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8")

    def write_batch(self, batch: Any) -> None:
        self._file.writelines(_json(row) + "\n" for row in batch.to_pylist())

    def close(self) -> None:
        self._file.close()


class _Csv:
    """CSV has no lists: they become JSON."""

    def __init__(self, path: str, schema: Any) -> None:
        import pyarrow as pa
        import pyarrow.csv as csv

        self._nested = [pa.types.is_nested(field.type) for field in schema]
        fields = [pa.field(field.name, pa.string() if deep else field.type) for field, deep in zip(schema, self._nested)]
        self._schema, self._text = pa.schema(fields), pa.string()
        self._writer = csv.CSVWriter(path, self._schema)

    def write_batch(self, batch: Any) -> None:
        import pyarrow as pa

        columns = [
            pa.array([None if value is None else _json(value) for value in column.to_pylist()], self._text) if deep else column
            for column, deep in zip(batch.columns, self._nested)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()
