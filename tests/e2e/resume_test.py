"""What the results file is as a journal: what is taken over, what is refused and why, odd inputs, order."""
import json
import os
import random
import shutil
import signal
import time

import support
import tiny_model

TEMPLATE = "the chat template or tokenizer_config.json (--chat-template)"
DEFAULTS = "the sampling defaults (generation_config.json, --generation-config, --defaults)"
TEXT = "--skip-tokenizer-init or --parse-special-in-content"


def requests(count, seed=21, **more):
    return support.mixed_requests(random.Random(seed), count, **more)


class Changed(support.TestCase):
    """A finished job run again with one thing changed stops, and says which of the four."""

    before = b""  # its results, of one run for all tests

    def setUp(self):
        super().setUp()
        self.model = os.path.join(self.folder, "model")
        shutil.copytree(support.LLAMA, self.model)
        self.lines = requests(40)
        self.finished = self.job(self.lines, model=self.model)
        if not Changed.before:
            self.expect(self.finished.run(), support.COMPLETE)
            Changed.before = self.finished.raw()
        with open(self.finished.output, "wb") as file:
            file.write(self.before)

    def refused(self, what, *flags):
        finished = self.expect(self.finished.run(*flags), support.MISMATCH, "results_of_another_job", self.finished.output,
                               f"what changed: {what} (")
        self.assertEqual(finished.err.count(" there, "), 1, "only one of the four changed")
        self.assertEqual(self.finished.raw(), self.before, "a refused file stays as it is")

    def change_file(self, name, change):
        path = os.path.join(self.model, name)
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(change(content))

    def change_json(self, name, **members):
        self.change_file(name, lambda content: json.dumps(json.loads(content) | members).encode())

    def test_nothing(self):
        self.expect(self.finished.run(), support.COMPLETE, "going on")
        self.assertEqual(self.finished.raw(), self.before)
        self.assertEqual(self.finished.summary()["num_requests"], 0)

    def test_flags_that_cannot_change_an_answer(self):
        for flags in (["--threads", "2"], ["--max-num-batched-tokens", "64"], ["--max-num-seqs", "3"], ["--memory", "80MiB"],
                      ["--no-enable-prefix-caching"], ["--num-kv-blocks-override", "64"], ["--scheduling-policy", "static_batch"]):
            self.expect(self.finished.run(*flags), support.COMPLETE)
            self.assertEqual(self.finished.raw(), self.before, flags)

    def test_input_line(self):
        answered = min(number for number, result in self.finished.results().items() if result["response"]["status_code"] == 200)
        changed = list(self.lines)
        changed[answered - 1] = {"custom_id": "new", "prompt": "changed"}
        self.finished.write(changed)
        self.refused("the input line")
        self.finished.write(self.lines[1:])  # every line moved up
        self.refused("the input line")

    def test_input_shorter(self):
        self.finished.write(self.lines[:20])
        self.expect(self.finished.run(), support.MISMATCH, "which this input does not have")
        self.assertEqual(self.finished.raw(), self.before)

    def test_model_weights(self):
        self.change_file("model.safetensors", lambda content: content[:-1] + bytes([content[-1] ^ 0x01]))
        self.refused("the model")

    def test_model_config(self):
        self.change_json("config.json", rope_theta=10000.0)
        self.refused("the model")

    def test_other_model(self):
        self.finished.model = support.QWEN
        self.expect(self.finished.run(), support.MISMATCH, "the model (")
        self.assertEqual(self.finished.raw(), self.before)

    def test_settings_flags(self):
        for flags, what in ((["--seed", "7"], "--seed"), (["--max-model-len", "256"], "--max-model-len"),
                            (["--max-logprobs", "5"], "--max-logprobs"), (["--digest"], "--digest"),
                            (["--chat-template", "{{ messages[0].content }}"], TEMPLATE), (["--parse-special-in-content"], TEXT),
                            (["--seed", "7", "--digest"], "--seed, --digest")):
            with self.subTest(flags[0]):
                self.refused(what, *flags)

    def test_names_on_which_no_answer_depends(self):
        """A folder that is renamed or linked to, and another served name, go on with what is there."""
        link, renamed = os.path.join(self.folder, "link"), os.path.join(self.folder, "renamed")
        os.symlink(self.model, link)
        for flags in (["-m", link], ["--served-model-name", "other", "*"]):
            self.finished.model = flags[1] if flags[0] == "-m" else self.model
            self.expect(self.finished.run(*(flags if flags[0] != "-m" else [])), support.COMPLETE, "40 of 40 lines are done")
        os.rename(self.model, renamed)
        self.finished.model = renamed
        self.expect(self.finished.run(), support.COMPLETE, "40 of 40 lines are done")
        self.assertEqual(self.finished.raw(), self.before)

    def test_template_file(self):
        self.change_json("tokenizer_config.json", chat_template="{{ messages[0].content }}")
        self.refused(TEMPLATE)

    def test_tokenizer(self):
        def swap_two_tokens(content):
            tokenizer = json.loads(content)
            vocabulary = tokenizer["model"]["vocab"]
            vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
            return json.dumps(tokenizer).encode()
        self.change_file("tokenizer.json", swap_two_tokens)
        self.refused("the model")

    def test_tokenizer_settings(self):
        self.change_json("tokenizer_config.json", add_bos_token=False)
        self.refused(TEMPLATE)
        shutil.copy(os.path.join(support.LLAMA, "tokenizer_config.json"), self.model)
        self.refused(f"{TEMPLATE}, {TEXT}", "--skip-tokenizer-init")

    def test_sampling_defaults(self):
        for change in ({"temperature": 0.25}, {"top_k": 3}, {"max_new_tokens": 7}, {"repetition_penalty": 1.5}):
            self.change_json("generation_config.json", **change)
            self.refused(DEFAULTS)
            self.expect(self.finished.run("--generation-config", "vllm"), support.COMPLETE)
            shutil.copy(os.path.join(support.LLAMA, "generation_config.json"), self.model)

    def test_end_tokens(self):
        self.change_json("generation_config.json", eos_token_id=[317])
        self.expect(self.finished.run(), support.MISMATCH, "results_of_another_job")
        self.assertEqual(self.finished.raw(), self.before)

    def test_numerics(self):
        self.refused("the numerics class", "--dtype", "float32")
        job = self.job([{"prompt": "a", "max_tokens": 2}], "classes", model=self.model)
        self.expect(job.run(), support.COMPLETE)
        for flag, value, now in (("--kv-cache-dtype", "int8", "-bf16-kvint8"), ("--kv-cache-dtype", "fp8", "-bf16-kvfp8"),
                                 ("--quantization", "int8", "-w8a8-kvbf16"), ("--quantization", "int4", "-int4-kvbf16")):
            refused = self.expect(job.run(flag, value), support.MISMATCH, "results_of_another_job")
            self.assertRegex(refused.err, rf"the numerics class \(fb-\w+-bf16-kvbf16 there, fb-\w+{now} now\)")

    def test_kernel_sets_of_one_class(self):
        """Two kernel sets give the same bits or say that they do not; ref is in the class of the others or in its own."""
        job = self.job(self.lines, "isa", model=self.model, flags=["--digest"])
        self.expect(job.run(), support.COMPLETE)
        before, same, other, absent = job.answers(), [], [], []
        for isa in ("ref", "avx2", "avx512f", "avx512bf16", "amx"):
            again = self.job(self.lines, "isa-" + isa, model=self.model, flags=["--digest", "--isa", isa])
            finished = again.run()
            if finished.code != support.COMPLETE:
                self.assertIn("isa_unavailable", finished.err)
                absent.append(isa)
                continue
            self.assertEqual(again.summary()["isa"], isa)
            if again.summary()["numerics_class"] == job.summary()["numerics_class"]:
                self.assertEqual(again.answers(), before, isa)
                self.expect(job.run("--isa", isa), support.COMPLETE)
                same.append(isa)
            else:
                self.expect(job.run("--isa", isa), support.MISMATCH, "the numerics class")
                other.append(isa)
        print(f"kernel sets of one class: {same}, of others: {other}, not on this machine: {absent}")

    def test_template_clock(self):
        """The job's clock is part of the settings where the template asks for it, and only there."""
        for template, code in (("{{ strftime_now('%Y') }}{{ messages[0].content }}", support.MISMATCH), ("{{ messages[0].content }}", support.COMPLETE)):
            job = self.job(self.lines, model=self.model, name=f"clock{code}", flags=["--chat-template", template])
            self.expect(job.run("--now", "2026-03-07T14:05:09"), support.COMPLETE)
            self.expect(job.run("--now", "2026-03-07T14:05:09"), support.COMPLETE)
            self.expect(job.run("--now", "2027-03-07T14:05:09"), code)


