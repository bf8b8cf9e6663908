"""Peak memory stays under --memory + 300 MB over a million lines: a quarter of them is under a quarter of that. FOREBAY_MEMORY_LINES changes the 250,000."""
import json
import math
import os
import random
import struct

import support
import tiny_model

LINES = int(os.environ.get("FOREBAY_MEMORY_LINES", 250_000))
BUDGET = 32 << 20
MOST = 300_000_000  # bytes beside the budget
BOUND = BUDGET + min(LINES, 1_000_000) * MOST // 1_000_000


class Memory(support.TestCase):
    def setUp(self):
        super().setUp()
        self.model = tiny_model.write(os.path.join(self.folder, "model"))

    def peak(self, job):
        return job.summary()["peak_rss_bytes"]

    def test_many_short_lines(self):
        rng = random.Random(3)
        tails = [b',"prompt":[%d,%d,%d],"max_tokens":1}\n' % tuple(rng.randrange(2, 64) for _ in range(3)) for _ in range(997)]
        tails[100] = b',"prompt":[],"max_tokens":1}\n'  # bad lines cost no memory either
        content = b"".join(b'{"custom_id":"r%d"' % i + tails[i % len(tails)] for i in range(LINES))
        job = self.job(content, model=self.model, flags=["--skip-tokenizer-init", "--memory", str(BUDGET), "--threads", "1"])
        del content
        finished = self.expect(job.run(timeout=800), support.COMPLETE)
        summary = job.summary()
        self.assertEqual(summary["num_requests"], LINES)
        self.assertLessEqual(summary["peak_rss_bytes"], BOUND)
        print(f"{LINES} lines, {summary['requests_per_second']:.0f} lines/s, "
              f"peak RSS {summary['peak_rss_bytes'] / 1e6:.0f} MB of {BOUND / 1e6:.0f} MB")
        seen = bytearray(LINES + 1)
        with open(job.output, "rb") as file:
            for line in file:
                number = int(line[17:line.index(b"_", 17)])
                self.assertEqual(seen[number], 0, f"two results for input line {number}")
                seen[number] = 1
        self.assertEqual(sum(seen), LINES)
        # Reading back as many results, and putting them in order, costs no more.
        self.expect(job.run("--preserve-order", timeout=800), support.COMPLETE, "going on")
        self.assertLessEqual(self.peak(job), BOUND)
        with open(job.output, "rb") as file:
            numbers = [int(line[17:line.index(b"_", 17)]) for line in file]
        self.assertEqual(numbers, list(range(1, LINES + 1)))

    def test_long_lines(self):
        """Lines of 30 MB (a result each, for they do not fit the context) and one beyond the 64 MiB that are read."""
        long_ids = b'{"custom_id":"ids","prompt":[' + b"5," * 15_000_000 + b"5]}\n"
        long_text = b'{"custom_id":"key","prompt":[3],"metadata":"' + b"x" * 30_000_000 + b'","max_tokens":1}\n'
        too_long = b'{"custom_id":"too","prompt":"' + b"x" * 70_000_000 + b'"}\n'
        last = b'{"custom_id":"last","prompt":[3,4],"max_tokens":1}\n'
        job = self.job(too_long + long_ids + long_text + last, model=self.model,
                       flags=["--skip-tokenizer-init", "--memory", str(BUDGET)])
        self.expect(job.run(timeout=800), support.COMPLETE)
        results = job.results()
        self.assertEqual([results[i]["response"]["status_code"] for i in (1, 2, 3, 4)], [413, 400, 200, 200])
        self.assertEqual(results[1]["response"]["body"]["error"]["code"], "line_too_long")
        self.assertEqual(results[2]["response"]["body"]["error"]["code"], "context_length_exceeded")
        # What parsing a line may cost is bounded by its size: 16 bytes a byte, and 4 MB.
        print(f"lines of 30 MB: peak RSS {self.peak(job) / 1e6:.0f} MB")
        self.assertLessEqual(self.peak(job), BUDGET + MOST // 2 + 16 * 30_000_000 + 4_000_000)

    def test_many_log_probabilities(self):
        """One line of 1,536 choices with 20 alternatives a token: with its text of 100 MB memory would not be under the half."""
        prompts, choices, tokens = 256, 6, 125
        body = {"prompt": [[5, 6, 7]] * prompts, "n": choices, "max_tokens": tokens, "logprobs": 20, "ignore_eos": True, "temperature": 1}
        more = {**body, "prompt": [[5, 6, 7]] * (2 * prompts), "max_tokens": 2 * tokens}
        lines = [{"custom_id": "many", **body}, {"custom_id": "too-many", **more}, {"custom_id": "last", "prompt": [3], "logprobs": 2}]
        job = self.job("".join(json.dumps(line) + "\n" for line in lines).encode(), model=self.model,
                       flags=["--skip-tokenizer-init", "--memory", str(BUDGET), "--max-num-seqs", "256"])
        self.expect(job.run(timeout=800), support.COMPLETE)
        print(f"{os.path.getsize(job.output) / 1e6:.0f} MB of results: peak RSS {self.peak(job) / 1e6:.0f} MB")
        self.assertLessEqual(self.peak(job), BUDGET + MOST // 2)
        results = job.results()
        self.assertEqual(results[2]["response"]["body"]["error"]["code"], "logprobs_too_many")
        answers = results[1]["response"]["body"]["choices"]
        self.assertEqual([answer["index"] for answer in answers], list(range(prompts * choices)))
        for answer in answers:
            for column in ("text_offset", "token_logprobs", "tokens", "top_logprobs"):
                self.assertEqual(len(answer["logprobs"][column]), tokens)
        self.assertEqual(len(results[3]["response"]["body"]["choices"]), 1)

    def test_stacked_experts(self):
        """A stack of 256 MiB goes into its tiles expert by expert: what was read of the file is given back."""
        experts, hidden, inner = 32, 1024, 2048
        self.load_stacks("as they are multiplied", hidden, inner, (experts, 2 * inner, hidden), (experts, hidden, inner))

    def test_transposed_stacks(self):
        """The same of stacks [experts, in, out], as Llama 4 has them."""
        experts, hidden, inner = 32, 1024, 2048
        self.load_stacks("transposed", hidden, inner, (experts, hidden, 2 * inner), (experts, inner, hidden))

    def load_stacks(self, what, hidden, inner, gate_up, down):
        """Loads a model of one layer with experts in two stacks: no more memory than the plan and 100 MB."""
        experts = gate_up[0]
        config = tiny_model.CONFIG | {
            "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": hidden,
            "num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": inner, "norm_topk_prob": True,
        }
        shapes = tiny_model.tensor_shapes(config)
        shapes = {name: shape for name, shape in shapes.items() if ".mlp." not in name}
        prefix = "model.layers.0."
        shapes |= {
            prefix + "self_attn.q_norm.weight": (16,), prefix + "self_attn.k_norm.weight": (16,),
            prefix + "mlp.gate.weight": (experts, hidden),
            prefix + "mlp.experts.gate_up_proj": gate_up,
            prefix + "mlp.experts.down_proj": down,
        }
        header, end = {}, 0
        for name, shape in shapes.items():
            begin, end = end, end + 2 * math.prod(shape)
            header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        model = os.path.join(self.folder, "stacked")
        os.makedirs(model)
        with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        with open(os.path.join(model, "model.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + end)  # zeros, which take no room on the disk
        budget = 1 << 29
        job = self.job(b'{"custom_id":"a","prompt":[3,4],"max_tokens":2}\n', model=model,
                       flags=["--skip-tokenizer-init", "--memory", str(budget)])
        self.expect(job.run(timeout=300), support.COMPLETE)
        summary = job.summary()
        plan = summary["weight_bytes"] + summary["kv_bytes"] + summary["workspace_bytes"]
        print(f"stacks {what}: peak RSS {self.peak(job) / 1e6:.0f} MB, planned {plan / 1e6:.0f} MB, --memory {budget / 1e6:.0f} MB")
        self.assertLess(plan, budget)
        self.assertLessEqual(self.peak(job), plan + 100_000_000)
        self.assertGreater(self.peak(job), 384 << 20)  # the experts are in memory


if __name__ == "__main__":
    support.main()
