"""``run_table``: rows of a table become requests, and results become columns. A job with files runs in between.

pyarrow (the extra ``[arrow]``) reads and writes; it is imported when it is needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import _forebay
from .batch import run_batch
from .errors import InvalidValueError
from .flags import path_of
from .inputs import Lines, check_params
from .params import SamplingParams
from .table_columns import NAMES, VECTOR_NAMES, added_arrays, added_fields, as_read, chats, filled, json_texts, names_of, plain_values, prompts
from .table_files import Writer, beside_pandas, check_columns, check_sink, check_summary, is_json, is_pandas, kind_of, open_table, writer_of


def run_table(
    source: Any,
    sink: str | os.PathLike[str] | None,
    model: str | os.PathLike[str],
    *,
    prompt: str | None = None,
    messages: str | None = None,
    embed: str | None = None,
    params: SamplingParams | None = None,
    id: str | None = None,
    **arguments: Any,
) -> Any:
    """Writes each row with its answer, in the order of the source.

    ``source`` is a file (.parquet, .csv, .jsonl), a pandas or pyarrow table, or an iterable of record batches. ``prompt`` or ``messages``
    names the column of requests; ``prompt`` may also be a template, ``"Write a review of a {product}"``; ``embed`` names a column whose
    texts become vectors. If ``sink`` is a file of these kinds, the call returns the job's summary. If it is None, the call returns a
    table in memory (of pandas, if the source is). Requests and results lie beside the sink (``SINK.requests.jsonl``,
    ``SINK.results.jsonl``) until it is complete, and the same call resumes after a kill. Other arguments are those of ``run_batch``.
    """
    columns = [name for name in (prompt, messages, embed) if name is not None]
    if len(columns) != 1:
        raise TypeError("run_table() takes one of prompt=, messages= and embed=, the name of a column")
    if arguments.get("shard") is not None:
        raise TypeError("run_table() has no shard=, since a table is whole; cut the source, and join the results")
    if embed is not None and params is not None:
        raise TypeError("run_table() has no params= beside embed=, since nothing is generated")
    asks = _Asks(columns[0], messages is not None, embed is not None, params, id)
    if arguments.get("summary") is not None:
        check_summary(path_of("summary", arguments["summary"]), source, sink)
    if sink is not None:
        check_sink(source, os.fspath(sink))
        return _run(source, os.fspath(sink), os.fspath(sink), asks, model, arguments)[1]
    import tempfile

    with tempfile.TemporaryDirectory(prefix="forebay-table-") as folder:
        table = _run(source, None, os.path.join(folder, "table"), asks, model, arguments)[0]
    return beside_pandas(source, table.select(asks.names)) if is_pandas(source) else table


def _run(source: Any, sink: str | None, beside: str, asks: _Asks, model: Any, arguments: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The table (if there is no sink), and the job's summary."""
    import pyarrow as pa

    summary: dict[str, Any] = {"end": "complete", "num_lines": 0, "num_requests": 0}  # of a table without rows
    try:
        job = _Job(source, sink, beside, asks)
        try:
            summary = run_batch(job.requests, job.results, model, _beside=job, **arguments)
        except _NoRows:
            open(job.results, "wb").close()
        made = job.end()
    except pa.ArrowException as error:  # which says what is wrong, but not in which file
        raise InvalidValueError("invalid_value", f"{source if isinstance(source, (str, os.PathLike)) else 'source'}: {error}") from error
    os.remove(job.requests)
    os.remove(job.results)
    return made, summary


class _NoRows(Exception):
    pass


class _Job:
    """What goes on beside the job with files: requests are written while the model is opened, rows are joined with the answers that are
    there while the others are computed."""

    def __init__(self, source: Any, sink: str | None, beside: str, asks: _Asks) -> None:
        import pyarrow as pa

        self._pa, self._sink, self._asks = pa, sink, asks
        self.requests, self.results = beside + ".requests.jsonl", beside + ".results.jsonl"
        schema, self._read = open_table(source, asks.columns, asks.chat)
        asks.check(schema)
        if sink is not None:
            check_columns(schema, sink)
        self._added = added_fields(pa, asks.in_lists, asks.vectors)
        self._schema = pa.schema([*schema, *self._added])
        self._rows = 0
        self._answers: _forebay.Answers | None = None
        self._again: Iterator[Any] = iter(())
        self._next: Any = None  # of the source's batches, the first without answers
        self._joined: list[Any] = []  # where there is no sink
        self._writer: Writer | None = None

    def before(self) -> None:
        self._rows = self._asks.write(self._read, self.requests)
        if self._rows == 0:
            raise _NoRows

    def meanwhile(self) -> None:
        self._join(False)

    def end(self) -> Any:
        self._join(True)
        if self._writer is None:
            return self._pa.Table.from_batches(self._joined, schema=self._schema)
        self._writer.close()
        os.replace(f"{self._sink}.writing", str(self._sink))
        return None

    def _join(self, all_are_there: bool) -> None:
        if self._answers is None:
            self._answers = _forebay.Answers(self.results, self._rows, self._asks.in_lists, self._asks.vectors)
            self._again = iter(self._read())
            self._next = next(self._again, None)
            if self._sink is not None:
                self._writer = writer_of(self._sink + ".writing", kind_of(self._sink), self._schema)
        while self._next is not None and (all_are_there or self._answers.has(self._next.num_rows)):
            columns = self._answers.read(self._next.num_rows)
            added = added_arrays(self._pa, self._added, self._next.num_rows, columns, self._asks.in_lists)
            batch = self._pa.RecordBatch.from_arrays([*self._next.columns, *added], schema=self._schema)
            self._joined.append(batch) if self._writer is None else self._writer.write_batch(batch)
            self._next = next(self._again, None)


