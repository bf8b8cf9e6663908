"""Files and tables in memory as record batches, and record batches as files. pyarrow (the extra ``[arrow]``) reads and writes."""

from __future__ import annotations

import codecs
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from .errors import InvalidValueError

# Rows in memory at once, and in a row group of a Parquet file.
_ROWS = 4096
# Bytes of lines that are read at once.
_BLOCK = 4 << 20


# Marks a column of JSON.
_JSON = b"forebay.json"


def is_pandas(source: Any) -> bool:
    return type(source).__module__.split(".")[0] == "pandas"


def kind_of(path: str) -> str:
    kind = os.path.splitext(path)[1].lower()
    if kind in (".parquet", ".csv", ".jsonl"):
        return kind
    raise InvalidValueError("invalid_value", f"{path}: the name ends in {kind or 'nothing'}; expected .parquet, .csv or .jsonl")


def check_summary(summary: str, source: Any, sink: str | os.PathLike[str] | None) -> None:
    """The job replaces what has the summary's name."""
    taken = [("the source", source)] if isinstance(source, (str, os.PathLike)) else []
    if sink is not None:
        taken += [("the sink", sink), ("where the sink is written", os.fspath(sink) + ".writing")]
    for what, path in taken:
        if _are_one(summary, path):
            raise InvalidValueError("output_taken", f"summary is {summary}, {what}; expected another file")


def _are_one(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    return os.path.realpath(one) == os.path.realpath(other) or (os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other))


def check_sink(source: Any, sink: str) -> None:
    """What is found out before anything runs. The sink comes into being by a rename, which would replace the source, and what lies beside it
    meanwhile goes."""
    kind_of(sink)
    for path in (sink, *(sink + end for end in (".requests.jsonl", ".results.jsonl"))):
        if isinstance(source, (str, os.PathLike)) and _are_one(source, path):
            raise InvalidValueError("output_taken", f"{path} is the source too; expected another file for the result")
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


def is_json(field: Any) -> bool:
    """A column of a JSONL file whose values Arrow's types cannot hold as they are: their JSON."""
    return bool(field.metadata) and _JSON in field.metadata


def open_table(source: Any, text: list[str], nested: bool = False) -> tuple[Any, Callable[[], Iterable[Any]]]:
    """The schema, and what reads all record batches at each call. ``text`` names columns that are text, also where a CSV file has
    numbers there; with ``nested`` their values are nested, and stay in a JSONL file what they are in each row."""
    import pyarrow as pa

    if isinstance(source, (str, os.PathLike)):
        return _open_file(os.fspath(source), kind_of(os.fspath(source)), text, nested)
    if is_pandas(source) and hasattr(source, "columns"):
        source = pa.Table.from_pandas(source, preserve_index=False)
    if isinstance(source, pa.Table):
        batches = source.to_batches(max_chunksize=_ROWS)
        return source.schema, lambda: batches
    if isinstance(source, pa.RecordBatch):
        return source.schema, lambda: [source]
    kept = list(source) if isinstance(source, Iterable) else []  # it may be read once
    if not kept or not all(isinstance(each, pa.RecordBatch) for each in kept):
        raise TypeError(f"source is {type(source).__name__}; expected a file, a table of pandas or pyarrow, or record batches")
    first = kept[0].schema
    if any(each.schema.names != first.names or each.schema.types != first.types for each in kept):
        raise InvalidValueError("invalid_value", "source: its record batches have several schemas; expected one")
    fields = [field.with_nullable(any(each.schema.field(i).nullable for each in kept)) for i, field in enumerate(first)]
    return pa.schema(fields, first.metadata), lambda: kept


def _open_file(path: str, kind: str, text: list[str], nested: bool) -> tuple[Any, Callable[[], Iterable[Any]]]:
    """Datasets are for what nothing else reads: their import brings pandas' with it, a third of a second."""
    import pyarrow as pa

    if kind == ".parquet" and not os.path.isdir(path):
        import pyarrow.parquet as parquet

        # Read ahead, the whole file would stay in memory.
        file = parquet.ParquetFile(path, pre_buffer=False)
        return file.schema_arrow, lambda: file.iter_batches(batch_size=_ROWS)
    if kind == ".csv" and not os.path.isdir(path):
        types = _types_of_csv(path, dict.fromkeys(text, pa.string()))
        return _open_csv(path, types).schema, lambda: _cut(_open_csv(path, types))
    if kind == ".jsonl" and not os.path.isdir(path):
        schema = _schema_of_lines(path, set(text) if nested else set())
        return schema, lambda: _rows_of_lines(path, schema)
    import pyarrow.dataset as dataset

    data = dataset.dataset(path, format="json" if kind == ".jsonl" else kind[1:])
    return data.schema, lambda: data.to_batches(batch_size=_ROWS)


def _open_csv(path: str, types: dict[str, Any]) -> Any:
    import pyarrow.csv as csv

    # A prompt has lines, and a block of the file may end within it.
    lines, columns = csv.ParseOptions(newlines_in_values=True), csv.ConvertOptions(column_types=types)
    return csv.open_csv(path, parse_options=lines, convert_options=columns)


