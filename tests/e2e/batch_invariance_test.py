"""A real model: the same answers and digests alone, in a batch, in any chunks, on 1 or 2 threads, killed and resumed.

Needs the demo model (models/, or FOREBAY_DEMO_MODEL); FOREBAY_BATCH_REQUESTS changes the number of requests.
"""
import json
import os
import random
import signal
import time
import unittest

import support

REQUESTS = int(os.environ.get("FOREBAY_BATCH_REQUESTS", 16))
FLAGS = ["--memory", "1GiB", "--max-model-len", "1024", "--digest"]


def requests():
    """The demo's first lines and some of other kinds, with short answers, at temperature 0 and 1."""
    rng = random.Random(4)
    lines = []
    with open(os.path.join(support.ROOT, "examples", "demo.jsonl"), encoding="utf-8") as file:
        demo = [json.loads(line) for line in file]
    for i, line in enumerate(rng.sample(demo, REQUESTS)):
        body = line["body"]
        body.pop("max_completion_tokens", None)
        body |= {"max_tokens": rng.randint(4, 24), "temperature": i % 2}
        if i % 4 == 3:
            body["n"] = 2
        lines.append(line | {"custom_id": f"demo-{i}"})
    start = "The same beginning for several prompts, so that they share blocks of the cache: a forebay is the basin in front of "
    lines += [{"custom_id": f"prefix-{i}", "prompt": start + word, "max_tokens": 8, "temperature": i % 2, "logprobs": 2}
              for i, word in enumerate(("a power plant", "a mill", "an engine"))]
    return lines


@unittest.skipUnless(os.path.exists(support.DEMO_MODEL), f"no demo model at {support.DEMO_MODEL}")
class BatchInvariance(support.TestCase):
    def setUp(self):
        super().setUp()
        self.lines = requests()
        self.number = 0

    def answers(self, *flags):
        self.number += 1
        self.last = self.job(self.lines, f"run{self.number}", model=support.DEMO_MODEL, flags=FLAGS)
        self.expect(self.last.run(*flags), support.COMPLETE)
        return self.last.answers()

    def test_all(self):
        batch = self.answers()
        self.assertEqual(len(batch), len(self.lines))
        self.assertTrue(all(b'"digest":"' in line for line in batch.values()))
        summary = self.last.summary()
        self.assertEqual(self.answers("--max-num-seqs", "1", "--no-enable-prefix-caching"), batch, "alone, nothing shared")
        self.assertEqual(self.last.summary()["engine"]["prefix_blocks_hit"], 0)
        self.assertGreater(self.last.summary()["engine"]["steps"], summary["engine"]["steps"])
        self.assertEqual(self.answers("--max-num-seqs", "4", "--max-num-batched-tokens", "64", "--threads", "1"), batch, "chunks of 64, one thread")
        self.assertGreater(self.last.summary()["engine"]["prefix_blocks_hit"], 0)
        self.assertEqual(self.answers("--max-num-batched-tokens", "300", "--num-kv-blocks-override", "32"), batch, "few blocks")
        self.assertEqual(self.last.summary()["engine"]["kv_blocks_total"], 32)

        killed = self.job(self.lines, "killed", model=support.DEMO_MODEL, flags=FLAGS)
        rng, kills = random.Random(9), 0
        for _ in range(3):
            before = len(killed.whole_lines())
            process = killed.start("--max-num-seqs", rng.choice(["2", "4"]), "--threads", rng.choice(["1", "2"]))
            while len(killed.whole_lines()) < before + rng.randint(1, 4) and process.poll() is None:
                time.sleep(0.01)
            process.kill()
            kills += process.wait() == -signal.SIGKILL
            process.stderr.close()
        self.assertGreater(kills, 0)
        self.expect(killed.run(), support.COMPLETE)
        self.assertEqual(killed.answers(), batch, "killed and resumed")
        print(f"{len(batch)} requests the same alone, in a batch, in chunks, on 1 and 2 threads and after {kills} kills; isa {summary['isa']}")

    def test_kernel_sets(self):
        """Every kernel set of a numerics class gives the same bits (one choice of a few tokens: ref takes its time)."""
        self.lines = [{"custom_id": "isa", "prompt": "The river", "max_tokens": 3, "temperature": 0}]
        of_class, compared = {}, []
        for isa in ("avx2", "avx512f", "avx512bf16", "ref", "amx"):
            job = self.job(self.lines, "isa-" + isa, model=support.DEMO_MODEL, flags=[*FLAGS, "--isa", isa])
            finished = job.run()
            if "isa_unavailable" in finished.err:
                print(f"SKIPPED kernel set {isa}: not on this machine")
                continue
            self.expect(finished, support.COMPLETE)
            self.assertEqual(job.answers(), of_class.setdefault(job.summary()["numerics_class"], job.answers()), isa)
            compared.append(isa)
        self.assertGreater(len(compared), len(of_class))


if __name__ == "__main__":
    support.main()
