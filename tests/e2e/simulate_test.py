"""Traces and simulated devices as a user types them: what they write, and how they refuse."""
import json
import os
import subprocess

import support

TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,40,10\n0.5,30,20\n0.5,7,1\n2.25,100,5\n"


class Simulate(support.TestCase):
    def setUp(self):
        super().setUp()
        self.trace = self.write("trace.csv", TRACE)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def run_trace(self, *flags, model=support.LLAMA, code=0, texts=()):
        return self.expect(support.call("run", "-m", model, *flags), code, *texts)

    def test_simulated_trace(self):
        self.run_trace("--devices", "sim:8xh200", "--trace", self.trace, "--summary", self.path("s.json"), "--steps", self.path("st.jsonl"),
                       "--report", self.path("r.html"), "--profile", model="builtin:Qwen3-32B")
        summary = json.loads(self.read("s.json"))
        self.assertEqual((summary["num_requests"], summary["num_failed"], summary["prompt_tokens"], summary["output_tokens"]),
                         (4, 0, 177, 36))
        self.assertEqual(summary["end"], "complete")
        self.assertGreater(summary["elapsed_time"], 2.25)
        self.assertGreater(summary["median_ttft_ms"], 0)
        steps = [json.loads(line) for line in self.read("st.jsonl").splitlines()]
        self.assertEqual(len(steps), summary["engine"]["steps"])
        self.assertEqual(sum(step["decode_rows"] + step["prefill_rows"] for step in steps), summary["engine"]["computed_tokens"])
        self.assertEqual(sum(step["finished"] for step in steps), 4)
        report = self.read("r.html")
        self.assertIn("</svg>", report)
        self.assertNotIn("http", report.replace("http://www.w3.org/", ""), "nothing comes from a network")

    def test_windows_leave_their_memory_to_layers_that_see_all(self):
        """Gemma 3 4B and gpt-oss 20B at 8K: windows take what choices see and a step's rows, whole blocks of it cost little."""
        with open(os.path.join(support.GOLDEN, "models", "gemma3", "config.json"), encoding="utf-8") as file:
            gemma = json.load(file)
        del gemma["layer_types"]
        gemma |= {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "num_attention_heads": 8,
                  "num_key_value_heads": 4, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 1024,
                  "vocab_size": 262208, "max_position_embeddings": 131072}
        os.mkdir(self.path("gemma"))
        self.write("gemma/config.json", json.dumps(gemma))
        # Layers, those that see all, the window, bytes of a layer's position, choices.
        shapes = {self.path("gemma"): (34, 5, 1024, 4096, 32, "22GiB"), "builtin:gpt-oss-20b": (24, 12, 128, 2048, 64, "48GiB")}
        for model, (layers, full, window, token_bytes, choices, memory) in shapes.items():
            flags = ["-m", model, "--devices", "sim:h100", "--memory-per-rank", memory, "--max-model-len", "8192",
                     "--max-num-seqs", choices, "--max-num-batched-tokens", "2048"]
            done = self.expect(support.call("plan", "--memory", *flags, "--json"), 0)
            plan = json.loads(done.out)["layouts"][0]
            groups = {group["window"]: group for group in plan["kv_groups"]}
            self.assertEqual({at: group["layers"] for at, group in groups.items()}, {0: full, window: layers - full})
            self.assertEqual(groups[window]["blocks"], choices * (window // 32 + 2) + 2048 // 32 + 1)
            self.assertEqual(groups[0]["blocks"] * 32, plan["kv_tokens"])
            windows = (choices * window + 2048) * (layers - full) * token_bytes
            self.assertGreaterEqual(plan["kv_tokens"], .9 * (plan["kv_bytes"] - windows) / (full * token_bytes))
            self.assertRegex(self.expect(support.call("plan", "--memory", *flags), 0).out,
                             rf"KV blocks of .*\b{layers - full} layers that see the last {window}: {groups[window]['blocks']}\b")
            if window == 1024:  # All choices run at once, which equally many blocks for all layers would not hold.
                self.assertLess(plan["kv_bytes"] / (layers * token_bytes), choices * 7000)
                self.run_trace(*flags[2:], "--trace", "synthetic:n=32,prompt=7000,output=200", "--summary", self.path("s.json"),
                               model=model)
                engine = json.loads(self.read("s.json"))["engine"]
                self.assertEqual(engine["preemptions"], 0)
                self.assertGreaterEqual(engine["kv_blocks_used_peak"] * 32, choices * 7000)
                # Where nobody says how many choices run, as many do as fit by the job's lengths.
                done = self.expect(support.call("plan", "--memory", *flags[:8], *flags[10:], "--trace", "synthetic:n=99,prompt=7000,output=200",
                                                "--json"), 0)
                plan = json.loads(done.out)["layouts"][0]
                fitting = plan["kv_bytes"] / (((layers - full) * window + full * 7100) * token_bytes)
                self.assertLess(plan["max_num_seqs"], 1.2 * fitting)
                self.assertGreaterEqual(plan["kv_tokens"], .9 * fitting * 7100)

    def test_sums_take_as_long_as_the_given_link_needs(self):
        """A ninth of the link: jobs whose ranks add sums take longer, jobs of copies do not."""
        seconds = {}
        for layout in ("tp=8", "dp=8"):
            for device in ("h200", "h200:link_bytes_per_s=5e10"):
                self.run_trace("--devices", f"sim:8x{device}", "--layout", layout, "--trace", "synthetic:n=64,prompt=1024,output=16",
                               "--summary", self.path("s.json"), model="builtin:Qwen3-32B")
                seconds[layout, device] = json.loads(self.read("s.json"))["elapsed_time"]
        self.assertGreater(seconds["tp=8", "h200:link_bytes_per_s=5e10"], 1.5 * seconds["tp=8", "h200"])
        self.assertEqual(seconds["dp=8", "h200:link_bytes_per_s=5e10"], seconds["dp=8", "h200"])

    def test_what_is_expected_of_a_job_is_of_one_that_is_all_there(self):
        """A job whose requests wait for each other is not foreseen, and nobody compares it with a forecast."""
        job = ["--devices", "sim:2xh200", "--trace", "synthetic:n=20,prompt=64,output=8"]
        expected = "the whole job was expected to take"
        shown = self.run_trace(*job, model="builtin:Llama-3-8B").err
        self.assertIn(expected, shown)
        self.assertRegex(shown, r"prices of steps: \d+ % measured, \d+ % derived, \d+ % datasheet")
        for flags in (["--max-concurrency", "1"], ["--request-rate", "10"]):
            self.assertNotIn(expected, self.run_trace(*job, *flags, model="builtin:Llama-3-8B").err)

    def test_a_search_shows_how_far_it_is(self):
        """On a terminal one line moves, and goes at the end; elsewhere what goes to stderr has no control characters."""
        job = ["-m", "builtin:Llama-3-8B", "--devices", "sim:2xh200", "--trace", "synthetic:n=40,prompt=256,output=32"]
        for command in (["plan", *job], ["run", *job, "--layout", "auto"]):
            ours, theirs = os.openpty()
            with subprocess.Popen(support.command(*command), stdout=subprocess.DEVNULL, stderr=theirs) as search:
                os.close(theirs)
                shown = b""
                while True:
                    try:
                        shown += os.read(ours, 4096)
                    except OSError:  # what a terminal that nobody writes to any more says
                        break
            os.close(ours)
            self.assertEqual(search.returncode, 0, shown)
            self.assertRegex(shown.decode(), r"forebay: 1 of \d+ layouts foreseen, the best so far ")
            # What a run says of its choice stands on a line of its own.
            self.assertRegex(shown.decode(), r"\r\x1b\[K($|forebay: --layout auto: )")
            self.assertNotIn("\x1b", self.expect(support.call(*command), 0).err)

    def test_a_layout_that_cannot_win_is_not_foreseen_to_its_end(self):
        job = ["plan", "-m", "builtin:Llama-3-8B", "--devices", "sim:4xa10", "--memory-per-rank", "15GiB", "--max-num-batched-tokens", "1024",
               "--trace", "synthetic:n=200,prompt=512,output=64"]
        self.assertRegex(self.expect(support.call(*job), 0).out, r"\ngroups=1,dp=4,.*pool=auto.*: stopped: later than \d+\.\d s\n")
        layouts = json.loads(self.expect(support.call(*job, "--json"), 0).out)["layouts"]
        stopped = [layout for layout in layouts if "later_than_seconds" in layout]
        self.assertTrue(stopped)
        self.assertGreater(min(layout["later_than_seconds"] for layout in stopped), layouts[0]["seconds"])

    def test_a_figure_of_a_paper_as_csv_and_picture(self):
        """Its rows by its name; with another link other values, beside claims that nobody judges then."""
        csv, svg = self.path("figure.csv"), self.path("figure.svg")
        values = {}
        for flags in ([], ["--set", "link=5e10"]):
            self.expect(support.call("repro", "--figure", "SiDP 11", *flags, "--quick", "--csv", csv, "--svg", svg), 0)
            values[bool(flags)] = [line.split(",") for line in self.read("figure.csv").splitlines()[1:]]
            self.assertIn("</svg>", self.read("figure.svg"))
        self.assertTrue(values[False])
        self.assertEqual({row[-1] for row in values[True]}, {"not judged"})
        self.assertNotEqual([row[-3] for row in values[True]], [row[-3] for row in values[False]])
        self.expect(support.call("repro", "DW3", "--set", "link"), support.USAGE, "is no NAME=VALUE")
        self.expect(support.call("repro", "DW3", "--set", "link=5e10"), support.USAGE, "--set does not reach DW3")
        self.expect(support.call("repro", "DW3", "--set", "model=x"), support.USAGE, "[model_builtin_unknown]")

    def test_layouts_as_a_table_and_as_json(self):
        flags = ["plan", "-m", "builtin:Llama-3-8B", "--devices", "sim:2xh200", "--trace", "synthetic:n=40,prompt=256,output=32", "--price-per-hour", "8"]
        table = self.expect(support.call(*flags), 0, "foreseeing the job in each layout of sim:2xh200").out
        for text in ("$/1M tok", "KV tokens", "prices", "Ranks with tp add partial sums in fp32", "tp=2"):
            self.assertIn(text, table)
        plan = json.loads(self.expect(support.call(*flags, "--json"), 0).out)
        first = plan["layouts"][0]
        self.assertAlmostEqual(first["output_tokens_per_second"] * first["seconds"], 40 * 32, delta=1)
        self.assertAlmostEqual(first["price_per_million_output_tokens"], 8 / 3600 / first["output_tokens_per_second"] * 1e6, places=4)
        priced = [first[f"priced_{source}_percent"] for source in ("measured", "derived", "datasheet")]
        self.assertAlmostEqual(sum(priced), 100, places=6)
        self.assertGreater(priced[0], 0)
        bare = json.loads(self.expect(support.call(*flags, "--json", "--sim-uncalibrated"), 0).out)["layouts"][0]
        self.assertEqual(bare["priced_measured_percent"], 0)

    def test_roles_are_among_the_layouts(self):
        """Where they are soonest by far they come first, in the form in which they are typed, and `auto` runs them."""
        with open(self.path("rows.csv"), "w", encoding="utf-8") as file:
            file.write("prompt,output\n" + "".join(f"512,{100 if i % 16 else 1000}\n" for i in range(120)))
        job = ["-m", "builtin:Llama-3-8B", "--devices", "sim:2xh200", "--trace", self.path("rows.csv"), "--scheduling-policy", "static_batch",
               "--max-num-seqs", "16"]
        first, *others = json.loads(self.expect(support.call("plan", *job, "--json"), 0).out)["layouts"]
        roles = "--context dp=1 --generation dp=1"
        self.assertEqual((first["layout"], first["flags"], first["mode"]), ("", roles, "roles"))
        self.assertLess(1.05 * first["seconds"], min(other["seconds"] for other in others if "seconds" in other))
        self.assertIn(f"  roles         {roles}\n", self.expect(support.call("plan", *job), 0).out)
        named, = json.loads(self.expect(support.call("plan", *job, *roles.split(), "--json"), 0).out)["layouts"]
        self.assertEqual(named, first)
        for flags in (["--layout", "auto"], []):
            done = self.expect(support.call("run", *job, *flags, "--summary", self.path("roles.json")), 0, f"--layout auto: {roles}\n")
            summary = json.loads(self.read("roles.json"))
            self.assertAlmostEqual(summary["elapsed_time"] / first["seconds"], 1, delta=0.03)
            self.assertEqual(summary["mode_counters"]["expected_ms"], round(1e3 * first["seconds"]))
            self.assertEqual(summary["mode_counters"]["requests_handed_over"], 120, done.err)
        job[3] = "sim:3xh200"
        self.expect(support.call("plan", *job, "--context", "dp=1", "--generation", "dp=2,weights=striped"), support.USAGE, "roles_invalid",
                    "ranks that share weights")

    def test_figures_of_serving(self):
        """Rates a user, a rank and in the steady window, alone and by role."""
        trace = "synthetic:n=64,prompt=512,output=48"
        for layout, readers in ((["--layout", "dp=4"], 4), (["--context", "dp=1", "--generation", "dp=3"], 1)):
            self.run_trace("--devices", "sim:4xh200", *layout, "--trace", trace, "--request-rate", "100", "--summary", self.path("s.json"),
                           model="builtin:Qwen3-32B")
            summary = json.loads(self.read("s.json"))
            seconds = summary["elapsed_time"]
            self.assertEqual((summary["prompt_tokens"], summary["output_tokens"]), (64 * 512, 64 * 48))
            self.assertAlmostEqual(summary["context_tokens_per_second_per_rank"] * seconds * readers, 64 * 512, delta=64)
            self.assertAlmostEqual(summary["output_tokens_per_second_per_rank"] * seconds * 4, 64 * 48, delta=64)
            # A mean of rates is no less than the rate of the mean time.
            self.assertGreaterEqual(summary["tokens_per_second_per_user"], 0.999 * 1e3 / summary["mean_tpot_ms"])
            self.assertLess(summary["tokens_per_second_per_user"], 2e3 / summary["mean_tpot_ms"])
            begin, end = summary["steady_begin_seconds"], summary["steady_end_seconds"]
            self.assertAlmostEqual(begin, seconds / 4, delta=seconds / 100)
            self.assertAlmostEqual(end, 3 * seconds / 4, delta=seconds / 100)
            for name, ranks, tokens in (("context", readers, 64 * 512), ("output", 4, 64 * 48)):
                steady = summary[f"steady_{name}_tokens_per_second_per_rank"] * (end - begin) * ranks
                self.assertGreater(steady, 0)
                self.assertLess(steady, tokens)

    def test_the_same_trace_on_the_cpu(self):
        flags = ["--trace", self.trace, "--trace-scale", "0", "--memory", "64MiB", "--summary", self.path("s.json"), "--steps",
                 self.path("st.jsonl")]
        self.run_trace(*flags)
        real, real_steps = json.loads(self.read("s.json")), self.read("st.jsonl").splitlines()
        self.run_trace(*flags, "--devices", "sim:zen4")
        simulated, steps = json.loads(self.read("s.json")), self.read("st.jsonl").splitlines()
        for name in ("num_requests", "prompt_tokens", "output_tokens"):
            self.assertEqual(real[name], simulated[name], name)
        self.assertEqual([json.loads(step)["plan"] for step in real_steps], [json.loads(step)["plan"] for step in steps])

    def test_a_pulls_time_does_not_depend_on_its_slices(self):
        # Eight ranks that are nothing but pulls, one owner after another: links are shared among pairs of ranks, so that the
        # number of slices that a copy has under way gives it no larger share.
        per_token = {}
        for size in ("1GiB", "300MiB", "64MiB"):
            self.run_trace("--devices", "sim:8xh20", "--mode", "pull", "--max-num-seqs", "1", "--layout",
                           "dp=8,weights=by_layer,pool=64", "--pool-streams", "one", "--pool-slice", size, "--trace",
                           "synthetic:n=8,prompt=512,output=24", "--summary", self.path("s.json"), model="builtin:Qwen3-32B")
            per_token[size] = json.loads(self.read("s.json"))["mean_tpot_ms"]
        self.assertLess(max(per_token.values()), 1.05 * min(per_token.values()), per_token)

    def test_a_cache_of_bytes_is_half_as_large(self):
        # Of what one replica hands over to another, too; int8 has a scale of 4 bytes for 128 elements.
        found = {}
        for dtype in ("auto", "fp8", "int8"):
            self.run_trace("--devices", "sim:2xh200", "--context", "dp=1", "--generation", "dp=1", "--kv-cache-dtype", dtype, "--trace",
                           "synthetic:n=8,prompt=512,output=24", "--summary", self.path("s.json"), model="builtin:Qwen3-32B")
            found[dtype] = json.loads(self.read("s.json"))
        plain, fp8 = found["auto"], found["fp8"]
        self.assertEqual(plain["engine"]["kv_bytes_handed_over"], 8 * 512 * 262144)
        self.assertEqual(fp8["engine"]["kv_bytes_handed_over"], 8 * 512 * 262144 / 2)
        self.assertAlmostEqual(fp8["kv_capacity_tokens"] / plain["kv_capacity_tokens"], 2, delta=0.01)
        self.assertEqual(found["int8"]["engine"]["kv_bytes_handed_over"], 8 * 512 * 262144 / 2 * 132 / 128)
        self.assertAlmostEqual(found["int8"]["kv_capacity_tokens"] / plain["kv_capacity_tokens"], 256 / 132, delta=0.01)

    def test_a_job_with_text_and_measured_lengths(self):
        job = self.job([{"prompt": [5, 6, i], "max_tokens": 30, "n": 1 + i % 2} for i in range(20)] + [{"prompt": 3}], "text",
                       flags=["--skip-tokenizer-init"])
        self.expect(job.run(), 0)
        real = job.summary()
        flags = ["-i", job.input, "--skip-tokenizer-init", "--devices", "sim:zen4", "--summary", self.path("s.json")]
        finished = self.run_trace(*flags, "--output-lengths", job.output)
        self.assertIn("line 21", finished.err)
        simulated = json.loads(self.read("s.json"))
        self.assertEqual(simulated["num_failed"], 1)
        self.assertEqual(simulated["prompt_tokens"], real["prompt_tokens"])
        # A mean of two answers is rounded up.
        self.assertGreaterEqual(simulated["output_tokens"], real["output_tokens"])
        self.assertLessEqual(simulated["output_tokens"], real["output_tokens"] + 10)
        self.run_trace(*flags)
        self.assertEqual(json.loads(self.read("s.json"))["output_tokens"], 30 * 30)

    def test_a_real_job_draws_its_report(self):
        job = self.job([{"prompt": [5, 6, i], "max_tokens": 5} for i in range(9)], "real", flags=["--skip-tokenizer-init"])
        self.expect(job.run("--steps", self.path("st.jsonl"), "--report", self.path("r.html"), "--profile"), 0)
        self.assertEqual(len(self.read("st.jsonl").splitlines()), job.summary()["engine"]["steps"])
        for text in ("9 of 9 requests", "Where time went", "Running choices"):
            self.assertIn(text, self.read("r.html"))
        job.forget()
        self.expect(job.run("--report", "/dev/full"), support.ERROR, "io_error", "/dev/full")
        self.assertEqual(len(job.results()), 9, "the answers are safe")

    def test_names_are_inert_text(self):
        """Names of a model, of traces and of the report itself, with markup, control bytes and 4 KiB."""
        evil = "<script>alert(1)</script>\x1b[2J\x07\"'&"
        people = self.write("people \x01 <b>.csv", TRACE)
        batch = self.write("batch <img src=x onerror=y> \x7f.csv", TRACE)
        report = self.path("r <i> \x02.html")
        self.run_trace("--devices", "sim:8xh200", "--trace", people, "--batch-trace", batch, "--scheduling-policy", "interactive",
                       "--served-model-name", evil + 4096 * "<", "--report", report, model="builtin:Qwen3-32B")
        page = self.read(os.path.basename(report))
        self.assertIn("Rows a second by service", page)
        for text in ("<script", "<img", "<b>", "<<", *map(chr, [*range(1, 9), *range(14, 32), 127])):
            self.assertNotIn(text, page)

    def test_rows_that_the_context_cannot_hold_are_counted(self):
        trace = self.write("long.csv", "prompt,output\n10,10\n500,13\n500,12\n")
        self.run_trace("--devices", "sim:a10", "--trace", trace, "--summary", self.path("s.json"))
        summary = json.loads(self.read("s.json"))
        self.assertEqual((summary["max_model_len"], summary["num_requests"], summary["num_failed"]), (512, 3, 1))

    def test_why_lines_failed_is_said_and_nothing_but_failures_is_no_success(self):
        """Traces and simulated inputs end as jobs with results do."""
        trace = self.write("long.csv", "prompt,output\n500,13\n10,10\n400,200\n")
        for devices in (["--devices", "sim:a10"], ["--memory", "64MiB"]):
            self.run_trace(*devices, "--max-model-len", "512", "--trace", trace, "--summary", self.path("s.json"), texts=(
                "failed: 2 x context_length_exceeded, first at line 1: the row has 500 prompt and 13 output tokens",))
            summary = json.loads(self.read("s.json"))
            self.assertEqual([(failure["code"], failure["count"], failure["first_line"]) for failure in summary["failures"]],
                             [("context_length_exceeded", 2, 1)])
            self.assertEqual(summary["end"], "complete")
        trace = self.write("longer.csv", "prompt,output\n500,13\n400,200\n")
        job = self.job([{"prompt": 3}, b"{bad", {"prompt": 4}], "bad", flags=["--skip-tokenizer-init"])
        for flags, texts in ((["--trace", trace], ["all 2 lines failed: 2 x context_length_exceeded, first at line 1: the row"]),
                             (["-i", job.input, "--skip-tokenizer-init"], ["all 3 lines failed: 2 x invalid_type, first at line 1: `prompt`",
                                                                           "1 x json_invalid, first at line 2:"])):
            for more in (["--devices", "sim:a10"], ["--devices", "sim:a10", "--quiet"], ["--memory", "64MiB", "--quiet"]):
                if "-i" in flags and "--memory" in more:
                    continue  # a real job with results
                with self.subTest((flags[0], more)):
                    finished = self.run_trace(*flags, *more, "--max-model-len", "512", "--summary", self.path("s.json"),
                                              code=support.ALL_FAILED, texts=["[all_lines_failed]", *texts])
                    summary = json.loads(self.read("s.json"))
                    self.assertEqual((summary["end"], summary["num_failed"]), ("all_failed", summary["num_lines"]))
                    if "--quiet" in more:
                        self.assertEqual(len(finished.err.splitlines()), 1, finished.err)
        # Nothing to do is no failure.
        empty = self.job([], "empty", flags=["--skip-tokenizer-init"])
        self.run_trace("-i", empty.input, "--skip-tokenizer-init", "--devices", "sim:a10")

    def test_a_mode_that_was_not_taken_leaves_its_figures(self):
        """Why it was not stands in them."""
        self.run_trace("--devices", "sim:h200", "--trace", "synthetic:n=2,prompt=8,output=3", "--kv-offloading-size", "1GiB", "--kv-offload", "always",
                       "--summary", self.path("s.json"), "--report", self.path("r.html"), model="builtin:Qwen3-32B", code=support.ERROR,
                       texts=["kv_offload_unused"])
        self.assertEqual(json.loads(self.read("s.json"))["num_requests"], 2)
        self.assertIn("</svg>", self.read("r.html"))

    def test_bad_traces(self):
        for text, message in (("prompt,output\n5,-3\n", "line 2: column output: \"-3\""), ("prompt\n5\n", "no column gives the output's length"),
                              ("prompt,output\n5\n", "1 columns; expected 2"), ("", "no rows"),
                              ("prompt,output\n1,99999999999\n", "\"99999999999\" is no length"),
                              ("arrival,prompt,output\n3,1,1\n2,1,1\n", "line 3: column arrival")):
            with self.subTest(text):
                self.run_trace("--trace", self.write("bad.csv", text), "--devices", "sim:a10", code=support.ERROR, texts=["bad.csv", message, "trace_invalid"])
        self.run_trace("--trace", "/none.csv", "--devices", "sim:a10", code=support.ERROR, texts=["io_error"])
        self.run_trace("--trace", "synthetic:rows=3", "--devices", "sim:a10", code=support.ERROR, texts=["rows", "trace_invalid"])

    def test_flags_that_do_not_go_together(self):
        some = ["--trace", self.trace]
        for flags, text in ((["--devices", "sim:abacus", *some], "profile_unknown"), (["--devices", "gpu", *some], "devices_invalid"),
                            (["--devices", "sim:0xh200", *some], "devices_invalid"), (["--devices", "sim:h200"], "nothing to run"),
                            ([*some, "-i", self.trace], "exclude each other"), ([*some, "-o", self.path("o")], "--output-file"),
                            ([*some, "--trace-scale", "-1"], "--trace-scale"), ([*some, "--trace-rows", "-1"], "--trace-rows"),
                            ([*some, "--output-lengths", self.trace], "--output-lengths"), (["-i", self.trace], "--output-file is missing"),
                            ([*some, "--devices", "sim:a10", "--digest"], "--digest"), ([*some, "--sim-detail", "none"], "sim-detail")):
            with self.subTest(flags):
                self.run_trace(*flags, code=support.USAGE, texts=[text])

    def test_what_cannot_be_written_is_told(self):
        for flag in ("--steps", "--report"):
            self.run_trace("--trace", self.trace, "--devices", "sim:a10", flag, "/none/file", code=support.ERROR, texts=["io_error", "/none/file"])
            self.run_trace("--trace", self.trace, "--devices", "sim:a10", flag, "/dev/full", code=support.ERROR, texts=["io_error", "/dev/full"])

    def test_a_model_that_does_not_fit(self):
        self.run_trace("--trace", self.trace, "--devices", "sim:a10", model="builtin:Qwen3-32B", code=support.ERROR,
                       texts=["memory_too_small", "too much", "weights"])


if __name__ == "__main__":
    support.main()
