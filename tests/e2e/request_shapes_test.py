"""Requests as people bring them, each with its expected fate (request_shapes.jsonl).

A row has `from` (whose habit the shape is), `line` (an object) or `text` (the line as it stands in the file), and `fate`: "ok", or the
code of the error that the line's result carries, with its `status`. All of them are one job.
"""
import collections
import json
import os

import support

SHAPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "request_shapes.jsonl")
NAMES = ["llama3-gqa", "gpt-4o-mini", "gpt-3.5-turbo-instruct", "meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B-Instruct"]


class Shapes(support.TestCase):
    def test_fates(self):
        with open(SHAPES, encoding="utf-8") as file:
            shapes = [json.loads(row) for row in file]
        self.assertGreaterEqual(len(shapes), 300)
        job = self.job([shape["line"] if "line" in shape else shape["text"].encode() for shape in shapes])
        self.expect(job.run("--served-model-name", *NAMES), support.COMPLETE)
        results = job.results()
        self.assertEqual(len(results), len(shapes))
        wrong = []
        for number, shape in enumerate(shapes, 1):
            response = results[number]["response"]
            error = response["body"].get("error")
            found = (error["code"] if error else "ok", response["status_code"])
            if found != (shape["fate"], shape.get("status", 200)):
                wrong.append(f"line {number} ({shape['from']}): {found}, expected {shape['fate']}: "
                             f"{json.dumps(shape.get('line', shape.get('text')))[:300]} {error and error['message']}")
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))
        expected = collections.Counter(shape["fate"] for shape in shapes if shape["fate"] != "ok")
        self.assertEqual({f["code"]: f["count"] for f in job.summary()["failures"]}, dict(expected), "the summary counts the same")
        print(f"{len(shapes)} shapes, {len(shapes) - expected.total()} answered")


if __name__ == "__main__":
    support.main()
