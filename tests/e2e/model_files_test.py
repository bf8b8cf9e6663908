"""Models as people have them: what several files say, and files that are something else."""
import json
import os
import shutil
import struct
import tempfile
import unittest

import support

TIED = os.path.join(support.GOLDEN, "models", "qwen2-tied")


class ModelFiles(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.model = os.path.join(self.temporary.name, "model")

    def copy(self, source):
        shutil.rmtree(self.model, ignore_errors=True)
        shutil.copytree(source, self.model)

    def change(self, name, **members):
        path = os.path.join(self.model, name)
        with open(path) as file:
            found = {**json.load(file), **members}
        with open(path, "w") as file:
            json.dump(found, file)

    def tokens(self, model, line, *flags):
        """The tokens of the answer, or the error's message, and stderr."""
        source, sink = os.path.join(self.temporary.name, "in.jsonl"), os.path.join(self.temporary.name, "out.jsonl")
        if os.path.exists(sink):
            os.remove(sink)
        with open(source, "w") as file:
            file.write(json.dumps({"temperature": 0, "return_token_ids": True, **line}) + "\n")
        done = support.call("run", "-m", model, "-i", source, "-o", sink, *flags)
        if not os.path.exists(sink):
            return None, done.err
        with open(sink) as file:
            body = json.loads(file.readline())["response"]["body"]
        return body["choices"][0]["token_ids"] if "choices" in body else body["error"]["message"], done.err

    def test_ends_of_all_files(self):
        self.copy(support.LLAMA)
        for name in ("config.json", "generation_config.json"):
            self.change(name, eos_token_id=317)
        ask = {"prompt": [316, 87], "max_tokens": 20, "logit_bias": {"318": 100}}
        _, err = self.tokens(self.model, ask)
        self.assertRegex(err, r"answers end at \S*<\|end_of_text\|>\S* \(317\); chat template: tokenizer_config.json")
        self.change("tokenizer_config.json", eos_token="<|eot_id|>")
        tokens, err = self.tokens(self.model, ask)
        self.assertEqual(tokens, [318])
        self.assertIn("it ends answers too", err)
        self.change("tokenizer_config.json", eos_token="<|end_of_text|>")
        self.change("generation_config.json", eos_token_id=[317, None, 318.0])
        self.assertEqual(self.tokens(self.model, ask)[0], [318])

    def test_a_stop_string_that_is_a_special_token(self):
        ask = {"prompt": [316, 87], "max_tokens": 6, "logit_bias": {"319": 100}, "stop": "<|start_header_id|>"}
        self.assertEqual(self.tokens(support.LLAMA, ask)[0], [319])
        shown = self.tokens(support.LLAMA, {**ask, "skip_special_tokens": False})[0]
        self.assertEqual(shown, [319])

    def test_a_tied_model_whose_head_alone_is_stored(self):
        ask = {"prompt": [3, 4, 5], "max_tokens": 8, "ignore_eos": True}
        flags = ("--skip-tokenizer-init", "--dtype", "float32")
        expected, _ = self.tokens(TIED, ask, *flags)
        self.copy(TIED)
        path = os.path.join(self.model, "model.safetensors")
        with open(path, "rb") as file:
            data = file.read()
        size = struct.unpack("<Q", data[:8])[0]
        header = data[8:8 + size].replace(b"model.embed_tokens.weight", b"lm_head.weight").ljust(size)
        with open(path, "wb") as file:
            file.write(data[:8] + header + data[8 + size:])
        self.assertEqual(self.tokens(self.model, ask, *flags)[0], expected)

    def test_names_that_are_no_paths(self):
        home = {**os.environ, "HF_HOME": os.path.join(self.temporary.name, "hub-home")}
        cache = os.path.join(home["HF_HOME"], "hub", "models--org--some-model")
        source = os.path.join(self.temporary.name, "in.jsonl")
        with open(source, "w") as file:
            file.write('{"prompt": "x"}\n')
        ask = ("run", "-m", "org/some-model", "-i", source, "-o", os.path.join(self.temporary.name, "out.jsonl"))
        self.assertIn("huggingface-cli download org/some-model", support.call(*ask, env=home).err)
        os.makedirs(os.path.join(cache, "refs"))
        os.makedirs(os.path.join(cache, "snapshots", "abc"))
        with open(os.path.join(cache, "refs", "main"), "w") as file:
            file.write("abc")
        self.assertIn(f"-m {cache}/snapshots/abc", support.call(*ask, env=home).err)

    def test_a_template_for_tools_in_a_gguf_file(self):
        """Another key before all others: its text is as long as keeps the data aligned."""
        with open(os.path.join(support.GOLDEN, "gguf", "llama3-gqa-BF16.gguf"), "rb") as file:
            data = file.read()
        key, template = b"tokenizer.chat_template.tool_use", b"{{ 'with tools' }}"
        entry = struct.pack("<Q", len(key)) + key + struct.pack("<I", 8)
        template += b"{#" + b" " * ((-len(entry) - 8 - len(template) - 4) % 32) + b"#}"
        entry += struct.pack("<Q", len(template)) + template
        self.assertEqual(len(entry) % 32, 0)
        pairs, = struct.unpack("<Q", data[16:24])
        model = os.path.join(self.temporary.name, "tools.gguf")
        with open(model, "wb") as file:
            file.write(data[:16] + struct.pack("<Q", pairs + 1) + entry + data[24:])
        ask = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "return_token_ids": True}
        source, results = os.path.join(self.temporary.name, "tools.jsonl"), os.path.join(self.temporary.name, "tools-out.jsonl")
        with open(source, "w") as file:
            for tools in ({}, {"tools": [{"type": "function", "function": {"name": "f"}}]}):
                file.write(json.dumps({**ask, **tools}) + "\n")
        done = support.call("run", "-m", model, "-i", source, "-o", results, "--preserve-order")
        self.assertEqual(done.code, support.COMPLETE, done.err)
        self.assertIn("with tools tokenizer.chat_template.tool_use", done.err)
        with open(results) as file:
            plain, tools = (json.loads(line)["response"]["body"]["prompt_token_ids"] for line in file)
        self.assertNotEqual(plain, tools)

    def test_folders_that_are_no_model_say_the_way_on(self):
        """A LoRA adapter, and an architecture that nobody serves."""
        source = os.path.join(self.temporary.name, "in.jsonl")
        with open(source, "w") as file:
            file.write('{"prompt": "x"}\n')
        adapter = os.path.join(self.temporary.name, "adapter")
        os.makedirs(adapter)
        with open(os.path.join(adapter, "adapter_config.json"), "w") as file:
            file.write("{}")
        self.copy(support.LLAMA)
        with open(os.path.join(self.model, "config.json")) as file:
            config = json.load(file)
        with open(os.path.join(self.model, "config.json"), "w") as file:
            json.dump({**config, "architectures": ["FooForCausalLM"], "model_type": "foo"}, file)
        for model, texts in ((adapter, ("is a LoRA adapter", "merge_and_unload", "[weights_format_unsupported]")),
                             (self.model, ('"FooForCausalLM" is not known', "(docs/status.md)", "[model_architecture_unknown]"))):
            err = support.call("run", "-m", model, "-i", source, "-o", os.path.join(self.temporary.name, "out.jsonl")).err
            for text in texts:
                self.assertIn(text, err)


if __name__ == "__main__":
    support.main()
