"""Command lines, files and models that are wrong: the exit code, a message that names the thing, never a crash."""
import json
import os
import shutil
import struct
import subprocess
import time

import support
import tiny_model

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
        self.expect(support.call("help"), support.USAGE, "help is no command of forebay; expected run, merge, ")
        for command in ("tokenize", "detokenize"):
            self.expect(support.call(command, "-m", os.path.join(self.folder, "none")), support.ERROR, "none: no such file or folder", "[model_not_found]")
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
            self.refused(support.USAGE, flags[0], text, flags=flags)
        self.refused(support.USAGE, "--device-profile: device none", "profile_unknown", flags=["--device-profile", "none"])
        for flag in ("--generation-config", "--arrivals"):
            self.refused(support.ERROR, f"{flag}: /none", "io_error", flags=[flag, "/none"])
        self.one.flags = []
        self.refused(support.ERROR, "--chat-template: /none", flags=["--chat-template", "/none"])
        self.refused(support.ERROR, "template_syntax", flags=["--chat-template", "{% bad"])

    def test_what_the_engine_finds_wrong_with_flags(self):
        """Whoever finds it out, on real devices, on simulated ones and where it is only planned: the command line is at fault."""
        moe = os.path.join(support.GOLDEN, "models", "qwen3-moe")
        latent = os.path.join(support.GOLDEN, "models", "deepseek-v3")
        two = ["--devices", "2xcpu", "--device-profile", "zen4"]
        for code, *flags in (("kv_offload_invalid", "--kv-offload", "always"),
                             ("kv_file_invalid", "--kv-file", os.path.join(self.folder, "kv"), "--kv-file-keep", "--device-profile", "zen4"),
                             ("kv_offloading_size_invalid", "--kv-offloading-size", "64"),
                             ("placement_cannot", *two, "--layout", "dp=2,experts=by_expert,expert-size=1"),
                             ("ship_cannot", "--devices", "3xcpu", "--layout", "dp=3,weights=sharded,pool=3", "--mode", "ship"),
                             ("routed_cannot", "--mode", "routed"),
                             ("shift_invalid", "--shift-parallel-threshold", "8"),
                             ("shift_invalid", *two, "--layout", "sp=2", "--shift-mode", "3x1"),
                             ("layout_leaves", "-tp", "5"), ("layout_layers", "-pp", "5"), ("layout_pool", "--layout", "pool=1"),
                             ("pool_too_few_slots", *two, "--layout", "dp=2,weights=striped,pool=3", "--pool-slots", "1"),
                             ("quantization_unsupported", "--quantization", "fp8"), ("quantization_unsupported", "--quantization", "int4", "--dtype", "float32"),
                             ("kv_cache_dtype_unsupported", "--kv-cache-dtype", "int8"),
                             ("policy_not_of_a_machine", "--scheduling-policy", "vasuki-printed")):
            with self.subTest([code, *flags]):
                self.one.model = moe if "experts=" in str(flags) else latent if "--kv-cache-dtype" in flags else support.LLAMA
                self.refused(support.USAGE, f"[{code}]", flags=flags)
                trace = ["run", "-m", self.one.model, "--trace", "synthetic:n=2,prompt=4,output=2", "--memory", "64MiB"]
                self.expect(support.call(*trace, *flags), support.USAGE, f"[{code}]")
        for code, model, *flags in (("layout_leaves", "builtin:Qwen3-32B", "--devices", "sim:9xh200", "--layout", "tp=9"),
                                    ("ship_cannot", "builtin:Qwen3-32B", "--devices", "sim:3xh200", "--layout", "dp=3,weights=sharded,pool=64", "--mode", "ship"),
                                    ("placement_cannot", moe, *two, "--layout", "dp=2,experts=by_expert,expert-size=1"),
                                    ("routed_cannot", moe, "--mode", "routed"), ("shift_invalid", moe, "--shift-parallel-threshold", "8")):
            self.expect(support.call("plan", "--memory", "-m", model, *flags), support.USAGE, f"[{code}]")

    def test_flags_have_our_form(self):
        """Errors of flags look like all others, and say what was meant."""
        for flags, *texts in ((["--max-num-seqs", "0"], "\"0\" is no integer above 0"), (["--bogus"], "--bogus is no flag of forebay run"),
                              (["--max-num-seq", "3"], "did you mean --max-num-seqs?"), (["--enforce-eager"], "there are no captured graphs"),
                              (["--swap-space", "4"], "see --kv-offloading-size"),
                              (["--trust-remote-code"], "no code of a model is run"), (["--threads"], "--threads"),
                              (["--layout", "tp=1", "--tensor-parallel-size", "2"], "--layout tp=1 and --tensor-parallel-size"),
                              (["--layout", "tp=1", "--ulysses-sequence-parallel-size", "2"], "say --layout sp=2"),
                              (["--tensor-parallel-size", "0"], "\"0\" is no integer above 0")):
            with self.subTest(flags):
                finished = self.expect(self.one.run(*flags), support.USAGE, "forebay: error: ", "[invalid_argument]", *texts)
                self.assertLess(len(finished.err), 400)
        for arguments in ([], ["run"], ["nothing"], ["--nothing"]):
            self.expect(support.call(*arguments), support.USAGE, "forebay: error: ", "[invalid_argument]")
        self.one.output = "-"
        self.refused(support.USAGE, "--output-file is -; expected a file", nothing_written=False)

    def test_empty_values(self):
        """A variable that a script did not set is no value: neither 0 nor the flag left out."""
        for flags in (["--shard", ""], ["--max-model-len", ""], ["--threads", ""], ["--grace", ""], ["--memory", ""], ["--summary", ""],
                      ["--kv-file", ""], ["--served-model-name", ""]):
            with self.subTest(flags):
                self.refused(support.USAGE, "[invalid_argument]", f"{flags[0]}: the value is empty", flags=flags)
        self.expect(support.call("pack", "", "--capacity", "3"), support.USAGE, "requests: the value is empty")

    def test_flags_that_would_do_nothing(self):
        """In a batch nobody is there to notice: they are refused, and what would give them a meaning is named."""
        roles = ["--devices", "2xcpu", "--context", "dp=1", "--generation", "dp=1"]
        for flags, text in ((["--trace-rows", "3"], "--trace-rows and --trace-scale are for a --trace"),
                            (["--trace-scale", "2"], "--trace-rows and --trace-scale are for a --trace"),
                            (["--sim-detail", "full"], "--sim-detail is for simulated devices"),
                            (["--gpu-memory-utilization", ".5"], "--gpu-memory-utilization 0.5 is for GPUs, real or simulated; expected --memory"),
                            (["--kv-preempt", "park"], "--kv-preempt park: there is nothing below the device; expected --kv-offloading-size"),
                            (["--length-predictor", "mean"], "--length-predictor with --scheduling-policy continuous"),
                            (["--overcommit", "2"], "--overcommit with --scheduling-policy continuous"),
                            (["--debug-sync"], "--debug-sync on devices cpu, which are no real GPUs"),
                            (["--no-cuda-graphs"], "--no-cuda-graphs on devices cpu, which are no real GPUs"),
                            (["--state-every", "64"], "--state-every 64: LlamaForCausalLM has no layers that keep a state"),
                            (["--mode", "ship"], "--mode ship with groups=1,dp=1"), (["--mode", "pull", "--devices", "2xcpu"], "--mode pull with groups=1,dp=2"),
                            ([*roles, "--mode", "ship"], "--mode ship with groups=1,dp=1"),
                            ([*roles, "--generation-mode", "ship"], "--generation-mode ship with groups=1,dp=1"),
                            (["--pool-slots", "1GiB"], "--pool-slots with groups=1,dp=1"), (["--steal", "always"], "--steal always with groups=1,dp=1"),
                            (["--expert-merge", "--devices", "2xcpu", "--layout", "dp=2,weights=striped"], "--expert-merge with groups=1,dp=2"),
                            (["--ship-threshold", "8", "--devices", "2xcpu"], "--ship-threshold with groups=1,dp=2")):
            with self.subTest(flags):
                self.refused(support.USAGE, "[invalid_argument]", text, flags=flags)
        trace = ["run", "-m", "builtin:Qwen3-32B", "--devices", "sim:h200", "--trace", "synthetic:n=2,prompt=4,output=2"]
        for flag in ("--strict", "--retry-failed", "--preserve-order"):
            self.expect(support.call(*trace, flag), support.USAGE, f"{flag} is for jobs that have results [invalid_argument]")
        plan = ["plan", "--memory", "-m", support.LLAMA]
        self.expect(support.call(*plan, "--trace-rows", "3"), support.USAGE, "--trace-rows is for a --trace")
        self.expect(support.call(*plan, "--pool-look-ahead", "1"), support.USAGE, "--pool-look-ahead with groups=1,dp=1", "no ranks share weights")
        columns = ["--device-profile", "zen4", "--devices", "2xcpu", "--layout", "dp=2", "--layout", "dp=2,weights=striped,pool=3"]
        self.expect(support.call(*plan, *columns, "--pool-look-ahead", "1"), support.COMPLETE)  # one of them has a use for it
        self.expect(support.call(*plan, *columns, "--expert-rows", "8"), support.USAGE, "--expert-rows with groups=1,dp=2")
        self.expect(support.call(*trace, "--routed-threshold", "8"), support.USAGE, "--routed-threshold with groups=1,dp=1")

    def test_a_plan_in_which_nothing_can_run(self):
        plan = ["plan", "-m", "builtin:Qwen3-32B", "--trace", "synthetic:n=2,prompt=4,output=2"]
        finished = self.expect(support.call(*plan, "--devices", "sim:2xh20", "--memory-per-rank", "9GiB"), support.ERROR,
                               "no layout can run the job, the first for: ", "[memory_too_small]")
        self.assertIn("tp=2", finished.out, "each is shown with its reason")
        self.expect(support.call(*plan, "--devices", "2xcpu", "--device-profile", "x"), support.USAGE, "[profile_unknown]")
        shown = self.expect(support.call(*plan, "--pool", "--devices", "sim:2xh20"), 0).out
        self.assertIn("nothing is left to choose; expected pool=auto", shown)

    def test_streams_that_fail(self):
        """What standard output loses, or standard input does not give, is no success."""
        many = "synthetic:n=2000,prompt=5,output=5"
        for arguments in (["--version"], ["run", "--help"], ["repro", "--list"], ["plan", "--memory", "-m", support.LLAMA],
                          ["plan", "--memory", "--json", "-m", support.LLAMA], ["pack", many, "--capacity", "90", "--placements", "1"],
                          ["pack", many, "--capacity", "90", "--placements", "1", "--json"]):
            with self.subTest(arguments), open("/dev/full", "wb") as full:
                done = subprocess.run(support.command(*arguments), stdout=full, stderr=subprocess.PIPE, timeout=120)
                self.assertEqual(done.returncode, support.ERROR, done.stderr)
                self.assertIn(b"standard output: not all lines could be written [io_error]", done.stderr)
        folder = os.open(self.folder, os.O_RDONLY)
        done = subprocess.run(support.command("detokenize", "-m", support.LLAMA), stdin=folder, capture_output=True, timeout=120)
        os.close(folder)
        self.assertEqual(done.returncode, support.ERROR, done.stderr)
        self.assertIn(b"standard input: cannot be read behind line 0: Is a directory [io_error]", done.stderr)

    def test_a_profile_stays_until_another_is_measured(self):
        path = os.path.join(self.folder, "profile.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write("precious")
        self.expect(support.call("profile", "-o", path, "--isa", "x"), support.USAGE, "isa_unavailable")
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "precious")
        self.expect(support.call("profile", "-o", self.folder), support.ERROR, "cannot be written: Is a directory [io_error]")

    def test_spellings_of_others(self):
        self.one.flags = ["--skip-tokenizer-init", "--digest", "--memory", "256MiB"]
        self.expect(self.one.run(), support.COMPLETE)
        choices = self.one.bodies()[None]["choices"]
        for flags in (["--max_num_seqs", "1"], ["--max_num_batched_tokens=64"], ["--tensor-parallel-size", "2"], ["-tp", "2"],
                      ["-tp", "2", "--devices", "2xcpu"], ["--data_parallel_size=2"], ["-pp", "2"],
                      ["--ulysses-sequence-parallel-size", "2", "--device-profile", "zen4"]):
            with self.subTest(flags):
                self.one.forget()
                self.expect(self.one.run(*flags), support.COMPLETE)
                self.assertEqual(self.one.bodies()[None]["choices"], choices)
        self.assertIn("shift_switches", self.one.summary()["mode_counters"], "the last one cut rows")

    def test_a_value_behind_a_switch(self):
        """`--memory` of `run` takes a size, that of `plan` none: the message says so, and which flag does."""
        self.expect(support.call("plan", "-m", support.LLAMA, "--memory", "8GiB"), support.USAGE,
                    "--memory of forebay plan takes no value, and 8GiB follows it; did you mean --memory-per-rank 8GiB? [invalid_argument]")
        self.expect(support.call("plan", "-m", support.LLAMA, "--pool", "3"), support.USAGE, "--pool of forebay plan takes no value, and 3 follows it")
        self.refused(support.USAGE, "invalid_argument", "--quiet of forebay run takes no value, and yes follows it [", flags=["--quiet", "yes"])

    def test_the_switch_of_the_plug_in(self):
        """--[no-]enable-shift-parallel: whether steps take modes of their own, by the counters of steps of each mode."""
        self.one.flags = ["--skip-tokenizer-init", "--digest", "--memory", "256MiB", "--devices", "2xcpu", "--device-profile", "zen4"]
        self.expect(self.one.run("--layout", "sp=2"), support.COMPLETE)
        choices = self.one.bodies()[None]["choices"]
        modes = {}
        for flag in ("--enable-shift-parallel", "--no-enable-shift-parallel"):
            self.one.forget()
            self.expect(self.one.run("--layout", "sp=2", flag), support.COMPLETE)
            self.assertEqual(self.one.bodies()[None]["choices"], choices)
            modes[flag] = {name for name, steps in self.one.summary()["mode_counters"].items() if name.startswith("steps_sp") and steps > 0}
        self.assertEqual(modes["--no-enable-shift-parallel"], {"steps_sp2tp1"})
        self.assertIn("steps_sp1tp2", modes["--enable-shift-parallel"], "one row is cheaper with the weights cut")
        for flags, text in ((["--layout", "sp=1,tp=2", "--no-enable-shift-parallel"], "--no-enable-shift-parallel of a layout with sp=1"),
                            (["--layout", "dp=2", "--enable-shift-parallel"], "--enable-shift-parallel of a layout with sp=1"),
                            (["--layout", "sp=2", "--enable-shift-parallel", "--shift-mode", "2x1"], "--shift-mode 2x1 are both given"),
                            (["--layout", "sp=2", "--no-enable-shift-parallel", "--shift-modes", "ends"], "--no-enable-shift-parallel and --shift-mode")):
            with self.subTest(flags):
                self.one.forget()
                self.refused(support.USAGE, "shift_invalid", text, flags=flags)

    def test_small_limits(self):
        """A limit of the process ends in a code, or does not matter; never in a signal."""
        for limit in ("-s 64", "-v 400000", "-v 600000", "-v 1000000"):
            self.one.forget()
            shell = " ".join(f"'{part}'" for part in support.command(*self.one.arguments("--threads", "2")))
            done = subprocess.run(["bash", "-c", f"ulimit {limit} && exec {shell}"], capture_output=True, timeout=120)
            err = done.stderr.decode()
            self.assertIn(done.returncode, (support.COMPLETE, support.ERROR), f"{limit}: {err}")
            if done.returncode == support.ERROR:
                self.assertRegex(err, r"forebay: error: .*\[(thread_unavailable|out_of_memory|io_error|memory_too_small)\]")
        self.one.forget()
        shell = " ".join(f"'{part}'" for part in support.command(*self.one.arguments()))
        self.assertEqual(subprocess.run(["bash", "-c", f"ulimit -s 64 && exec {shell}"], timeout=120).returncode, support.COMPLETE)

    def test_no_room_for_a_stack(self):
        """Where stacks are small the command line runs in a thread of its own; a process that gets none says so."""
        ends = []
        for mebibytes in range(8, 400, 3):
            done = subprocess.run(["bash", "-c", f"ulimit -s 256 -v {mebibytes << 10} && exec '{support.command()[0]}' --version"],
                                  capture_output=True, timeout=120)
            err = done.stderr.decode()
            if "forebay: error: " in err:
                self.assertEqual(done.returncode, support.ERROR, err)
                self.assertRegex(err, r"^forebay: error: .*\[(thread_unavailable|out_of_memory)\]\n$")
            ends.append((done.returncode, err))
            if done.returncode == 0:
                break
        self.assertEqual(ends[-1][0], 0, ends[-1])
        self.assertTrue(any("[thread_unavailable]" in err for _, err in ends), ends)

    def test_text_without_a_tokenizer(self):
        self.one.flags = ["--random-weights"]
        self.one.model = tiny_model.write(os.path.join(self.folder, "tiny"))
        self.refused(support.ERROR, "tokenizer_not_found", "--skip-tokenizer-init")

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
        self.expect(self.one.run("--max-model-len", "1"), support.ALL_FAILED)
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
                            "/dev/null": "io_error"}.items():
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
        for flags in ([], ["--quantization", "int8"]):
            self.expect(self.run_model(self.model, *flags), support.ERROR, "tensor_not_finite", "model.safetensors", "row ")

    def test_int8_of_a_model_that_is_int8(self):
        said = "--quantization int8 changes nothing"
        for model, says in (("qwen3-w8a8", True), ("llama3-gqa", False)):
            finished = self.expect(self.run_model(os.path.join(support.GOLDEN, "models", model), "--quantization", "int8"), support.COMPLETE)
            self.assertEqual(said in finished.err, says, finished.err)

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
            lines = [{"prompt": f"hello {i}", "max_tokens": 60, "logprobs": 2, "echo": True} for i in range(60)]
            job = self.job(lines, "changing", model=path)
            job.forget()
            process = job.start("--max-num-seqs", "2")
            while not job.whole_lines() and process.poll() is None:
                time.sleep(0.001)
            os.truncate(os.path.join(path, "model.safetensors") if is_folder else path, 0)
            _, err = process.communicate(timeout=120)
            self.assertIn(process.returncode, (support.COMPLETE, support.ERROR), err)
            job.answers()

    def test_files_that_shrink_while_they_are_read(self):
        """Wherever in the start the file is cut, the job ends with a code."""
        path = tiny_model.write(self.model, hidden_size=128, intermediate_size=512, num_hidden_layers=4, vocab_size=1024)
        weights = os.path.join(path, "model.safetensors")
        with open(weights, "rb") as file:
            content = file.read()
        codes = []
        for trial in range(16):
            with open(weights, "wb") as file:
                file.write(content)
            job = self.job(ONE, f"shrinking{trial}", model=path, flags=["--skip-tokenizer-init"])
            process = job.start()
            time.sleep(0.004 * trial)
            os.truncate(weights, len(content) // 7)
            _, err = process.communicate(timeout=120)
            self.assertIn(process.returncode, (support.COMPLETE, support.ERROR), err)
            if process.returncode == support.ERROR:
                self.assertRegex(err.decode(), r"\[(weights_file_changed|safetensors_truncated)\]")
            codes.append(process.returncode)
        print(f"ends: {codes}")

    def test_bytes_of_files_are_text(self):
        """What a model file holds cannot steer the terminal, fake a line, or fill the screen."""
        shutil.copytree(support.LLAMA, self.model)
        path = os.path.join(self.model, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        nasty = "\x1b]0;title\x07\x1b[2J\r\nforebay: complete\u202e" + "x" * 100_000
        for change in ({"hidden_act": nasty}, {"architectures": [nasty]}, {"rope_scaling": {"rope_type": nasty, "factor": 2}}):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(config | change, file)
            err = self.expect(self.run_model(self.model), support.ERROR, "\\x1b]0;title\\x07", "[model_").err
            self.assertLess(len(err), 3000)
            self.assertFalse(set(err) & set("\x1b\x07\r\u202e"))
            self.assertEqual(len(err.splitlines()), 1)
        # Names in a message are quoted and cut on their own, so that what follows them stays.
        name = ("\x1b[2J" + "z" * 100_000).encode()
        string = struct.pack("<Q", len(name)) + name
        path = self.model + ".gguf"
        for tensors, keys, more, what, message in ((1, 0, 99, "tensor", "99 extents; expected 1 to"), (0, 1, 77, "key", "unknown value type 77")):
            with open(path, "wb") as file:
                file.write(b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + string + struct.pack("<I", more) + bytes(64))
            err = self.expect(self.run_model(path), support.ERROR, what + ' "\\x1b[2Jzzzz', 'zzz...": ' + message, "[gguf_invalid]").err
            self.assertLess(len(err), 400)
            self.assertFalse(set(err) & set("\x1b\x07"))
        named = shutil.copytree(support.LLAMA, os.path.join(self.folder, "m\x1b[2J"))
        out = self.expect(support.call("plan", "--memory", "-m", named), support.COMPLETE).out
        self.assertIn("m\\x1b[2J on cpu", out)
        self.assertNotIn("\x1b", out)


if __name__ == "__main__":
    support.main()
