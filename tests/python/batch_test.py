"""run_batch in process, and tables."""
import array
import csv
import datetime
import json
import math
import os
import subprocess
import sys
import textwrap

import pytest

import forebay
from conftest import FLAGS, LLAMA, RANKS, interrupted, killed, prompts
from forebay import SamplingParams
from forebay.table_files import open_table
from scale_jobs import answers, lines

pa = pytest.importorskip("pyarrow")


def test_run_batch_is_forebay_run(run, tmp_path):
    job = run(lines(60))
    output = tmp_path / "mine.jsonl"
    summary = forebay.run_batch(job.input, output, LLAMA, preserve_order=True, use_tqdm=False, **FLAGS)
    assert answers(output) == answers(job.output)
    assert summary["end"] == "complete"
    with pytest.raises(forebay.Error) as caught:
        forebay.run_batch(job.input, output, LLAMA, seed=5, use_tqdm=False, **FLAGS)
    assert caught.value.code == "results_of_another_job"
    with pytest.raises(forebay.Error) as caught:
        forebay.run_batch(tmp_path / "none", output, LLAMA, use_tqdm=False, **FLAGS)
    assert caught.value.code == "input_unreadable"
    kept = {"kv_file": str(tmp_path / "kv"), "kv_file_size": "64MiB", "kv_file_keep": True}
    with pytest.raises(forebay.Error) as caught:
        forebay.run_batch(job.input, tmp_path / "kv.index", LLAMA, use_tqdm=False, **kept, **FLAGS)
    assert caught.value.code == "output_taken"


@pytest.mark.parametrize("arguments, error, text", [
    ({"grace": "x"}, ValueError, "grace is 'x'; expected a number of at least 0"), ({"grace": math.nan}, ValueError, "grace is nan"),
    ({"shard": 1}, TypeError, "shard is int"), ({"shard": "0/2"}, ValueError, "--shard is"), ({"strict": 1}, TypeError, r"strict=1\): expected True or False"),
    ({"summary": b"x"}, TypeError, "summary is bytes"), ({"summary": "x\0y"}, ValueError, "without NUL"),
    ({"threads": [1]}, TypeError, r"threads=\[1\]\): expected one value"),
    ({"chat_template": "\ud800"}, ValueError, r"chat_template is '\\ud800'; expected text that is UTF-8"),
])
def test_arguments_that_a_batch_cannot_have(tmp_path, arguments, error, text):
    source = tmp_path / "in.jsonl"
    source.write_text('{"prompt": "a"}\n')
    with pytest.raises(error, match=text):
        forebay.run_batch(source, tmp_path / "out.jsonl", LLAMA, use_tqdm=False, **{**FLAGS, **arguments})
    assert os.listdir(tmp_path) == ["in.jsonl"]


def test_bad_lines_of_a_batch(tmp_path):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"

    def write(temperature):
        source.write_text(json.dumps({"prompt": "a", "max_tokens": 2}) + "\n" + json.dumps({"prompt": "b", "max_tokens": 2, "temperature": temperature}) + "\n")

    def batch(**kwargs):
        return forebay.run_batch(source, output, LLAMA, use_tqdm=False, summary=tmp_path / "told.json", **kwargs, **FLAGS)

    write(9)
    with pytest.raises(forebay.Error, match="1 of 2 lines are bad") as caught:
        batch(strict=True)
    assert caught.value.code == "input_has_bad_lines" and isinstance(caught.value, RuntimeError) and not output.exists()
    summary = batch()
    assert (summary["num_requests"], summary["num_failed"], summary["failures"][0]["first_line"]) == (2, 1, 2)
    assert json.loads((tmp_path / "told.json").read_text()) == summary
    # The same call has nothing to do; the line that was mended is tried again where that is wanted.
    assert batch()["num_requests"] == 0
    write(1)
    assert batch(retry_failed=True)["num_failed"] == 0
    assert b"error\":null" in answers(output)[2]