class Taken(support.TestCase):
    """What a resumed job takes over."""

    def finished(self, lines, **kwargs):
        job = self.job(lines, "whole", **kwargs)
        self.expect(job.run(), support.COMPLETE)
        return job

    def test_appended_lines_are_new(self):
        lines = requests(60)
        whole = self.finished(lines)
        job = self.job(lines[:35])
        self.expect(job.run(), support.COMPLETE)
        before = job.raw()
        job.write(lines)
        self.expect(job.run(), support.COMPLETE, "35 of 60 lines are done")
        self.assertTrue(job.raw().startswith(before))
        self.assertEqual(job.answers(), whole.answers())
        self.assertEqual(job.summary()["num_resumed"], 35)

    def test_missing_last_newline_and_then_more(self):
        lines = [json.dumps({"custom_id": str(i), "prompt": "x", "max_tokens": 2}).encode() for i in range(3)]
        job = self.job(b"\n".join(lines))
        self.expect(job.run(), support.COMPLETE)
        self.assertEqual(sorted(job.answers()), [1, 2, 3])
        job.write(b"\n".join(lines) + b"\n" + lines[0])
        self.expect(job.run(), support.COMPLETE, "3 of 4 lines are done")

    def test_torn_tail(self):
        lines = requests(30)
        whole = self.finished(lines)
        data, expected = whole.raw(), whole.answers()
        last = data[:-1].rfind(b"\n") + 1
        for cut in sorted(random.Random(1).sample(range(last, len(data)), 12)) + [last + 1, len(data) - 1]:
            with open(whole.output, "wb") as file:
                file.write(data[:cut])
            self.expect(whole.run(), support.COMPLETE)
            self.assertEqual(whole.answers(), expected)
        for tail in (b"\0" * 100, b'{"id":"batch_req_', b"{"):
            with open(whole.output, "wb") as file:
                file.write(data + tail)
            self.expect(whole.run(), support.COMPLETE, f"cut off {len(tail)} bytes")
            self.assertEqual(whole.raw(), data)

    def test_mixtures_of_experts(self):
        """Half of the results and a torn one are there; the rest is computed in other steps."""
        rng = random.Random(3)
        lines = [{"custom_id": str(i), "prompt": [rng.randrange(250) for _ in range(rng.randint(1, 90))], "max_tokens": rng.randint(1, 16),
                  "temperature": i % 2, "return_token_ids": True} for i in range(16)]
        for name in ("qwen3-moe", "mixtral", "deepseek-v3", "llama4-text"):
            whole = self.finished(lines, model=os.path.join(support.GOLDEN, "models", name), flags=["--skip-tokenizer-init", "--digest"])
            expected, results = whole.answers(), whole.whole_lines()
            with open(whole.output, "wb") as file:
                file.write(b"".join(results[:8]) + results[8][:40])
            self.expect(whole.run("--threads", 2, "--max-num-batched-tokens", 24, "--max-num-seqs", 3), support.COMPLETE,
                        "8 of 16 lines are done")
            self.assertEqual(whole.answers(), expected, name)
            self.assertTrue(all(b'"digest":"' in line for line in expected.values()))
            whole.forget()

    def test_files_that_are_no_results(self):
        job = self.job(requests(5))
        for content in (b"hello\n", b"{}\n", b'{"id":"x"}\n', b"\x7fELF\x02\x01", b"PK\x03\x04" * 1000, b"\xff\xfe", b" "):
            with open(job.output, "wb") as file:
                file.write(content)
            self.expect(job.run(), support.MISMATCH, "results_invalid", job.output)
            self.assertEqual(job.raw(), content, "it stays as it is")
        job.output = job.input
        before = job.raw()
        self.expect(job.run(), support.MISMATCH, "results_invalid")
        os.symlink(job.input, os.path.join(self.folder, "link"))
        job.output = os.path.join(self.folder, "link")
        self.expect(job.run(), support.MISMATCH, "results_invalid")
        self.assertEqual(job.raw(), before)

    def test_damage_in_the_middle(self):
        whole = self.finished(requests(30))
        data = whole.raw()
        lines = data.splitlines(keepends=True)
        for name, damaged in {"second result": lines + [lines[3]], "half a line": lines[:4] + [lines[4][:40] + b"\n"] + lines[5:],
                              "blank line": lines[:4] + [b"\n"] + lines[4:]}.items():
            with self.subTest(name):
                with open(whole.output, "wb") as file:
                    file.write(b"".join(damaged))
                self.expect(whole.run(), support.MISMATCH, "results_invalid")
                self.assertEqual(whole.raw(), b"".join(damaged))

    def test_results_may_be_taken_out(self):
        """Deleting results from the file is how lines are asked for once more."""
        whole = self.finished(requests(30))
        expected = whole.answers()
        lines = whole.whole_lines()
        with open(whole.output, "wb") as file:
            file.write(b"".join(lines[::2]))
        self.expect(whole.run(), support.COMPLETE, "15 of 30 lines are done")
        self.assertEqual(whole.answers(), expected)

    def test_preserve_order(self):
        lines = requests(80)
        whole = self.finished(lines)
        job = self.job(lines)
        self.expect(job.run("--preserve-order"), support.COMPLETE)
        self.assertEqual(list(job.answers()), list(range(1, 81)))
        self.assertEqual(job.answers(), whole.answers())
        ordered = job.raw()
        self.expect(job.run("--preserve-order"), support.COMPLETE)
        self.expect(job.run(), support.COMPLETE)
        self.assertEqual(job.raw(), ordered)
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(os.path.basename(p) for p in (
            whole.input, whole.output, whole.summary_path, job.input, job.output, job.summary_path)))
        job.write(lines + requests(20, seed=22))  # and on from an ordered file
        self.expect(job.run("--preserve-order"), support.COMPLETE, "80 of 100 lines are done")
        self.assertEqual(list(job.answers()), list(range(1, 101)))
        self.assertTrue(job.raw().startswith(ordered))
        before = whole.answers()  # of a run without it
        self.expect(whole.run("--preserve-order"), support.COMPLETE)
        self.assertEqual(list(whole.answers()), list(range(1, 81)))
        self.assertEqual(whole.answers(), before)

    def test_preserve_order_killed(self):
        lines = requests(40)
        whole = self.finished(lines)
        expected = whole.answers()
        data = whole.raw()
        with open(whole.output + ".ordered", "wb") as file:  # nobody's business but its owner's
            file.write(data[:1000])
        self.expect(whole.run("--preserve-order"), support.COMPLETE)
        self.assertEqual(list(whole.answers()), sorted(expected))
        self.assertEqual(whole.answers(), expected)
        with open(whole.output + ".ordered", "rb") as file:
            self.assertEqual(file.read(), data[:1000])


