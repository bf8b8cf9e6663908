"""Lines of all endpoints in one file: embeddings, scores, rankings, likelihoods and answers; killed and resumed, sharded, alone."""
import base64
import math
import random
import struct
import subprocess
import time

import support

KILLS = 10
FLAGS = ["--pooling", "mean", "--quiet"]


def lines(rng, count):
    words = "water stands ready before every turbine none waits for the river again".split()
    text = lambda: " ".join(rng.choice(words) for _ in range(rng.randrange(1, 40)))
    kinds = [
        lambda: {"input": text()},
        lambda: {"input": [text(), text()], "encoding_format": "base64", "dimensions": 16},
        lambda: {"text_1": text(), "text_2": [text() for _ in range(3)]},
        lambda: {"query": text(), "documents": [text() for _ in range(4)], "top_n": 2},
        lambda: {"prompt": text(), "continuations": [" water", " the river"]},
        lambda: {"prompt": text(), "max_tokens": 8},
    ]
    return [kinds[i % len(kinds)]() for i in range(count)]


class Vectors(support.TestCase):
    def test_killed_and_resumed(self):
        rng = random.Random(5)
        asked = lines(rng, 240)
        reference = self.job(asked, "reference", flags=FLAGS)
        began = time.monotonic()
        self.expect(reference.run("--threads", 1, "--no-enable-prefix-caching"), support.COMPLETE)
        whole = time.monotonic() - began
        expected = reference.answers()
        self.assertEqual(len(expected), len(asked))
        job = self.job(asked, "killed", flags=FLAGS)
        kills = 0
        for _ in range(30 * KILLS):
            process = job.start("--threads", rng.choice([1, 2]), "--max-num-batched-tokens", rng.choice([64, 512]))
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