def _types_of_csv(path: str, types: dict[str, Any]) -> dict[str, Any]:
    """Types that all rows have, beside those given. Arrow takes a column's type from the rows that it reads first, and stops at a row that
    has another."""
    import pyarrow as pa

    types = dict(types)
    while True:
        reader = _open_csv(path, types)
        try:
            for _ in reader:
                pass
        except pa.ArrowInvalid as error:
            found = re.search(r"In CSV column #(\d+): ", str(error))
            if found is None:
                raise
            field = reader.schema.field(int(found[1]))
            if field.type == pa.string():
                raise
            # Float64 would change large integers.
            types[field.name] = pa.int64() if field.type == pa.null() else pa.string()
        else:
            return types


def _blocks(path: str) -> Iterator[bytes]:
    """A file's lines, many at a time."""
    with open(path, "rb") as file:
        if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            file.seek(0)
        while block := file.read(_BLOCK) + file.readline():
            if not block.isspace():
                yield block


def _table_of_lines(block: bytes, **how: Any) -> Any:
    import pyarrow as pa
    import pyarrow.json as reader

    options = reader.ReadOptions(block_size=len(block) + 1)
    return reader.read_json(pa.BufferReader(block), read_options=options, parse_options=reader.ParseOptions(**how))


def _schema_of_lines(path: str, as_json: set[str]) -> Any:
    """That of all lines: a member that only late ones have is a column too. Columns of ``as_json``, and those whose values are of several
    types, are text: the values' JSON."""
    import pyarrow as pa

    found: dict[str, Any] = {}
    for block in _blocks(path):
        for name, kind in _types_of(block).items():
            if name in as_json or kind is None:
                found[name] = None
                continue
            try:
                both = pa.schema([pa.field(name, found.get(name, kind))]), pa.schema([pa.field(name, kind)])
                found[name] = None if found.get(name, kind) is None else pa.unify_schemas(both, promote_options="permissive").field(name).type
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                found[name] = None
    fields = [pa.field(name, pa.string(), metadata={_JSON: b""}) if kind is None else pa.field(name, kind) for name, kind in found.items()]
    return pa.schema(fields)


def _types_of(block: bytes) -> dict[str, Any]:
    """A type by column; None: there is no one type."""
    import pyarrow as pa

    try:
        return {field.name: _without_times(field.type) for field in _table_of_lines(block).schema}
    except pa.ArrowInvalid:
        columns: dict[str, list[Any]] = {}
        for row in _rows_of(block):
            for name, value in row.items():
                columns.setdefault(name, []).append(value)
        return {name: _type_of(values) for name, values in columns.items()}


def _type_of(values: list[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):  # the last two of what JSON has and Arrow has not
        return None


def _rows_of(block: bytes) -> Iterator[dict[str, Any]]:
    """Errors are Arrow's, as of lines that Arrow reads."""
    import pyarrow as pa

    for line in block.splitlines():
        if not line.isspace() and line:
            try:
                row = json.loads(line)
            except ValueError as error:
                raise pa.ArrowInvalid(f"a line is no JSON: {error}") from error
            if not isinstance(row, dict):
                raise pa.ArrowInvalid(f"a line is {type(row).__name__}; expected an object")
            yield row


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
    import pyarrow as pa

    texts = [field.name for field in schema if is_json(field)]
    if not texts:
        for block in _blocks(path):
            yield from _table_of_lines(block, explicit_schema=schema, unexpected_field_behavior="error").to_batches(max_chunksize=_ROWS)
        return
    typed = pa.schema([field for field in schema if not is_json(field)])
    for block in _blocks(path):
        rows = list(_rows_of(block))
        columns = {name: pa.array([json.dumps(row[name]) if name in row else None for row in rows], pa.string()) for name in texts}
        if len(typed) > 0:
            try:
                read = _table_of_lines(block, explicit_schema=typed, unexpected_field_behavior="ignore")
                columns.update({name: read.column(name) for name in typed.names})
            except pa.ArrowInvalid:  # Arrow reads no line with half a character
                columns.update({field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in typed})
        yield from pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema).to_batches(max_chunksize=_ROWS)


def _cut(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for begin in range(0, batch.num_rows, _ROWS):
            yield batch.slice(begin, _ROWS)


class Writer(Protocol):
    def write_batch(self, batch: Any) -> None: ...
    def close(self) -> None: ...


def writer_of(path: str, kind: str, schema: Any) -> Writer:
    if kind == ".jsonl":
        return _JsonLines(path, schema)
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
    def __init__(self, path: str, schema: Any) -> None:
        self._file = open(path, "w", encoding="utf-8")
        self._json = [field.name for field in schema if is_json(field)]

    def write_batch(self, batch: Any) -> None:
        for row in batch.to_pylist():
            for name in self._json:
                row[name] = None if row[name] is None else json.loads(row[name])
            self._file.write(_json(row) + "\n")

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