@pytest.mark.parametrize("layout", ["auto", "dp=2,weights=striped,pool=auto"])
def test_a_layout_is_chosen_by_the_job(run, tmp_path, layout):
    job = run(lines(60), flags=["--max-model-len", "512"])
    output = tmp_path / "mine.jsonl"
    summary = forebay.run_batch(job.input, output, LLAMA, layout=layout, use_tqdm=False, **RANKS)
    assert answers(output) == answers(job.output)
    assert summary["mode_counters"]["expected_ms"] > 0
    # A table's requests are there only when the model is being opened.
    told = tmp_path / "summary.json"
    out = table(pa.table(TABLE), layout=layout, summary=told, **RANKS)
    assert None not in out["generated_text"].to_pylist()
    assert json.loads(told.read_text())["mode_counters"]["expected_ms"] > 0
    with pytest.raises(forebay.Error) as caught:
        forebay.run_batch(tmp_path / "none", tmp_path / "other.jsonl", LLAMA, layout=layout, use_tqdm=False, **RANKS)
    assert caught.value.code == "input_unreadable"
    with pytest.raises(ValueError, match="no column"):
        table(pa.table(TABLE), prompt="missing", layout=layout, **RANKS)
    assert table(pa.table(TABLE).slice(0, 0), layout=layout, **RANKS).num_rows == 0


def test_control_c_drains_and_the_same_call_goes_on(run, tmp_path):
    job = run(lines(1000, tokens=80))
    output = str(tmp_path / "mine.jsonl")
    call = f"forebay.run_batch({job.input!r}, {output!r}, {LLAMA!r}, use_tqdm=False, **{FLAGS!r})"
    interrupted("import forebay", call, output)
    assert 0 < len(answers(output)) < 1000
    forebay.run_batch(job.input, output, LLAMA, use_tqdm=False, **FLAGS)
    assert answers(output) == answers(job.output)


LISTS = ("prompt_token_ids", "generated_tokens", "generated_text", "num_generated_tokens", "finish_reason")
TABLE = {"id": [f"row {i}" for i in range(50)], "question": prompts(50), "n": list(range(50))}
PARAMS = SamplingParams(max_tokens=6, temperature=1)


@pytest.fixture(scope="module")
def expected():
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        return [output.outputs[0].text for output in llm.generate(TABLE["question"], PARAMS, use_tqdm=False)]


def table(source, sink=None, **kwargs):
    return forebay.run_table(source, sink, LLAMA, **{"prompt": "question", "params": PARAMS, "use_tqdm": False, **FLAGS, **kwargs})


@pytest.mark.parametrize("kind", ["table", "batches", "large", "dictionary", "pandas"])
def test_tables_in_memory(kind, expected):
    made = pa.table(TABLE)
    if kind == "large":
        made = made.set_column(1, "question", made["question"].cast(pa.large_string()))
    elif kind == "dictionary":
        made = made.set_column(1, "question", made["question"].dictionary_encode())
    source = {"batches": lambda: iter(made.to_batches(max_chunksize=7)), "pandas": made.to_pandas}.get(kind, lambda: made)()
    out = table(source, id="id")
    if kind == "pandas":
        assert type(out).__module__.startswith("pandas")
        out = pa.Table.from_pandas(out, preserve_index=False)
    assert out["generated_text"].to_pylist() == expected
    assert out["n"].to_pylist() == TABLE["n"]
    assert out["num_generated_tokens"].to_pylist() == [len(ids) for ids in out["generated_tokens"].to_pylist()]
    assert set(out["finish_reason"].to_pylist()) <= {"stop", "length"}


def test_a_prompt_with_columns_in_it(tmp_path):
    made = pa.table({"product": ["lamp", "chair"], "price": ["007", "12"], "q": ["A {lamp} for 007", "A {chair} for 12"]})
    wanted = table(made, prompt="q")["generated_text"].to_pylist()
    import pyarrow.csv

    for source in ("products.csv", "products.jsonl"):
        path, sink = str(tmp_path / source), str(tmp_path / (source + ".out.jsonl"))
        if source.endswith(".csv"):
            pyarrow.csv.write_csv(made, path)
        else:
            with open(path, "w") as file:
                file.writelines(json.dumps(row) + "\n" for row in made.to_pylist())
        summary = table(path, sink, prompt="A {{{product}}} for {price}")
        assert summary["end"] == "complete" and summary["num_lines"] == 2
        with open(sink) as file:
            assert [json.loads(line)["generated_text"] for line in file] == wanted
    with pytest.raises(forebay.InvalidValueError, match="no column 'name'"):
        table(made, prompt="A {name}")
    with pytest.raises(forebay.InvalidValueError, match="columns alone in braces"):
        table(made, prompt="A {price:>5}")
    with pytest.raises(forebay.InvalidValueError, match="row 1: product is None"):
        table(pa.table({"product": ["lamp", None]}), prompt="A {product}")


