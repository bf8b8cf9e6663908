"""Lines of all endpoints in one file: embeddings, scores, rankings, likelihoods and answers; killed and resumed, sharded, alone."""
import base64
import json
import math
import os
import random
import shutil
import struct
import subprocess
import time

import support

KILLS = 10
FLAGS = ["--pooling", "mean", "--quiet"]
WORDS = "water stands ready before every turbine none waits for the river again".split()


def encoder(folder, architecture, **changes):
    """A tiny encoder's folder with a tokenizer, and no weights."""
    os.makedirs(folder)
    with open(os.path.join(support.GOLDEN, "models/bert-classify/config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config |= {"architectures": [architecture], "vocab_size": 1200} | changes
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    shutil.copy(os.path.join(support.GOLDEN, "tokenizers/bert/tokenizer.json"), folder)
    return folder


def lines(rng, count):
    text = lambda: " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 40)))
    kinds = [
        lambda: {"input": text()},
        lambda: {"input": [text(), text()], "encoding_format": "base64", "dimensions": 16},
        lambda: {"text_1": text(), "text_2": [text() for _ in range(3)]},
        lambda: {"query": text(), "documents": [text() for _ in range(4)], "top_n": 2},
        lambda: {"prompt": text(), "continuations": [" water", " the river"]},
        lambda: {"prompt": text(), "max_tokens": 8},
    ]
    return [kinds[i % len(kinds)]() for i in range(count)]


def lines_of_pairs(rng, count):
    text = lambda: " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 20)))
    kinds = [
        lambda: {"text_1": text(), "text_2": [text() for _ in range(3)]},
        lambda: {"query": text(), "documents": [text() for _ in range(4)], "top_n": 2},
        lambda: {"custom_id": "c", "url": "/v1/classify", "body": {"input": [text(), text()]}},
    ]
    return [kinds[i % len(kinds)]() for i in range(count)]


class Vectors(support.TestCase):
    def test_killed_and_resumed(self):
        self.kill(lines(random.Random(5), 120), FLAGS)

    def test_a_head_killed_and_resumed(self):
        model = encoder(os.path.join(self.folder, "model"), "BertForSequenceClassification", id2label={"0": "relevant"})
        asked, flags = lines_of_pairs(random.Random(6), 120), ["--random-weights", "--quiet", "--max-model-len", 64]
        expected = self.kill(asked, flags, model=model)
        copies = self.job(asked, "copies", model=model, flags=flags)
        self.expect(copies.run("--devices", "2xcpu", "--layout", "dp=2"), support.COMPLETE)
        self.assertEqual(copies.answers(), expected)

    def kill(self, asked, flags, **options):
        """Kills and resumes a job until it has ended; its answers, which are those of a whole run."""
        rng = random.Random(7)
        reference = self.job(asked, "reference", flags=flags, **options)
        began = time.monotonic()
        self.expect(reference.run("--threads", 1, "--no-enable-prefix-caching"), support.COMPLETE)
        whole = time.monotonic() - began
        expected = reference.answers()
        self.assertEqual(len(expected), len(asked))
        job = self.job(asked, "killed", flags=flags, **options)
        kills = 0
        for _ in range(30 * KILLS):
            process = job.start("--threads", rng.choice([1, 1, 1, 2]), "--max-num-batched-tokens", rng.choice([64, 512]))
            process.stderr.close()
            try:
                process.wait(rng.uniform(0, whole))
            except subprocess.TimeoutExpired:
                process.kill()
            kills += process.wait() != support.COMPLETE
            for number, found in job.answers().items():
                self.assertEqual(found, expected[number], f"input line {number}")
            if kills >= KILLS:
                break
            if process.returncode == support.COMPLETE:
                job.forget()
        self.assertGreaterEqual(kills, KILLS)
        self.expect(job.run(), support.COMPLETE)
        self.assertEqual(job.answers(), expected)
        return expected

    def test_what_a_head_says(self):
        model = encoder(os.path.join(self.folder, "model"), "BertForSequenceClassification")
        url = lambda kind, body: {"custom_id": kind, "url": f"/v1/{kind}", "body": body}
        asked = [url("classify", {"input": ["the river", "water stands"]}), url("embeddings", {"input": "the river"}),
                 url("score", {"text_1": "the river", "text_2": "water"}), url("chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
                 url("completions", {"prompt": "the river"})]
        job = self.job(asked, model=model, flags=["--random-weights", "--quiet"])
        self.expect(job.run(), support.COMPLETE)
        bodies = job.bodies()
        for each in bodies["classify"]["data"]:
            self.assertAlmostEqual(math.fsum(each["probs"]), 1)
            self.assertEqual(each["label"], f"L{max(range(3), key=each['probs'].__getitem__)}")
            self.assertEqual(each["num_classes"], 3)
        codes = {kind: body["error"]["code"] for kind, body in bodies.items() if "error" in body}
        self.assertEqual(codes, {"embeddings": "pooling_missing", "score": "head_has_labels", "chat/completions": "model_generates_nothing",
                                 "completions": "model_generates_nothing"})
        # The same body without its head makes vectors.
        self.expect(self.job(asked[1:2], "body", model=model, flags=["--random-weights", "--quiet"]).run("--pooling", "mean"), support.COMPLETE)
        # It keeps no KV that could go below.
        for flags, named in [(["--kv-offloading-size", "64MiB"], "--kv-offloading-size"), (["--kv-file", os.path.join(self.folder, "kv"),
                             "--kv-file-size", "64MiB"], "--kv-file"), (["--devices", "2xcpu", "--context", "dp=1", "--generation", "dp=1"], "--context")]:
            cache = os.path.join(self.folder, "cache")
            refused = self.job(asked, "refused", model=model, flags=["--random-weights", *flags]).run(env=os.environ | {"XDG_CACHE_HOME": cache})
            self.assertNotEqual(refused.code, support.COMPLETE)
            self.assertFalse(os.path.exists(cache), "the CPU is not measured for a job that is refused")
            self.assertIn(named, refused.err)
            self.assertIn("BertForSequenceClassification", refused.err)
        none = self.job([asked[0]], "none", flags=["--quiet"])
        self.expect(none.run(), support.ALL_FAILED)
        self.assertEqual(none.bodies()["classify"]["error"]["code"], "head_missing")

    def test_a_decoder_with_a_head(self):
        """Its labels' numbers are the head's matrix times the row of the last token, which the model without its head gives."""
        model = os.path.join(self.folder, "model")
        shutil.copytree(support.QWEN, model, ignore=shutil.ignore_patterns("*.safetensors"))
        draw = random.Random(3)
        with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        width = config["hidden_size"]
        score = [struct.unpack("f", struct.pack("f", draw.uniform(-1, 1)))[0] for _ in range(2 * width)]
        self.with_head(os.path.join(support.QWEN, "model.safetensors"), os.path.join(model, "model.safetensors"), [2, width], score)
        labels = {"id2label": {"0": "bad", "1": "good"}}
        with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config | {"architectures": ["Qwen3ForSequenceClassification"]} | labels, file)
        texts = ["the river", "water stands ready before every turbine", "none"]
        vectors = self.job([{"custom_id": "v", "input": texts, "normalize": False}], "vectors", model=support.QWEN, flags=["--quiet"])
        self.expect(vectors.run("--pooling", "last"), support.COMPLETE)
        rows = [each["embedding"] for each in vectors.bodies()["v"]["data"]]
        asked = [{"custom_id": "raw", "url": "/v1/classify", "body": {"input": texts, "use_activation": False}},
                 {"custom_id": "probs", "url": "/v1/classify", "body": {"input": texts}},
                 {"custom_id": "text", "url": "/v1/completions", "body": {"prompt": "the river"}},
                 {"custom_id": "likely", "url": "/v1/score", "body": {"prompt": "the", "continuations": [" river"]}}]
        job = self.job(asked, model=model, flags=["--quiet"])
        self.expect(job.run(), support.COMPLETE)
        bodies = job.bodies()
        for row, raw, probs in zip(rows, bodies["raw"]["data"], bodies["probs"]["data"]):
            expected = [math.fsum(x * w for x, w in zip(row, score[i * width:(i + 1) * width])) for i in range(2)]
            for found, wanted in zip(raw["probs"], expected):
                self.assertAlmostEqual(found, wanted, delta=1e-4 * max(1, abs(wanted)))
            self.assertAlmostEqual(probs["probs"][1], 1 / (1 + math.exp(expected[0] - expected[1])), places=4)
            self.assertEqual(probs["label"], "good" if expected[1] > expected[0] else "bad")
        for name in ("text", "likely"):
            self.assertEqual(bodies[name]["error"]["code"], "model_generates_nothing")
        copies = self.job(asked, "copies", model=model, flags=["--quiet"])
        self.expect(copies.run("--devices", "2xcpu", "--layout", "tp=2", "--no-enable-prefix-caching"), support.COMPLETE)
        self.assertEqual(copies.answers(), job.answers())

    def with_head(self, stored, to, shape, values):
        """The tensors of `stored` and score.weight in fp32."""
        with open(stored, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = file.read()
        header["score.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
        text = json.dumps(header).encode()
        with open(to, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data + struct.pack(f"<{len(values)}f", *values))

    def test_a_decoder_that_says_yes_or_no(self):
        """The score is that of the two tokens' log probabilities behind the same prompt."""
        model = os.path.join(self.folder, "model")
        os.makedirs(model)
        with open(os.path.join(support.QWEN, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        with open(os.path.join(support.QWEN, "tokenizer.json"), encoding="utf-8") as file:
            tokenizer = json.load(file)
        names = {token["content"] for token in tokenizer["added_tokens"]} | set(tokenizer["model"]["vocab"])
        first = max([*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"])]) + 1
        for i, word in enumerate(word for word in ("yes", "no") if word not in names):
            tokenizer["added_tokens"].append({"id": first + i, "content": word, "special": False, "single_word": False, "lstrip": False,
                                              "rstrip": False, "normalized": False})
        for name, value in [("config.json", config | {"vocab_size": max(config["vocab_size"], first + 2)}), ("tokenizer.json", tokenizer)]:
            with open(os.path.join(model, name), "w", encoding="utf-8") as file:
                json.dump(value, file)
        template = os.path.join(self.folder, "pair.jinja")
        with open(template, "w", encoding="utf-8") as file:
            file.write("{% for m in messages %}<{{ m.role }}>: {{ m.content }}\n{% endfor %}answer:")
        flags = ["--random-weights", "--quiet", "--chat-template", template]
        pairs = [("the river", "water stands"), ("the river", "every turbine")]
        prompt = lambda query, document: f"<query>: {query}\n<document>: {document}\nanswer:"
        likely = self.job([{"prompt": prompt(*pair), "continuations": ["yes", "no"]} for pair in pairs], "likely", model=model, flags=flags)
        self.expect(likely.run(), support.COMPLETE)
        asked = [{"text_1": query, "text_2": document} for query, document in pairs]
        job = self.job([*asked, {"text_1": "the river", "text_2": "water " * 300, "truncate_prompt_tokens": 60},
                        {"text_1": "water " * 300, "text_2": "the river", "truncate_prompt_tokens": 60}, {"prompt": "the", "max_tokens": 2}],
                       model=model, flags=flags)
        self.expect(job.run("--pooling", "yes-no"), support.COMPLETE)
        results = job.results()
        for line, likelihoods in likely.results().items():
            yes, no = (each["score"] for each in likelihoods["response"]["body"]["data"])
            score = results[line]["response"]["body"]["data"][0]["score"]
            self.assertAlmostEqual(score, 1 / (1 + math.exp(no - yes)), places=3)
        for line in (3, 4):
            self.assertLessEqual(results[line]["response"]["body"]["usage"]["prompt_tokens"], 60)
        self.assertEqual(results[5]["response"]["status_code"], 200)
        # Its tokenizer joins no pairs by itself, and another one says neither yes nor no.
        bare = self.job(asked[:1], "bare", model=model, flags=["--random-weights", "--quiet", "--pooling", "yes-no"])
        self.expect(bare.run(), support.ALL_FAILED)
        self.assertEqual(bare.results()[1]["response"]["body"]["error"]["code"], "pairs_unknown")
        refused = self.job(asked[:1], "refused", model=support.QWEN, flags=["--pooling", "yes-no"]).run()
        self.assertIn("has no token \"yes\"", refused.err)

    def test_pairs_of_texts(self):
        model = encoder(os.path.join(self.folder, "model"), "BertForSequenceClassification", id2label={"0": "relevant"})
        texts = ["water stands ready", "the river again", "none"]
        long = "river " * 300
        asked = [{"custom_id": "s", "text_1": "the river", "text_2": texts}, {"custom_id": "r", "query": "the river", "documents": texts},
                 {"custom_id": "raw", "text_1": "the river", "text_2": texts, "use_activation": False},
                 {"custom_id": "pairs", "text_1": ["the river"] * 3, "text_2": texts}, {"custom_id": "turned", "text_1": texts, "text_2": ["the river"] * 3},
                 {"custom_id": "long", "text_1": "the river", "text_2": long}, {"custom_id": "empty", "text_1": "the river", "text_2": ["a", ""]},
                 {"custom_id": "cut", "text_1": "the river", "text_2": long, "truncate_prompt_tokens": 20},
                 {"custom_id": "tiny", "text_1": "the river", "text_2": long, "truncate_prompt_tokens": 2},
                 {"custom_id": "ids", "text_1": [5], "text_2": [6]}]
        job = self.job(asked, model=model, flags=["--random-weights", "--quiet"])
        self.expect(job.run(), support.COMPLETE)
        bodies = job.bodies()
        scores = {name: [each["score"] for each in body["data"]] for name, body in bodies.items() if "data" in body}
        ranked = bodies["r"]["results"]
        self.assertEqual({each["index"]: each["relevance_score"] for each in ranked}, dict(enumerate(scores["s"])))
        self.assertEqual([each["relevance_score"] for each in ranked], sorted(scores["s"], reverse=True))
        self.assertEqual(scores["pairs"], scores["s"])
        self.assertNotEqual(scores["turned"], scores["s"])
        for raw, score in zip(scores["raw"], scores["s"]):
            self.assertAlmostEqual(score, 1 / (1 + math.exp(-raw)), places=8)
        self.assertEqual(bodies["cut"]["usage"]["prompt_tokens"], 20)
        codes = {name: (body["error"]["code"], body["error"]["param"]) for name, body in bodies.items() if "error" in body}
        self.assertEqual(codes, {"long": ("context_length_exceeded", "text_2"), "empty": ("prompt_empty", "text_2"),
                                 "tiny": ("invalid_value", "truncate_prompt_tokens"), "ids": ("invalid_value", "text_1")})

    def test_what_stands_in_them(self):
        texts = ["the river", "water stands", "the river"]
        asked = [{"custom_id": "e", "input": texts}, {"custom_id": "b", "input": texts, "encoding_format": "base64"},
                 {"custom_id": "s", "text_1": texts[0], "text_2": texts[1:]}, {"custom_id": "r", "query": texts[0], "documents": texts[1:]},
                 {"custom_id": "c", "input": texts[0], "dimensions": 8}, {"custom_id": "n", "input": texts[0], "normalize": False},
                 {"custom_id": "t", "input": "a " * 600, "truncate_prompt_tokens": 20}]
        job = self.job(asked, flags=[*FLAGS, "--max-model-len", 256])
        self.expect(job.run(), support.COMPLETE)
        bodies = job.bodies()
        vectors = [each["embedding"] for each in bodies["e"]["data"]]
        self.assertEqual(vectors[0], vectors[2])
        for vector, coded in zip(vectors, bodies["b"]["data"]):
            self.assertAlmostEqual(math.fsum(x * x for x in vector), 1, places=5)
            self.assertEqual(list(struct.unpack(f"<{len(vector)}f", base64.b64decode(coded["embedding"]))),
                             [struct.unpack("f", struct.pack("f", x))[0] for x in vector])
        cosine = math.fsum(a * b for a, b in zip(vectors[0], vectors[1]))
        scores = [each["score"] for each in bodies["s"]["data"]]
        self.assertAlmostEqual(scores[0], cosine, places=5)
        self.assertAlmostEqual(scores[1], 1, places=6)
        self.assertEqual([(each["index"], each["document"]["text"]) for each in bodies["r"]["results"]], [(1, texts[2]), (0, texts[1])])
        self.assertEqual([each["relevance_score"] for each in bodies["r"]["results"]], scores[::-1])
        short, raw = bodies["c"]["data"][0]["embedding"], bodies["n"]["data"][0]["embedding"]
        length = math.sqrt(math.fsum(x * x for x in raw[:8]))
        for a, b in zip(short, raw[:8]):
            self.assertAlmostEqual(a, b / length, places=6)
        self.assertEqual(bodies["t"]["usage"]["prompt_tokens"], 20)

    def test_they_are_planned(self):
        model = encoder(os.path.join(self.folder, "model"), "BertForSequenceClassification", id2label={"0": "relevant"})
        asked = lines(random.Random(8), 5)[:5]  # none generates
        # A text is cut to the rows of a step, which an encoder reads it in, where its line says so.
        long = lambda more: {"custom_id": "c", "url": "/v1/classify", "body": {"input": "river " * 40, **more}}
        longer = [long({}), long({"truncate_prompt_tokens": -1})]
        seconds = {}
        for name, model, asked, flags, left_out in (("decoder", support.LLAMA, asked, ["--pooling", "last"], 0), ("without", support.LLAMA, asked, [], 0),
                                                    ("encoder", model, lines_of_pairs(random.Random(8), 3), [], 0),
                                                    ("longer", model, longer, ["--max-num-batched-tokens", 32], 1)):
            job = self.job(asked, name, model=model)
            plan = ["plan", "-m", model, "-i", job.input, *flags, "--devices", "2xcpu", "--device-profile", "zen4", "--json"]
            layouts = json.loads(self.expect(support.call(*plan), 0).out)["layouts"]
            seconds[name] = layouts[0]["seconds"]
            self.assertGreater(seconds[name], 0)
            self.assertEqual(layouts[0]["choices_left_out"], left_out, name)
        # What `run` refuses for want of a pooling is not planned.
        self.assertGreater(seconds["decoder"], seconds["without"])

    def test_bad_lines(self):
        asked = [{"input": ""}, {"input": "a " * 600}, {"input": "a", "dimensions": 100000}, {"input": ["a", ""]}, {"query": "a", "documents": []},
                 {"custom_id": "x", "url": "/v1/embeddings", "body": {"messages": [{"role": "user", "content": "a"}]}}, {"input": "good"}]
        job = self.job(asked, flags=[*FLAGS, "--max-model-len", 256])
        self.expect(job.run(), support.COMPLETE)
        results = job.results()
        codes = [results[i + 1]["response"]["body"].get("error", {}).get("code") for i in range(len(asked))]
        self.assertEqual(codes, ["prompt_empty", "context_length_exceeded", "invalid_value", "prompt_empty", "invalid_value", "unsupported_parameter", None])
        job = self.job([{"input": "a"}, {"prompt": "a", "max_tokens": 2}], "none")
        self.expect(job.run("--quiet"), support.COMPLETE)
        self.assertEqual(job.results()[1]["response"]["body"]["error"]["code"], "pooling_missing")
        self.assertEqual(job.results()[2]["response"]["status_code"], 200)
        # Vectors of another pooling are other answers.
        job = self.job([{"input": "a"}], "other", flags=["--quiet"])
        self.expect(job.run("--pooling", "mean"), support.COMPLETE)
        self.expect(job.run("--pooling", "last"), support.MISMATCH)


if __name__ == "__main__":
    support.main()
