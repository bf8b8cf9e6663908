"""Vectors and scores of texts: the calls, and the file's lines."""
import json
import math
import os
import shutil

import pytest

import forebay
from conftest import FLAGS, LLAMA, TESTS, prompts
from forebay.errors import InvalidValueError


@pytest.fixture(scope="module")
def embedder():
    with forebay.LLM(LLAMA, pooling="mean", **FLAGS) as made:
        yield made


def test_the_call_and_the_file_agree(embedder, run):
    texts = prompts(4)
    job = run([{"input": text} for text in texts] + [{"text_1": texts[0], "text_2": text} for text in texts], flags=("--pooling", "mean"))
    outputs = embedder.embed(texts, use_tqdm=False)
    for vector, body in zip((each.outputs.embedding for each in outputs), job.bodies):
        assert vector == pytest.approx(body["data"][0]["embedding"], rel=1e-7)
        assert math.fsum(x * x for x in vector) == pytest.approx(1, abs=1e-5)
    scores = embedder.score(texts[0], texts, use_tqdm=False)
    assert [each.outputs.score for each in scores] == [body["data"][0]["score"] for body in job.bodies[4:]]
    pairs = embedder.score(texts, texts, use_tqdm=False)
    assert [each.outputs.score for each in pairs] == pytest.approx([1.0] * 4)
    assert [len(each.outputs.embedding) for each in embedder.embed(texts, dimensions=8, use_tqdm=False)] == [8] * 4


def test_what_an_interrupted_call_has_is_what_it_returns(embedder, llm, monkeypatch):
    texts = prompts(3)
    calls = [lambda: embedder.embed(texts, use_tqdm=False), lambda: embedder.score(texts[0], texts, use_tqdm=False),
             lambda: llm.loglikelihood(texts, [["a"]] * 3, use_tqdm=False)]
    returned = [call() for call in calls]

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("forebay.llm.Progress.add", stop)
    for call, expected in zip(calls, returned):
        with pytest.raises(forebay.Interrupted) as caught:
            call()
        # It comes when the first answers were taken.
        found = caught.value.outputs
        assert found and {index: getattr(each, "likelihoods", None) or each.outputs for index, each in found.items()} == \
            {index: getattr(each, "likelihoods", None) or each.outputs for index, each in enumerate(expected) if index in found}
        assert {type(each) for each in found.values()} == {type(expected[0])}


def test_bad_ones(embedder, llm):
    with pytest.raises(InvalidValueError) as caught:
        embedder.embed(["a", ""], use_tqdm=False)
    assert caught.value.code == "prompt_empty" and caught.value.index == 1
    good, bad = embedder.embed(["a", ""], on_error="return", use_tqdm=False)
    assert good.error is None and bad.error.code == "prompt_empty" and not bad.outputs.embedding
    for bad, text in (({"text": "a"}, "prompt 0 has the member text"), (b"a", "prompts are bytes"), (["a", 5], "prompt 1 is int")):
        with pytest.raises(TypeError, match=text):
            embedder.score(bad, ["a", "b"], use_tqdm=False)
    with pytest.raises(InvalidValueError, match="`dimensions` is 'x'; expected an integer"):
        embedder.embed("a", dimensions="x", use_tqdm=False)
    with pytest.raises(InvalidValueError, match="data_1 holds 2 texts and data_2 3"):
        embedder.score(["a", "b"], ["a", "b", "c"])
    with pytest.raises(InvalidValueError) as caught:
        llm.embed("a", use_tqdm=False)
    assert caught.value.code == "pooling_missing"


@pytest.mark.parametrize("labels", [["a", "b", "c"], ["relevant"]])
def test_a_head(labels, tmp_path, run):
    golden, model = os.path.join(TESTS, "golden"), tmp_path / "model"
    model.mkdir()
    with open(os.path.join(golden, "models", "bert-classify", "config.json"), encoding="utf-8") as file:
        config = json.load(file) | {"vocab_size": 1200, "id2label": {str(i): label for i, label in enumerate(labels)}}
    (model / "config.json").write_text(json.dumps(config))
    shutil.copy(os.path.join(golden, "tokenizers", "bert", "tokenizer.json"), model)
    texts = prompts(3)
    asked = [{"custom_id": "c", "url": "/v1/classify", "body": {"input": text}} for text in texts]
    if len(labels) == 1:
        asked += [{"text_1": texts[0], "text_2": text} for text in texts]
    job = run(asked, model=str(model), flags=["--random-weights"])
    with forebay.LLM(model, random_weights=True, **FLAGS) as made:
        found = made.classify(texts, use_tqdm=False)
        assert [each.outputs.probs for each in found] == [body["data"][0]["probs"] for body in job.bodies[:3]]
        assert {each.outputs.num_classes for each in found} == {len(labels)}
        if len(labels) == 1:
            scores = made.score(texts[0], texts, use_tqdm=False)
            assert [each.outputs.score for each in scores] == [body["data"][0]["score"] for body in job.bodies[3:]]
        else:
            with pytest.raises(InvalidValueError) as caught:
                made.score(texts[0], texts, use_tqdm=False)
            assert caught.value.code == "head_has_labels"


def test_a_column_of_vectors(embedder, tmp_path):
    pa = pytest.importorskip("pyarrow")
    texts = prompts(3)
    flags = {"pooling": "mean", "memory": "64MiB", "threads": 1, "use_tqdm": False}
    table = forebay.run_table(pa.table({"text": [*texts[:2], None, texts[2]]}), None, LLAMA, embed="text", **flags)
    assert table.column_names == ["text", "num_input_tokens", "embedding", "__inference_error__"]
    found = table.column("embedding").to_pylist()
    assert found[2] is None and table.column("__inference_error__").to_pylist()[2]
    expected = [each.outputs.embedding for each in embedder.embed(texts, use_tqdm=False)]
    assert [found[0], found[1], found[3]] == expected
    with pytest.raises(TypeError, match="one of prompt="):
        forebay.run_table(pa.table({"text": texts}), None, LLAMA, embed="text", prompt="text")