@pytest.mark.parametrize("source, sink", [("parquet", "parquet"), ("csv", "jsonl"), ("jsonl", "csv")])
def test_files(tmp_path, source, sink, expected):
    import pyarrow.csv
    import pyarrow.parquet

    path, out = str(tmp_path / f"in.{source}"), str(tmp_path / f"out.{sink}")
    made = pa.table(TABLE)
    if source == "parquet":
        pyarrow.parquet.write_table(made, path)
    elif source == "csv":
        pyarrow.csv.write_csv(made, path)
    else:
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in made.to_pylist())
    assert table(path, out)["num_requests"] == 50
    if sink == "parquet":
        texts = pyarrow.parquet.read_table(out)["generated_text"].to_pylist()
    elif sink == "jsonl":
        texts = [json.loads(line)["generated_text"] for line in open(out, encoding="utf-8")]
    else:
        texts = pyarrow.csv.read_csv(out, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True))["generated_text"].to_pylist()
    assert texts == expected
    assert sorted(os.listdir(tmp_path)) == sorted([f"in.{source}", f"out.{sink}"])


def test_a_frame_keeps_its_index_and_types():
    pandas = pytest.importorskip("pandas")

    source = pandas.DataFrame({"question": prompts(3), "n": pandas.array([1, None, 3], dtype="Int64")}, index=[7, 7, 9])
    out = table(source)
    assert list(out.index) == [7, 7, 9] and out["n"].dtype == source["n"].dtype
    pandas.testing.assert_frame_equal(out[list(source)], source)
    assert out["generated_text"].tolist() == table(pa.table({"question": prompts(3)}))["generated_text"].to_pylist()


