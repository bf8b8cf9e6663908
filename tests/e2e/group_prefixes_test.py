"""Lines whose prompts begin alike, run one after another: the same answers, of fewer rows."""
import random

import support


class GroupPrefixes(support.TestCase):
    def setUp(self):
        super().setUp()
        rng = random.Random(5)
        # Questions about one document are far apart, and KV memory holds two documents.
        self.documents = [[rng.randrange(3, 250) for _ in range(160)] for _ in range(8)]
        self.lines = [{"custom_id": f"r{i}", "prompt": self.documents[i % 8] + [rng.randrange(3, 250) for _ in range(9)],
                       "max_tokens": 4, "temperature": i % 2} for i in range(40)]
        self.flags = ["--skip-tokenizer-init", "--digest", "--num-kv-blocks-override", "16", "--max-num-batched-tokens", "64",
                      "--max-num-seqs", "2", "--max-model-len", "256"]

    def ran(self, name, *flags, before=b""):
        job = self.job(self.lines, name, flags=self.flags)
        with open(job.output, "wb") as file:
            file.write(before)
        self.expect(job.run(*flags), support.COMPLETE)
        return job.answers(), job

    def test_fewer_rows(self):
        expected, plain = self.ran("plain")
        answers, grouped = self.ran("grouped", "--group-prefixes")
        self.assertEqual(answers, expected)
        cached = [job.summary()["engine"]["cached_prompt_tokens"] for job in (plain, grouped)]
        self.assertLess(cached[0], 1000)
        # All but the first question of a document, and what two at once do not find yet.
        self.assertGreater(cached[1], 0.7 * 32 * 160)
        order = [support.line_number(line) for line in grouped.whole_lines()]
        self.assertLess(sum(abs(a % 8 - b % 8) > 0 for a, b in zip(order, order[1:])), 20)

    def test_makespan_groups_and_begins_long_answers_in_time(self):
        self.lines.append(self.lines[3] | {"custom_id": "long", "max_tokens": 64, "ignore_eos": True})
        expected, plain = self.ran("plain")
        answers, ordered = self.ran("ordered", "--scheduling-policy", "makespan")
        self.assertEqual(answers, expected)
        self.assertGreater(ordered.summary()["engine"]["cached_prompt_tokens"], 0.7 * 32 * 160)
        last = [support.line_number(job.whole_lines()[-1]) for job in (plain, ordered)]
        self.assertEqual(last[0], 41)
        self.assertNotEqual(last[1], 41)
        half = b"".join(plain.whole_lines()[:17])
        self.assertEqual(self.ran("resumed", "--scheduling-policy", "makespan", before=half)[0], expected)

    def test_a_resume_may_group(self):
        expected, plain = self.ran("plain")
        half = b"".join(plain.whole_lines()[:17])
        answers, job = self.ran("grouped", "--group-prefixes", before=half)
        self.assertEqual(answers, expected)
        self.assertEqual(job.summary()["num_resumed"], 17)

    def test_lines_that_come_in_time_keep_their_order(self):
        self.expect(self.job(self.lines, "timed", flags=self.flags).run("--group-prefixes", "--request-rate", "50"), support.USAGE,
                    "--group-prefixes with arrivals")


if __name__ == "__main__":
    support.main()