class Failed(support.TestCase):
    """Lines that failed: why, what it does to the exit code, how they are mended."""

    def test_all_failed_and_retried(self):
        lines = [{"prompt": "x", "max_tokens": 1, "model": "gpt-4o"}] * 30
        job = self.job(lines)
        self.expect(job.run(), support.ALL_FAILED, "failed: 30 x model_not_found, first at line 1: the model `gpt-4o`", "[all_lines_failed]")
        summary = job.summary()
        self.assertEqual(summary["end"], "all_failed")
        self.assertEqual([(f["code"], f["count"], f["first_line"]) for f in summary["failures"]], [("model_not_found", 30, 1)])
        self.expect(job.run("--served-model-name", "llama", "*"), support.ALL_FAILED)
        self.expect(job.run("--served-model-name", "llama", "*", "--retry-failed"), support.COMPLETE, "took out 30 failed results")
        self.assertEqual(job.summary()["failures"], [])
        self.assertEqual(len(job.answers()), 30)
        for names, code in ((["a", "gpt-4o"], support.COMPLETE), (["a", "b"], support.ALL_FAILED), (["org/gpt-4o"], support.ALL_FAILED)):
            job.forget()
            self.expect(job.run("--served-model-name", *names), code)
        self.assertNotIn("failed:", self.expect(job.run("--served-model-name", "*", "--retry-failed"), support.COMPLETE).err)

    def test_mended_line(self):
        job = self.job([{"prompt": "a", "max_tokens": 2}, {"prompt": "b", "max_tokens": -2}, {"prompt": "c", "max_tokens": 2}])
        self.expect(job.run(), support.COMPLETE, "failed: 1 x invalid_value, first at line 2")
        before = job.answers()
        job.write([{"prompt": "a", "max_tokens": 2}, {"prompt": "b", "max_tokens": 2}, {"prompt": "c", "max_tokens": 2}])
        self.expect(job.run(), support.COMPLETE, "took out 1 failed results")
        after = job.answers()
        self.assertEqual((after[1], after[3]), (before[1], before[3]))
        self.assertIn(b'"status_code":200', after[2])
        job.write([{"prompt": "z", "max_tokens": 2}, {"prompt": "b", "max_tokens": 2}, {"prompt": "c", "max_tokens": 2}])
        self.expect(job.run(), support.MISMATCH, "the input line")