def test_prompts_of_a_csv_have_lines(tmp_path):
    # More than the block of a megabyte in which it is read.
    rows = [f"{'line' * 25}\n" * 10 + str(i) for i in range(1500)]
    with open(tmp_path / "in.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["question"], *([row] for row in rows)])
    out = table(tmp_path / "in.csv", params=SamplingParams(max_tokens=1))
    assert out["question"].to_pylist() == rows


# Prints what a template sees of a call's arguments.
ARGUMENTS = (
    "{% for m in messages %}{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments | tojson }}{% else %}{{ m.content }}{% endif %};{% endfor %}"
)


def called(**arguments):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "text"])
def test_a_row_has_no_members_of_others(tmp_path, kind):
    talks = [called(city="Bonn"), called(x={"deep": {"y": 2}}), called(x={"z": 3})]
    source = tmp_path / ("in.parquet" if kind == "parquet" else "in.jsonl")
    if kind == "parquet":
        import pyarrow.parquet as parquet

        parquet.write_table(pa.table({"m": talks}), source)
    else:
        source.write_text("".join(json.dumps({"m": json.dumps(talk) if kind == "text" else talk}) + "\n" for talk in talks))
    table(source, tmp_path / "out.jsonl", prompt=None, messages="m", chat_template=ARGUMENTS)
    with open(tmp_path / "out.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        seen = [llm.get_tokenizer().decode(row["prompt_token_ids"]) for row in rows]
    assert seen == ['a;{"city": "Bonn"};', 'a;{"x": {"deep": {"y": 2}}};', 'a;{"x": {"z": 3}};']
    if kind == "jsonl":
        assert [row["m"] for row in rows] == talks  # and the sink has them as they were


def test_columns_of_several_types_pass_as_they_are(tmp_path):
    given = [
        {"question": "x", "meta": {"a": 1}, "n": 1}, {"question": "y", "meta": {"a": "s"}, "n": "one"},
        {"question": 7, "meta": None}, {"question": "z", "meta": [], "n": None},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    table(tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    with open(tmp_path / "out.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert [(row["question"], row["meta"], row["n"]) for row in rows] == [(row["question"], row["meta"], row.get("n")) for row in given]
    # A prompt that is no text costs its row alone.
    assert [row["__inference_error__"] is None for row in rows] == [True, True, False, True]
    assert "prompt" in rows[2]["__inference_error__"]
    table(tmp_path / "in.jsonl", tmp_path / "out.csv")
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        assert [row["meta"] for row in csv.DictReader(file)] == ['{"a": 1}', '{"a": "s"}', "null", "[]"]


def test_contents_may_be_texts_and_parts(tmp_path):
    talks = [[{"role": "user", "content": "hi"}], [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"m": talk}) + "\n" for talk in talks))
    one, other = table(tmp_path / "in.jsonl", prompt=None, messages="m").to_pylist()
    assert one["prompt_token_ids"] == other["prompt_token_ids"]


def test_a_jsonl_is_read_as_it_is_written(tmp_path):
    # More than is read at once. Who comes last has a member, a type and a length that nobody had before.
    rows = [{"question": "2024-01-02 03:04:05", "day": "2024-01-02", "part": {"at": ["2024-01-02 03:04:05"]}, "n": 1, "pad": "x" * 90}] * 40000
    rows.append({"question": "the river", "n": 1.5, "late": [5], "pad": "x" * (5 << 20)})
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    schema, batches = open_table(tmp_path / "in.jsonl", "question")
    read = pa.Table.from_batches(batches(), schema=schema)
    assert read.num_rows == len(rows) and max(len(batch) for batch in read.to_batches()) <= 4096
    found = [{name: value for name, value in row.items() if value is not None} for row in (*read.slice(0, 2).to_pylist(), *read.slice(40000).to_pylist())]
    assert found == [rows[0], rows[0], rows[-1]]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    table(tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    with open(tmp_path / "out.jsonl", encoding="utf-8") as file:
        assert [{name: row[name] for name in rows[0]} for row in map(json.loads, file)] == rows[:2]
    (tmp_path / "in.jsonl").write_text("")
    with pytest.raises(ValueError, match="no column 'question'; it has none"):
        table(tmp_path / "in.jsonl")


def test_a_byte_order_mark_and_half_a_character(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(b'\xef\xbb\xbf{"question": "x", "n": 1}\r\n{"question": "\\ud800", "n": 2.5, "more": ["y"]}\r\n')
    table(tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    with open(tmp_path / "out.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert [(row["question"], row["n"], row["more"]) for row in rows] == [("x", 1, None), ("\ud800", 2.5, ["y"])]
    assert rows[0]["__inference_error__"] is None and "half a character" in rows[1]["__inference_error__"]


def test_columns_of_several_types_in_prompts_and_ids(tmp_path):
    rows = [{"q": "the river", "id": "a"}, {"q": 7, "id": 7}, {"q": ["x"], "id": "\ud800"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = table(tmp_path / "in.jsonl", prompt="{q}!", id="id")
    wanted = table(pa.table({"question": ["the river!", "7!", '["x"]!']}))
    assert out["prompt_token_ids"].to_pylist()[:2] == wanted["prompt_token_ids"].to_pylist()[:2]
    # What is no id costs its row alone.
    assert [error is None for error in out["__inference_error__"].to_pylist()] == [True, True, False]
    for row, why in (({"q": None, "id": 9}, "row 3: q is None, null"), ({"q": "y", "id": "a"}, "row 3: id is 'a', twice")):
        (tmp_path / "in.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (*rows, row)))
        with pytest.raises(ValueError, match=why):
            table(tmp_path / "in.jsonl", prompt="{q}!", id="id")


def test_columns_of_a_csv_whose_late_rows_are_otherwise(tmp_path):
    # Arrow takes types from its first block, of a MiB.
    rows = [f"{i},,,,{2**53 + 1},{'x' * 900}\n" for i in range(1500)]
    (tmp_path / "in.csv").write_text("n,late,flag,count,large,question\n" + "".join(rows) + "1.5,2,true,3,,y\nz,w,,,1.5,y\n")
    schema, batches = open_table(tmp_path / "in.csv", ["question"])
    read = pa.Table.from_batches(batches(), schema=schema)
    assert read.num_rows == 1502 and [str(kind) for kind in read.schema.types] == ["string"] * 3 + ["int64"] + ["string"] * 2
    assert read["n"].to_pylist()[-2:] == ["1.5", "z"] and read["late"].to_pylist()[-1] == "w" and read["flag"][1500].as_py() == "true"
    # No float64 would hold it.
    assert read["large"][0].as_py() == str(2**53 + 1) and read["count"].to_pylist()[-2:] == [3, None]


def test_batches_of_several_schemas(tmp_path):
    batches = [pa.record_batch({"question": ["x"]}), pa.record_batch({"question": ["y"], "n": [1]})]
    with pytest.raises(ValueError, match="record batches have several schemas"):
        table(batches)
    for bad in (None, 5, ["x"]):
        with pytest.raises(TypeError, match="source is (NoneType|int|list); expected a file, a table"):
            table(bad)
    # Whether a batch may have nulls is no other schema.
    kinds = [pa.schema([pa.field("question", pa.string(), nullable=nullable)]) for nullable in (False, True)]
    table([pa.record_batch([pa.array([text])], schema=kind) for text, kind in zip(("x", None), kinds)], tmp_path / "out.parquet")


def test_prompts_of_a_csv_are_text(tmp_path):
    (tmp_path / "in.csv").write_text("question,n\n007,1\n12,2\n")
    out = table(tmp_path / "in.csv", params=SamplingParams(max_tokens=1))
    assert out["question"].to_pylist() == ["007", "12"] and out["n"].to_pylist() == [1, 2]


@pytest.mark.parametrize("sink", ["csv", "jsonl"])
def test_values_that_json_does_not_have(tmp_path, sink):
    day = datetime.datetime(2024, 1, 2)
    source = pa.table({"question": ["the river"], "days": [[day]], "part": [{"share": math.nan, "other": [1.5]}], "share": [math.inf]})
    path = tmp_path / f"out.{sink}"
    table(source, path)

    def strict(text):
        return json.loads(text, parse_constant=lambda name: pytest.fail(name))

    with open(path, encoding="utf-8", newline="") as file:
        (row,) = [strict(line) for line in file] if sink == "jsonl" else list(csv.DictReader(file))
    if sink == "csv":
        row = {**row, "days": strict(row["days"]), "part": strict(row["part"])}
    assert row["days"] == [str(day)] and row["part"] == {"share": None, "other": [1.5]}
    assert row["share"] == (None if sink == "jsonl" else "inf")


def test_a_sink_that_would_harm_is_refused_before_anything_runs(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("question\nthe river\n")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "link.csv").symlink_to(source)
    for sink in ("in.csv", "link.csv", "folder.csv"):
        with pytest.raises(ValueError, match=sink) as caught:
            table(source, tmp_path / sink)
        assert caught.value.code == "output_taken"
    beside = tmp_path / "out.csv.requests.jsonl"  # what lies beside a sink meanwhile goes
    beside.write_text('{"question": "the river"}\n')
    with pytest.raises(ValueError, match="requests.jsonl is the source too"):
        table(beside, tmp_path / "out.csv")
    beside.unlink()
    for summary, sink, what in (("out.csv", "out.csv", "the sink"), ("out.csv.writing", "out.csv", "where the sink is written"),
                                ("in.csv", "out.csv", "the source"), ("in.csv", None, "the source"), ("link.csv", None, "the source")):
        with pytest.raises(ValueError, match=f"summary is .*{summary}, {what}; expected another file") as caught:
            table(source, sink and tmp_path / sink, summary=tmp_path / summary)
        assert caught.value.code == "output_taken"
    assert source.read_text() == "question\nthe river\n"
    held = pa.table({"question": ["the river"], "bytes": [b"\xff"]})
    for sink in ("out.csv", "out.jsonl"):
        with pytest.raises(ValueError, match="column 'bytes' is of type binary, which .* cannot hold"):
            table(held, tmp_path / sink)
    table(held, tmp_path / "out.parquet", params=SamplingParams(max_tokens=1))


def test_a_table_imports_no_more_than_it_needs(tmp_path):
    import pyarrow.parquet

    path = str(tmp_path / "in.parquet")
    pyarrow.parquet.write_table(pa.table({"question": [[5, 6], [7]]}), path)
    code = f"""
        import sys, forebay
        forebay.run_table({path!r}, {path + ".out.parquet"!r}, {LLAMA!r}, prompt="question", use_tqdm=False, **{FLAGS!r})
        print([name for name in ("pandas", "pyarrow.dataset", "pyarrow.compute") if name in sys.modules])
        """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, stdout=subprocess.PIPE, text=True).stdout == "[]\n"


FEW_ROWS = 16000  # From here on a table takes no more: at 8,000 the peak is not reached in each run.
ROWS = int(os.environ.get("FOREBAY_ROWS", 48000))  # tools/soak.sh: more


def test_memory_of_a_table_is_bounded(tmp_path):
    import pyarrow.parquet

    def peak(count):
        """MiB of a process that answers so many rows, each of which is 4 kB wide."""
        source = str(tmp_path / f"{count}.parquet")
        schema = pa.schema([("question", pa.list_(pa.int32())), ("text", pa.string())])
        with pyarrow.parquet.ParquetWriter(source, schema, compression="NONE", use_dictionary=False) as writer:
            for begin in range(0, count, 1000):
                rows = range(begin, begin + 1000)
                writer.write_table(pa.table({"question": [[5 + i % 50, 6] for i in rows], "text": [f"{i:4000}" for i in rows]}, schema))
        code = f"""
            import forebay, resource
            forebay.run_table({source!r}, {source + ".out.parquet"!r}, {LLAMA!r}, prompt="question", id="text", use_tqdm=False,
                              params=forebay.SamplingParams(max_tokens=1), memory="64MiB", threads=1)
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
            """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, stdout=subprocess.PIPE, text=True)
        assert pyarrow.parquet.read_metadata(source + ".out.parquet").num_rows == count
        return int(done.stdout)

    grown, held = peak(ROWS) - peak(FEW_ROWS), (ROWS - FEW_ROWS) * 4 / 1024
    print(f"{ROWS} rows: {grown} MiB more than of {FEW_ROWS}, which are {held:.0f} MiB less")
    assert grown < held / 3


def test_messages_nulls_and_no_rows(expected):
    chats = [[{"role": "user", "content": text}] for text in prompts(6)] + [None]
    out = table(pa.table({"chat": chats}), prompt=None, messages="chat")
    assert [error is None for error in out["__inference_error__"].to_pylist()] == [True] * 6 + [False]
    as_text = table(pa.table({"chat": [json.dumps(chat) for chat in chats[:6]]}), prompt=None, messages="chat")
    assert as_text["generated_text"].to_pylist() == out["generated_text"].to_pylist()[:6]
    none = table(pa.table(TABLE).slice(0, 0))
    assert none.num_rows == 0 and "generated_text" in none.column_names


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.uint8()), pa.list_(pa.float64()), pa.list_view(pa.int64())])
def test_columns_of_token_ids(kind):
    ids = [[5, 6, 7], [], None, [8, 9], [250] * 3, [1]]
    # A part of a longer column; the float 5.0 is the token 5.
    column = pa.array([[1, 2], *ids, [3]], kind).slice(1, 6)
    out = table(pa.table({"question": column})).to_pylist()
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        outputs = llm.generate([each or [10**6] for each in ids], PARAMS, on_error="return", use_tqdm=False)
    for row, asked, output in zip(out, ids, outputs, strict=True):
        assert (row["__inference_error__"] is None) == bool(asked) == (output.error is None)
        if asked:
            assert row["prompt_token_ids"] == asked and row["num_input_tokens"] == len(asked)
            assert row["generated_tokens"] == output.outputs[0].token_ids and row["generated_text"] == output.outputs[0].text
            assert row["finish_reason"] == output.outputs[0].finish_reason
        else:
            assert all(row[name] is None for name in ("prompt_token_ids", "num_input_tokens", "generated_tokens", "generated_text", "finish_reason"))


def test_token_ids_with_a_hole():
    out = table(pa.table({"question": pa.array([[5, None], [5]], pa.list_(pa.int32()))}))["__inference_error__"].to_pylist()
    assert out[0] is not None and out[1] is None


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
@pytest.mark.parametrize("has_null", [False, True])
def test_columns_of_text(kind, has_null):
    texts = ['"quoted" \\ and\tcut\r\n', "\0\x7f", "été 漢字 \U0001f980", "", "the river", *([None] if has_null else [])]
    column = pa.array(["before", *texts, "behind"]).cast(kind).slice(1, len(texts))
    out = table(pa.table({"question": column})).to_pylist()
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        outputs = llm.generate([text or "" for text in texts], PARAMS, use_tqdm=False)
    for row, text, output in zip(out, texts, outputs, strict=True):
        assert (row["__inference_error__"] is None) == (text is not None)
        if text is not None:
            assert (row["prompt_token_ids"], row["generated_tokens"]) == (output.prompt_token_ids, output.outputs[0].token_ids)


def test_a_row_has_one_prompt(tmp_path):
    for several in (["the river", "water"], [[5], [6]]):
        with pytest.raises(ValueError, match="of type list<.*expected strings or token ids"):
            table(pa.table({"question": [several]}))
    given = ["the river", ["the river", "water"], [5, 6], [[5], [6]], []]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"question": each}) + "\n" for each in given))
    for asks, added in (({}, "generated_text"), ({"embed": "question", "prompt": None, "params": None, "pooling": "mean"}, "embedding")):
        rows = table(tmp_path / "in.jsonl", **asks).to_pylist()
        assert [row[added] is None for row in rows] == [row["__inference_error__"] is not None for row in rows] == [False, True, False, True, True]
        assert rows[2]["num_input_tokens"] == 2


