"""Command lines, files and models that are wrong: the exit code, a message that names the thing, never a crash."""
import json
import os
import shutil
import subprocess

import support

ONE = [{"prompt": [5, 6], "max_tokens": 2, "temperature": 0}]


class CommandLine(support.TestCase):
    def setUp(self):
        super().setUp()
        self.one = self.job(ONE, "one", flags=["--skip-tokenizer-init"])

    def refused(self, code, *texts, flags=(), nothing_written=True):
        self.one.forget()
        finished = self.one.run(*flags, timeout=120)
        self.expect(finished, code, *texts)
        self.assertTrue(finished.err.strip(), "it says why")
        if nothing_written:
            self.assertFalse(os.path.exists(self.one.output), "nothing ran, nothing is left")

    def test_usage(self):
        for arguments in ([], ["run"], ["run", "-m", "x"], ["nothing"], ["tokenize"], ["run", "--nothing"], ["--nothing"],
                          self.one.arguments("--bogus"), self.one.arguments("extra"), self.one.arguments("--threads"),
                          self.one.arguments("-m", "twice")):
            with self.subTest(arguments):
                finished = self.expect(support.call(*arguments), support.USAGE)
                self.assertTrue(finished.err)
        for arguments in (["--help"], ["run", "--help"], ["tokenize", "--help"], ["--version"]):
            finished = self.expect(support.call(*arguments), 0)
            self.assertIn("forebay", finished.out.lower())

    def test_values_of_flags(self):
        for flag, values in {
            "--memory": ["-5", "5XB", "1e30", "nan", " ", "99999999999999999999"], "--threads": ["-1", "1.5", "x"],
            "--max-num-seqs": ["0", "-1", "99999999999", "5,6"], "--max-num-batched-tokens": ["0", "-1"], "--max-model-len": ["-3", "x"],
            "--num-kv-blocks-override": ["-1"], "--seed": ["-1", "18446744073709551616", "1.5", "x", " 1", "1 "],
            "--dtype": ["float16", "x"], "--max-logprobs": ["-2", "x"], "--grace": ["-1", "nan", "x"],
            "--now": ["yesterday", "2026-13-45T99:99:99", "2026-03-07"],
        }.items():
            for value in values:
                with self.subTest(f"{flag} {value!r}"):
                    self.refused(support.USAGE, flags=[flag, value])
        for flags, text in ((["--isa", "x"], "isa_unavailable"), (["--scheduling-policy", "x"], "policy_unknown"),
                            (["--max-model-len", "100000"], "max_model_len_invalid")):
            self.refused(support.USAGE, text, flags=flags)
        self.refused(support.ERROR, "io_error", flags=["--generation-config", "/none"])
        self.one.flags = []
        self.refused(support.ERROR, "/none", flags=["--chat-template", "/none"])
        self.refused(support.ERROR, "template_syntax", flags=["--chat-template", "{% bad"])

    def test_memory(self):
        for memory in ("1", "3MiB"):
            self.one.flags = ["--skip-tokenizer-init", "--memory", memory]
            self.refused(support.ERROR, "memory_too_small")
        self.one.flags = ["--skip-tokenizer-init"]
        for flags in (["--max-num-seqs", "2147483647"], ["--max-num-batched-tokens", "2147483647"], ["--threads", "100000"]):
            self.refused(support.ERROR, "memory_too_small", flags=flags)

    def test_extremes_that_work(self):
        self.one.flags = ["--skip-tokenizer-init", "--digest"]
        self.expect(self.one.run(), support.COMPLETE)
        body = self.one.bodies()[None]["choices"]
        for flags in (["--max-num-batched-tokens", "1"], ["--max-num-seqs", "1"], ["--threads", "3"], ["--max-num-seqs", "100000"],
                      ["--num-kv-blocks-override", "2147483647"], ["--grace", "0"], ["--seed", "18446744073709551615"],
                      ["--max-model-len", "4"], ["--max-logprobs", "2147483647"]):
            self.one.forget()
            self.expect(self.one.run(*flags), support.COMPLETE)
            self.assertEqual(self.one.bodies()[None]["choices"], body, flags)
        self.one.forget()
        self.expect(self.one.run("--max-model-len", "1"), support.COMPLETE)
        self.assertEqual(self.one.bodies()[None]["error"]["code"], "context_length_exceeded")

    def test_closed_streams(self):
        for redirect in ("<&- >&- 2>&-", "</dev/null >/dev/full 2>/dev/full"):
            self.one.forget()
            shell = " ".join(f"'{part}'" for part in support.command(*self.one.arguments()))
            done = subprocess.run(["bash", "-c", f"{shell} {redirect}"], timeout=120)
            self.assertEqual(done.returncode, support.COMPLETE, redirect)
            self.assertEqual(len(self.one.raw().splitlines()), 1, "messages do not end up in the results")
            self.assertEqual(list(self.one.results()), [1])
        done = subprocess.run(["bash", "-c", f"echo '{{\"text\":\"x\"}}' | {support.command()[0]} tokenize -m {support.LLAMA} >/dev/full"],
                              stderr=subprocess.PIPE, timeout=120)
        self.assertEqual(done.returncode, support.ERROR, "output that is lost is an error")