class Disturbed(support.TestCase):
    """The results file removed, replaced, cut or written to while the job runs; outputs that are one file."""

    def test_results_file_while_it_is_written(self):
        def remove(path): os.remove(path)
        def move(path): os.rename(path, path + ".moved")
        def replace(path):
            os.rename(path, path + ".moved")
            with open(path, "w", encoding="utf-8") as file:
                file.write("hello\n")
        def cut(path): os.truncate(path, 0)
        def append(path):
            with open(path, "a", encoding="utf-8") as file:
                file.write("hello\n")
        lines = [{"prompt": "x", "max_tokens": 400, "ignore_eos": True}] * 300
        for harm in (remove, move, replace, cut, append):
            with self.subTest(harm.__name__):
                job = self.job(lines, harm.__name__)
                process = job.start("--max-num-seqs", "2")
                while len(job.whole_lines()) < 3 and process.poll() is None:
                    time.sleep(0.005)
                harm(job.output)
                _, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, support.RESULTS_IO, err.decode())
                self.assertIn(b"[results_replaced]", err)
                if harm in (replace, append):
                    self.assertIn(b"hello\n", job.raw())

    def test_a_hole_costs_its_lines(self):
        whole = self.job(requests(60))
        self.expect(whole.run(), support.COMPLETE)
        expected, data = whole.answers(), whole.raw()
        with open(whole.output, "r+b") as file:
            file.seek(len(data) // 3)
            file.write(b"\0" * (len(data) // 4))
        self.expect(whole.run(), support.COMPLETE, "never written, as a power cut leaves them")
        self.assertEqual(whole.answers(), expected)
        self.assertNotIn(b"\0", whole.raw())

    def test_outputs_that_are_taken(self):
        model = os.path.join(self.folder, "model")
        shutil.copytree(support.LLAMA, model)
        job = self.job(requests(5), model=model)
        with open(job.output, "w", encoding="utf-8"):
            pass
        hard, link = os.path.join(self.folder, "hard"), os.path.join(self.folder, "link")
        os.link(job.output, hard)
        os.symlink(os.path.join(model, "model.safetensors"), link)
        for flag in ("--summary", "--steps", "--report"):
            for path in (job.output, hard, job.input, link, os.path.join(model, "config.json")):
                before = {name: os.stat(name).st_size for name in (job.output, job.input, link)}
                job.summary_path = path if flag == "--summary" else os.path.join(self.folder, "summary")
                finished = job.run(*([] if flag == "--summary" else [flag, path]))
                self.expect(finished, support.USAGE, "[output_taken]", f"{flag} {path} would overwrite")
                self.assertEqual({name: os.stat(name).st_size for name in before}, before)
            none = os.path.join(self.folder, "none", "file")
            job.summary_path = none if flag == "--summary" else os.path.join(self.folder, "summary")
            self.expect(job.run(*([] if flag == "--summary" else [flag, none])), support.ERROR, "[io_error]", f"{flag} {none}: cannot be written")
            self.assertEqual(job.raw(), b"", "it is found out before anything runs")

    def test_profiles_are_not_overwritten(self):
        """Nor the folder of --generation-config, of which one file is read."""
        profile = os.path.join(self.folder, "mine.json")
        shutil.copy(os.path.join(support.ROOT, "src", "cost", "profiles", "zen4.json"), profile)
        job = self.job(requests(2))
        job.summary_path = os.path.join(self.folder, "summary")
        before = os.stat(profile).st_size
        self.expect(job.run("--device-profile", profile, "--steps", profile), support.USAGE, "[output_taken]", f"--device-profile {profile}")
        trace = ["run", "-m", support.LLAMA, "--trace", "synthetic:n=2", "--report", profile]
        for devices in (f"sim:{profile}", f"sim:2x{profile}:frequency_loss=0.1"):
            self.expect(support.call(*trace, "--devices", devices), support.USAGE, "[output_taken]", f"--devices {profile}")
        self.assertEqual(os.stat(profile).st_size, before)
        generation = os.path.join(self.folder, "generation_config.json")
        with open(generation, "w", encoding="utf-8") as file:
            file.write("{}")
        self.expect(job.run("--generation-config", self.folder, "--steps", generation), support.USAGE, "[output_taken]", "--generation-config")
        self.expect(job.run("--generation-config", self.folder), support.COMPLETE)


class Inputs(support.TestCase):
    def numbers(self, content, *flags):
        job = self.job(content)
        job.forget()
        self.expect(job.run(*flags), support.COMPLETE)
        return {number: result["custom_id"] for number, result in job.results().items()}

    LINE = b'{"custom_id":"%d","prompt":"x","max_tokens":1}'

    def test_line_ends(self):
        a, b, c = (self.LINE % i for i in (1, 2, 3))
        expected = {1: "1", 2: "2", 3: "3"}
        self.assertEqual(self.numbers(a + b"\n" + b + b"\n" + c + b"\n"), expected)
        self.assertEqual(self.numbers(a + b"\r\n" + b + b"\r\n" + c), expected)
        self.assertEqual(self.numbers(b"\xef\xbb\xbf" + a + b"\n" + b + b"\n" + c), expected)
        self.assertEqual(self.numbers(b"\n\n" + a + b"\n \t\r\n" + b + b"\n\n"), {3: "1", 5: "2"})
        self.assertEqual(self.numbers(b"  " + a + b"  \n"), {1: "1"})

    def test_nothing_to_do(self):
        for content in (b"", b"\n", b"\n\r\n  \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"):
            self.assertEqual(self.numbers(content), {}, content)
            self.assertEqual(self.numbers(content, "--preserve-order"), {})
            self.assertEqual(self.numbers(content, "--strict"), {})
        job = self.job([])
        self.assertIn("has no lines; there is nothing to do", self.expect(job.run(), support.COMPLETE).err)
        done = self.job([self.LINE % 7])
        self.expect(done.run(), support.COMPLETE)
        again = self.expect(done.run(), support.COMPLETE).err
        self.assertIn("no result by this run", again)
        self.assertNotIn("none", again)

    def test_equal_lines_and_custom_ids(self):
        job = self.job([self.LINE % 7] * 5)
        self.expect(job.run(), support.COMPLETE)
        results = job.results()
        self.assertEqual(sorted(results), [1, 2, 3, 4, 5])
        self.assertEqual({result["custom_id"] for result in results.values()}, {"7"})
        self.assertEqual(len({result["id"] for result in results.values()}), 5)

    def test_inputs_that_are_no_files(self):
        job = self.job([])
        for path in (os.path.join(self.folder, "none"), self.folder, "/dev/null", "/dev/zero"):
            job.input = path
            self.expect(job.run(timeout=60), support.BAD_INPUT, "input_unreadable")
            self.assertFalse(os.path.exists(job.output), "an input that cannot be read leaves no results file")


class TwoProcesses(support.TestCase):
    def test_second_is_refused(self):
        model = tiny_model.write(os.path.join(self.folder, "model"), max_position_embeddings=4096)
        lines = [{"custom_id": str(i), "prompt": [5], "max_tokens": 400, "ignore_eos": True} for i in range(40)]
        job = self.job(lines, model=model, flags=["--skip-tokenizer-init", "--max-num-seqs", "4"])
        first = job.start()
        while not job.whole_lines() and first.poll() is None:
            time.sleep(0.005)
        first.send_signal(signal.SIGSTOP)  # it has the file for as long as the others try
        self.assertIsNone(first.poll(), "the first run ended too soon to test anything")
        os.symlink(job.output, os.path.join(self.folder, "other-name"))
        for name in (job.output, os.path.join(self.folder, "other-name"), job.output):
            second = self.job(lines, "second", model=model, flags=job.flags)
            second.output = name
            self.expect(second.run(), support.LOCKED, name, "results_locked")
        first.send_signal(signal.SIGCONT)
        self.assertEqual(first.wait(120), support.COMPLETE)
        first.stderr.close()
        self.assertEqual(len(job.answers()), 40)
        self.expect(job.run(), support.COMPLETE, "40 of 40 lines are done")

    def test_lock_goes_with_the_process(self):
        lines = [{"prompt": "x", "max_tokens": 200, "ignore_eos": True}] * 40
        job = self.job(lines)
        first = job.start("--max-num-seqs", "2")
        while not job.whole_lines() and first.poll() is None:
            time.sleep(0.005)
        first.kill()
        self.assertEqual(first.wait(), -signal.SIGKILL)
        first.stderr.close()
        self.expect(job.run(), support.COMPLETE)
        self.assertEqual(len(job.answers()), 40)


if __name__ == "__main__":
    support.main()