def test_token_ids_in_lists_of_one_length():
    column = pa.array([[9, 9], [5, 6], None, [7, 8]], pa.list_(pa.int64(), 2)).slice(1)
    assert table(pa.table({"question": column}))["prompt_token_ids"].to_pylist() == [[5, 6], None, [7, 8]]


@pytest.mark.parametrize("column", [pa.nulls(2), pa.array([None, None], pa.string()), pa.nulls(2).dictionary_encode()])
@pytest.mark.parametrize("asks", ["prompt", "messages"])
def test_columns_of_nulls(column, asks):
    out = table(pa.table({"question": column}), **{"prompt": None, asks: "question"})
    assert [error is None for error in out["__inference_error__"].to_pylist()] == [False, False]


def test_which_file_is_no_table_is_said(tmp_path):
    for name, content in (("empty.csv", b""), ("bytes.csv", b"question\n\xff\xfe\n"), ("no.parquet", b"PAR1"), ("no.jsonl", b"{\n")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(forebay.Error, match=name):
            table(tmp_path / name)
    with pytest.raises(forebay.Error, match="2 columns 'question'"):
        table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["question", "question"]))


def test_buffers_that_are_no_column():
    from forebay import _forebay

    def offsets(*numbers):
        return array.array("i", numbers).tobytes()

    assert _forebay.column_json(2, 0, b"\2", offsets(0, 1, 3), 4, 0, b"abc", 0) == [b"null", b'"bc"']
    assert _forebay.column_json(1, 1, b"", offsets(0, 1, 3), 4, 1, b"\0\5\xff\6", 1) == [b"[-1,6]"]
    for rows, begins in ((3, offsets(0, 1, 3)), (2, offsets(0, 4, 3)), (2, offsets(0, 1, 4)), (2, offsets(0, -1, 3)), (1, b"")):
        with pytest.raises(ValueError, match="a column's"):
            _forebay.column_json(rows, 0, b"", begins, 4, 0, b"abc", 0)