class Models(support.TestCase):
    def setUp(self):
        super().setUp()
        self.model = os.path.join(self.folder, "model")

    def run_model(self, model, *flags):
        job = self.job(ONE, "job", model=model, flags=["--skip-tokenizer-init"])
        job.forget()
        return job.run(*flags, timeout=120)

    def test_places(self):
        for model, code in {os.path.join(self.folder, "none"): "model_not_found", self.folder: "weights_not_found", "/etc/passwd": "gguf_invalid",
                            "/dev/null": "io_error", "": "model_not_found"}.items():
            self.expect(self.run_model(model), support.ERROR, f"[{code}]", model)

    def test_truncated_weights(self):
        for source, name in ((support.LLAMA, "model.safetensors"), (os.path.join(support.GOLDEN, "gguf", "llama3-gqa-Q4_1.gguf"), None)):
            path = self.model if name else self.model + ".gguf"
            shutil.copytree(source, path) if name else shutil.copy(source, path)
            file = os.path.join(path, name) if name else path
            with open(file, "rb") as opened:
                content = opened.read()
            for size in [0, 1, 7, 8, 100, 2000, len(content) // 2, len(content) - 1]:
                with open(file, "wb") as opened:
                    opened.write(content[:size])
                finished = self.expect(self.run_model(path), support.ERROR, file)
                self.assertRegex(finished.err, r"\[(safetensors|gguf)_(truncated|invalid)\]")

    def test_damaged_weights(self):
        """A bit flipped anywhere in a header ends in an error or in a job; a NaN among the weights is named."""
        shutil.copytree(support.LLAMA, self.model)
        file = os.path.join(self.model, "model.safetensors")
        with open(file, "rb") as opened:
            content = opened.read()
        for at in list(range(0, 3000, 97)):
            with open(file, "wb") as opened:
                opened.write(content[:at] + bytes([content[at] ^ 0x11]) + content[at + 1:])
            self.assertIn(self.run_model(self.model).code, (support.COMPLETE, support.ERROR), at)
        with open(file, "wb") as opened:
            opened.write(content[:-2] + b"\xc0\x7f")
        self.expect(self.run_model(self.model), support.ERROR, "tensor_not_finite", "model.safetensors")

    def test_configurations(self):
        shutil.copytree(support.LLAMA, self.model)
        path = os.path.join(self.model, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        for change, code in (({"architectures": ["GPT2LMHeadModel"]}, "model_architecture_unknown"), ({"hidden_size": 128}, "tensor_shape"),
                             ({"num_hidden_layers": 4}, "tensor_missing"), ({"num_attention_heads": 0}, "model_config_invalid"),
                             ({"num_key_value_heads": 3}, "model_config_invalid"), ({"hidden_size": -64}, "model_config_invalid"),
                             ({"vocab_size": 2**31}, None), ({"head_dim": 2**20}, None), ({"num_hidden_layers": 10**9}, None),
                             ({"hidden_act": "gelu"}, "model_config_unsupported"), ({"rms_norm_eps": "x"}, "model_config_invalid"),
                             ({"rope_scaling": {"rope_type": "strange", "factor": 2}}, "model_config_unsupported"),
                             ({"rope_theta": 0}, None), ({"max_position_embeddings": 2**40}, None)):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(config | change, file)
            with self.subTest(str(change)):
                self.expect(self.run_model(self.model), support.ERROR, *([f"[{code}]"] if code else []))

    def test_files_that_change_while_in_use(self):
        """The model's files may go once the job runs."""
        for source in (support.LLAMA, os.path.join(support.GOLDEN, "gguf", "llama3-gqa-BF16.gguf")):
            is_folder = os.path.isdir(source)
            path = self.model if is_folder else self.model + ".gguf"
            shutil.copytree(source, path) if is_folder else shutil.copy(source, path)
            lines = [{"prompt": f"hello {i}", "max_tokens": 60, "logprobs": 2, "echo": True} for i in range(300)]
            job = self.job(lines, "changing", model=path)
            job.forget()
            process = job.start("--max-num-seqs", "2")
            while not job.whole_lines() and process.poll() is None:
                pass
            os.truncate(os.path.join(path, "model.safetensors") if is_folder else path, 0)
            _, err = process.communicate(timeout=120)
            self.assertIn(process.returncode, (support.COMPLETE, support.ERROR), err)
            job.answers()


if __name__ == "__main__":
    support.main()