def _column(batch: Any, name: str) -> Any:
    return batch.column(batch.schema.names.index(name))


class _Asks:
    """How rows become requests."""

    def __init__(self, column: str, chat: bool, vectors: bool, params: SamplingParams | None, key: str | None) -> None:
        check_params(params)
        if params is not None and (params.logprobs is not None or params.prompt_logprobs is not None):
            raise InvalidValueError("unsupported_parameter", "a table has no columns for log probabilities; LLM.generate and run_batch give them")
        if params is not None and params.max_tokens is None and not chat:
            # A line of completions without a bound has the API's, 16.
            raise InvalidValueError("invalid_value", "max_tokens is None; expected a number beside prompt=: answers to the context's end need messages=")
        self.chat, self.vectors, self._params, self._key = chat, vectors, params, key
        self.names = VECTOR_NAMES if vectors else NAMES
        # A text with columns in it, and these; without any, the name of the column that asks.
        self._template = None if chat or vectors or not names_of(column) else column
        self.columns = names_of(column) if self._template is not None else [column]
        # A row has the list of its choices where it has more than one.
        self.in_lists = params is not None and params.n > 1

    def check(self, schema: Any) -> None:
        for name in (*self.columns, self._key):
            if name is not None and schema.names.count(name) != 1:
                has = f"{schema.names.count(name)} columns" if name in schema.names else "no column"
                raise InvalidValueError("invalid_value", f"the table has {has} {name!r}; it has {', '.join(schema.names) or 'none'}")
        if self._template is None:
            self._check_type(schema, self.columns[0])
        taken = [name for name in self.names if name in schema.names]
        if taken:
            raise InvalidValueError("invalid_value", f"the table has columns that the result adds: {', '.join(taken)}; rename them")

    def _check_type(self, schema: Any, column: str) -> None:
        import pyarrow.types as types

        found = schema.field(column).type
        value = as_read(found.value_type if types.is_dictionary(found) else found)
        is_text = types.is_string(value) or types.is_large_string(value)
        is_list = types.is_list(value) or types.is_large_list(value)
        # A list of texts would be several prompts, of which a row has one answer.
        numbers = (types.is_integer, types.is_floating, types.is_null)
        is_list = is_list and (self.chat or any(is_number(value.value_type) for is_number in numbers))
        if not (is_text or is_list or types.is_null(value)):
            wanted = "messages, as lists of structs or as JSON" if self.chat else "strings or token ids"
            raise InvalidValueError("invalid_value", f"column {column!r} is of type {found}; expected {wanted}")

    def write(self, read: Callable[[], Iterable[Any]], path: str) -> int:
        """The job's input; written anew each time, since the results file knows by hashes whether it is the same."""
        around = ('{"input": ', "}") if self.vectors else Lines({}, self.chat, {"return_token_ids": True}, None).around(self._params)
        begin, end = (text.encode() for text in around)
        between = end + b"\n" + begin
        ids = _forebay.RowIds()
        count = 0
        with open(path + ".writing", "wb") as file:
            for batch in read():
                values = self._values(batch, count)
                if self._key is not None:
                    names = self._names(batch)
                    if None in names:
                        raise InvalidValueError("invalid_value", f"row {count + names.index(None)}: {self._key} is None, null")
                    keys = [json.dumps(str(name)) for name in names]
                    ids.add(keys)
                    file.writelines(b'{"custom_id": %b, %b%b%b\n' % (key.encode(), begin[1:], value, end) for key, value in zip(keys, values))
                elif values:
                    file.writelines((begin, between.join(values), end, b"\n"))
                count += len(values)
        repeated = set(ids.repeated())
        if repeated:
            self._refuse_twice(repeated, read())
        os.replace(path + ".writing", path)
        return count

    def _values(self, batch: Any, first_row: int) -> list[bytes]:
        """Each row's prompt as JSON."""
        if self._template is not None:
            return filled(self._template, [self._plain(batch, name) for name in self.columns], self.columns, first_row)
        column = _column(batch, self.columns[0])
        if self.chat:
            return chats(column)
        return json_texts(column) if is_json(batch.schema.field(self.columns[0])) else prompts(column)

    def _names(self, batch: Any) -> list[Any]:
        return self._plain(batch, str(self._key))

    def _plain(self, batch: Any, name: str) -> list[Any]:
        return plain_values(_column(batch, name), is_json(batch.schema.field(name)))

    def _refuse_twice(self, hashes: set[int], batches: Iterable[Any]) -> None:
        """Looks for an id that two rows have among those of these hashes."""
        seen: set[str] = set()
        for row, name in enumerate(name for batch in batches for name in self._names(batch)):
            key = json.dumps(str(name))
            if _forebay.hash_key(key) in hashes:
                if key in seen:
                    raise InvalidValueError("invalid_value", f"row {row}: {self._key} is {name!r}, twice")
                seen.add(key)