def test_more_rows_than_memory_holds_at_once():
    texts = [f"{i}" for i in range(4100)]
    out = table(pa.table({"question": texts}), params=SamplingParams(max_tokens=1))
    assert out["question"].to_pylist() == texts and set(out["num_generated_tokens"].to_pylist()) == {1}


def test_results_that_are_none(tmp_path):
    from forebay import _forebay

    path = tmp_path / "results.jsonl"
    for text, why in (("", "row 0: it is not there"), ("{}\n", "line 1"), ("garbage\n", "line 1"), ('{"id":"batch_req_2_0"}\n', "line 1"),
                      ('{"id":"batch_req_1_0","response":{"body":{"choices":[]}}}\n', "row 0"), ('{"id":"batch_req_1_0","resp\n', "row 0")):
        path.write_text(text)
        with pytest.raises(forebay.Error, match=why) as caught:
            _forebay.Answers(str(path), 1).read(1)
        assert caught.value.code == "json_invalid"
    path.unlink()
    with pytest.raises(forebay.Error) as caught:
        _forebay.Answers(str(path), 1)
    assert caught.value.code == "results_io"


def test_rows_come_in_order_as_soon_as_they_are_there(run, tmp_path):
    from forebay import _forebay

    with open(run([{"prompt": text, "max_tokens": 3, "return_token_ids": True} for text in prompts(9)]).output, "rb") as file:
        results = file.readlines()
    path = tmp_path / "growing.jsonl"
    path.write_bytes(b"".join(results))
    expected = _forebay.Answers(str(path), 9).read(9)
    path.write_bytes(b"")
    growing = _forebay.Answers(str(path), 9)
    with open(path, "ab", buffering=0) as file:
        for text in (results[2], results[0], results[3]):
            file.write(text[:40])
            assert not growing.has(3)
            file.write(text[40:])
        assert not growing.has(2)
        file.write(results[1])
        assert growing.has(4) and not growing.has(5)
        parts = [growing.read(4)]
        file.writelines(reversed(results[4:]))
        assert growing.has(5) and not growing.has(6)
        parts.append(growing.read(5))
    texts = [part[3] for part in parts]
    assert b"".join(values for _, _, values in texts) == expected[3][2]
    assert [values for _, _, values in parts[0][1:2]] == [expected[1][2][:32]]


@pytest.mark.parametrize("kwargs, text", [
    ({"prompt": "missing"}, "no column 'missing'"), ({"prompt": "n"}, "type int64"), ({"id": "same"}, "row 1: same is 'a', twice"),
    ({"id": "late"}, "row 49: late is 7, twice"), ({"id": "hole"}, "row 3: hole is None, null"),
    ({"sink": "out.xlsx"}, "expected .parquet"),
])
def test_bad_tables(kwargs, text):
    source = pa.table({**TABLE, "same": ["a"] * 50, "late": [*range(49), 7], "hole": [*range(3), None, *range(46)]})
    with pytest.raises(ValueError, match=text):
        table(source, **kwargs)
    with pytest.raises(TypeError, match="sampling_params is dict"):
        table(source, params={"max_tokens": 5})
    with pytest.raises(ValueError, match="log probabilities"):
        table(source, params=SamplingParams(logprobs=1))
    with pytest.raises(ValueError, match="max_tokens is None; expected a number beside prompt="):
        table(source, params=SamplingParams(max_tokens=None))
    with pytest.raises(TypeError, match="shard"):
        table(source, shard="1/2")
    with pytest.raises(ValueError, match="finish_reason"):
        table(pa.table({**TABLE, "finish_reason": ["a"] * 50}))


def test_ids_that_share_a_hash_are_no_ids_twice(tmp_path, monkeypatch):
    class Ids:
        """Says of each row that another one may have its id."""

        def __init__(self):
            self.ids = []

        def add(self, ids):
            self.ids += ids

        def repeated(self):
            return [forebay._forebay.hash_key(each) for each in self.ids]

    monkeypatch.setattr(forebay._forebay, "RowIds", Ids)
    path = str(tmp_path / "in.csv")
    for last, good in (("4", True), ("3", False)):
        (tmp_path / "in.csv").write_text("".join(f"{line}\n" for line in ["id,question", "1,a", "2,b", "3,c", f"{last},d"]))
        if good:
            assert table(path, id="id")["id"].to_pylist() == [1, 2, 3, 4]
        else:
            with pytest.raises(ValueError, match="row 3: id is 3, twice"):
                table(path, id="id")


@pytest.mark.parametrize("sink", [None, "parquet", "csv", "jsonl"])
def test_a_row_has_the_list_of_its_choices(tmp_path, sink):
    import pyarrow.parquet

    params = SamplingParams(max_tokens=6, temperature=1, n=3, stop=["e"])
    source = pa.table({"question": [*prompts(20), None]})
    to = sink and str(tmp_path / f"out.{sink}")
    out = table(source, to, params=params)
    if sink == "parquet":
        out = pyarrow.parquet.read_table(to)
    elif sink is not None:
        with open(to, encoding="utf-8", newline="") as file:
            rows = [json.loads(line) for line in file] if sink == "jsonl" else list(csv.DictReader(file))
        if sink == "csv":
            rows = [{name: json.loads(row[name]) if name in LISTS and row[name] else row[name] or None for name in row} for row in rows]
        out = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        outputs = llm.generate(prompts(20), params, use_tqdm=False)
    expected = [[(each.text, each.token_ids, len(each.token_ids), each.finish_reason) for each in output.outputs] for output in outputs]
    assert len({len(each.token_ids) for output in outputs for each in output.outputs}) > 1, "choices of one length"
    names = ("generated_text", "generated_tokens", "num_generated_tokens", "finish_reason")
    found = [list(zip(*(row[name] for name in names))) for row in out.slice(0, 20).to_pylist()]
    assert found == expected
    last = out.slice(20).to_pylist()[0]
    assert [last[name] for name in names] == [None] * 4 and last["__inference_error__"]


def test_a_killed_table_goes_on(tmp_path, expected):
    import pyarrow.parquet

    rows = {"question": prompts(1500)}
    source, sink = str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet")
    pyarrow.parquet.write_table(pa.table(rows), source)
    code = f"""
        import forebay
        forebay.run_table({source!r}, {sink!r}, {LLAMA!r}, prompt="question", use_tqdm=False, summary={sink + ".summary"!r},
                          params=forebay.SamplingParams(max_tokens=60, temperature=1), **{FLAGS!r})
        """
    killed(code, sink + ".results.jsonl")
    assert not os.path.exists(sink)
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
    with open(sink + ".summary", encoding="utf-8") as file:
        summary = json.load(file)
    assert 0 < summary["num_resumed"] < 1500 and summary["num_resumed"] + summary["num_requests"] == 1500
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        outputs = llm.generate(rows["question"], SamplingParams(max_tokens=60, temperature=1), use_tqdm=False)
    assert pyarrow.parquet.read_table(sink)["generated_text"].to_pylist() == [output.outputs[0].text for output in outputs]
