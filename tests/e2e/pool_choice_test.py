"""pool=auto on whole simulated jobs against what could have been forced, and what `forebay plan` says of a job."""
import contextlib
import io
import json
import os
import random
import re
import resource
import subprocess
import sys
from unittest import mock

import support

GRID = os.path.join(support.ROOT, "bench", "pool_grid.py")
sys.path.insert(0, os.path.dirname(GRID))
import pool_grid  # noqa: E402
CELLS = ("h20,Qwen3-32B,16,512+128,dp=8 weights=striped", "b200,Llama-3.1-70B,16,512+128,dp=8 weights=striped",
         "b200,Llama-3.1-70B,12,512+128,dp=4 tp=2 weights=striped", "h20,Qwen3-32B,24,512+64,dp=8 weights=by_layer")
JOB = "synthetic:n=400,prompt=2048,output=lognormal(7.5,0.5)"


def core_seconds():
    """Processor time of all children that have ended; it does not grow where others have the cores."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


class PoolChoice(support.TestCase):
    def test_auto_is_as_good_as_the_best_forced_setting(self):
        before = core_seconds()
        # A simulation runs on one core: two at once. FOREBAY_ALL_ROWS: all four cells.
        cells = (CELLS[:2], CELLS[2:]) if os.environ.get("FOREBAY_ALL_ROWS") else (CELLS[:1], CELLS[3:])
        halves = [subprocess.Popen([sys.executable, GRID, support.forebay, "--least", "0.98", *(word for cell in half for word in ("--cell", cell))],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for half in cells]
        for half, (out, err) in [(half, half.communicate()) for half in halves]:
            self.assertEqual(half.returncode, 0, out + err)
            self.assertEqual(out.count("\n| h20"), 1, out)
        self.assertLess(core_seconds() - before, 60)

    def test_a_grid_goes_on_where_it_was_killed(self):
        page, kept, calls = os.path.join(self.folder, "page.md"), os.path.join(self.folder, "runs.jsonl"), []
        cells = ["h20,Qwen3-32B,16,1024+256", "h200,Qwen3-32B,16,1024+256", "b200,Qwen3-32B,16,1024+256", "b200,Qwen3-32B,400,1024+256"]

        def run(forebay, cell, *forced):
            calls.append((cell, *forced))
            return {"seconds": 8.0 if cell.startswith("b200") else 10.0, "expected": 10.5}

        def compare(runs, cell):
            auto, forced = runs.get(cell, "auto"), runs.get(cell, "dp=8")
            return (f"| {cell.replace(',', ', ')} | chosen | {pool_grid.figure(auto['seconds'])} | {pool_grid.figure(auto['expected'])} | "
                    f"does not fit | dp=8 | {pool_grid.figure(forced['seconds'])} | {forced['seconds'] / auto['seconds']:.3f} |")

        def measure(*flags):
            calls.clear()
            line = ["grid", "forebay", "--runs", kept, "--page", page, "--cells", "*,16,*", *flags]
            with mock.patch.object(sys, "argv", line), contextlib.redirect_stdout(io.StringIO()):
                pool_grid.measure("", run, compare, lambda: cells, "# Page\n\n", "| head |\n|---|", "auto", 0.97, "copies")
            with open(page, encoding="utf-8") as file:
                return file.read()

        text = measure("--minutes", "0")
        self.assertEqual(calls, [])
        self.assertIn("0 of 4 cells have run", text)
        self.assertIn("Not run, 4 cells: all 3 of 16 x 1024+256; all 1 of 400 x 1024+256.", text)
        with open(page, "a", encoding="utf-8") as file:
            file.write("| h20, Qwen3-32B, 16, 1024+256 | chosen | 10.00 | 10.10 | 9.900 | dp=8 | 9.000 | 0.900 |\n")
        with open(kept, "w", encoding="utf-8") as file:
            file.write(json.dumps([[cells[1], "auto"], {"seconds": 10.0, "expected": 10.0}]) + "\n" + '[["h200,Qwen3-32B,16,1024+256", "dp')
        text = measure()
        # What the page has and what the runs have is not run again; what was cut off is.
        self.assertEqual(calls, [(cells[1], "dp=8"), (cells[2], "auto"), (cells[2], "dp=8")])
        self.assertIn("| 9.000 | 0.900 |", text)
        self.assertIn("3 of 4 cells have run. `auto` reaches 0.97 of the best forced setting in 2 of 3; not in h20,Qwen3-32B,16,1024+256 (0.900). "
                      "It is no slower than copies, where that fits, in 0 of 1; not in h20,Qwen3-32B,16,1024+256 (0.990). "
                      "The forecast is within 3 % of the simulation in 2 of 3; not in b200,Qwen3-32B,16,1024+256 (+31.2 %).", text)
        self.assertEqual(measure(), text)
        self.assertEqual(calls, [])
        measure("--again")
        self.assertEqual(calls, [(cells[0], "auto"), (cells[0], "dp=8"), (cells[1], "auto"), (cells[2], "auto")])

    def test_where_memory_is_short_all_layers_are_pooled_and_ship(self):
        done = support.call("plan", "--pool", "-m", "builtin:Llama-3.1-70B", "--devices", "sim:8xb200", "--layout",
                            "dp=8,weights=striped", "--trace", JOB)
        self.assertEqual(done.code, 0, done.err)
        self.assertIn("*  80 layers", done.out)
        seconds = {int(layers): float(rest) for layers, rest in re.findall(r"(\d+) layers: ([\d.]+) s", done.out)}
        if left_out := re.search(r"(\d+) of 81 numbers of layers were not tried", done.out):  # a slow machine
            self.assertEqual(len(seconds), 81 - int(left_out[1]))
        else:
            self.assertEqual(list(seconds), list(range(81)), "each number is foreseen")
        # Simulated: 282 s of copies, 118 s with all layers pooled.
        self.assertTrue(269 < seconds[0] < 296 and 112 < seconds[80] < 124, seconds)

    def test_layouts_are_ranked(self):
        before = core_seconds()
        done = support.call("plan", "-m", "builtin:Llama-3.1-70B", "--devices", "sim:8xh200", "--trace", JOB)
        self.assertEqual(done.code, 0, done.err)
        seconds = [float(line.lstrip("= ").split()[0]) for line in done.out.splitlines() if re.match(r"[= ] +[\d.]+ +\d+ ", line)]
        self.assertLess(core_seconds() - before, 15)  # a busy core of Zen 3 takes 8.3
        self.assertEqual(len(seconds), 10, done.out)
        self.assertEqual(seconds, sorted(seconds))
        # A copy fits on no device.
        self.assertRegex(done.out, r"dp=8,tp=1,pp=1,weights=replicated.*\[memory_too_small\]")

    def test_a_plan_is_of_the_policy_that_will_run(self):
        job = ["-m", "builtin:Llama-3-8B", "--devices", "sim:a10", "--trace", "synthetic:n=200,prompt=300,output=lognormal(5,1)"]
        summary, seconds = os.path.join(self.folder, "summary.json"), {}
        for policy in ("continuous", "static_batch", "sarathi"):
            flags = [*job, "--scheduling-policy", policy]
            seconds[policy] = float(self.expect(support.call("plan", *flags), support.COMPLETE).out.splitlines()[3].split()[0])
            self.expect(support.call("run", *flags, "--summary", summary, "--quiet"), support.COMPLETE)
            with open(summary, encoding="utf-8") as file:
                self.assertAlmostEqual(seconds[policy], json.load(file)["mode_counters"]["expected_ms"] / 1e3, delta=0.051)
        self.assertEqual(len(set(seconds.values())), 3, seconds)
        memory = ["plan", "--memory", *job[:4], "--json", "--scheduling-policy"]
        workspace = [json.loads(support.call(*memory, policy).out)["layouts"][0]["workspace_bytes"] for policy in ("continuous", "sarathi")]
        self.assertGreater(workspace[0], workspace[1], "sarathi has steps of 512 rows")
        self.expect(support.call("plan", *job, "--scheduling-policy", "makespan", "--length-predictor", "known"), support.COMPLETE)
        self.expect(support.call("plan", *job, "--scheduling-policy", "vasuki-printed"), support.USAGE, "policy_not_of_a_machine")
        self.expect(support.call("plan", *job, "--scheduling-policy", "none"), support.USAGE, "policy_unknown")

    def test_auto_runs_the_first_layout(self):
        job = ["-m", "builtin:Qwen3-32B", "--devices", "sim:4xh20", "--trace", "synthetic:n=60,prompt=512,output=64"]
        self.check_auto(job)
        experts = ["-m", "builtin:Qwen3-30B-A3B", *job[2:]]
        self.assertIn("experts=by_expert", self.check_auto(experts))
        unnamed = support.call("run", *experts)
        self.assertIn("--layout auto", unnamed.err)

    def check_auto(self, job):
        """What plan finds to be soonest runs, in about the time that it says. Returns what plan printed."""
        ranked = support.call("plan", *job)
        first = next(line for line in ranked.out.splitlines() if re.match(r" +[\d.]+ +\d+ ", line)).split()
        summary = os.path.join(self.folder, "auto.json")
        done = support.call("run", *job, "--layout", "auto", "--summary", summary)
        self.assertEqual(done.code, 0, done.err)
        self.assertIn(f"--layout auto: {first[-1]}", done.err)
        with open(summary, encoding="utf-8") as file:
            self.assertAlmostEqual(json.load(file)["elapsed_time"] / float(first[0]), 1, delta=0.1)
        return ranked.out

    def test_a_trace_leaves_the_layout_open(self):
        job = ["-m", "builtin:Qwen3-32B", "--devices", "sim:4xh20", "--trace", "synthetic:n=60,prompt=512,output=64"]
        asked = support.call("run", *job, "--layout", "auto")
        named = support.call("run", *job)
        taken = re.findall("--layout auto: .*", asked.err)
        self.assertEqual(len(taken), 1)
        self.assertEqual(re.findall("--layout auto: .*", named.err), taken)
        unknown = self.job([{"prompt": "x"}]).run("--devices", "2xcpu", "--layout", "auto", "--request-rate", "100")
        self.assertEqual(unknown.code, support.USAGE)
        self.assertIn("--layout auto: the job is not known before it runs", unknown.err)

    def test_layouts_of_a_file_of_requests(self):
        path = os.path.join(self.folder, "requests.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            for i in range(60):
                file.write(json.dumps({"prompt": [1 + i] * 512, "max_tokens": 64}) + "\n")
        job = ["-m", "builtin:Qwen3-32B", "--devices", "sim:4xh20"]
        lines = support.call("plan", *job, "-i", path, "--skip-tokenizer-init")
        self.assertEqual(lines.code, 0, lines.err)
        trace = support.call("plan", *job, "--trace", "synthetic:n=60,prompt=512,output=64,bound=1")
        self.assertEqual(lines.out, trace.out)
        # And what runs: the same choices, and the same seconds, foreseen and simulated.
        summary = os.path.join(self.folder, "summary.json")
        for layout in ("auto", "dp=4,weights=striped,pool=auto"):
            ran = []
            for work in (["-i", path, "--skip-tokenizer-init"], ["--trace", "synthetic:n=60,prompt=512,output=64,bound=1"]):
                done = self.expect(support.call("run", *job, "--layout", layout, *work, "--summary", summary), support.COMPLETE)
                with open(summary, encoding="utf-8") as file:
                    told = json.load(file)
                foreseen = re.findall(r"(?:pool=auto|--layout auto|expected of this job|the whole job was expected).*", done.err)
                ran.append([foreseen, told["mode_counters"]["expected_ms"]])
                self.assertEqual(len(foreseen), 3, done.err)
                self.assertAlmostEqual(told["elapsed_time"] / (1e-3 * told["mode_counters"]["expected_ms"]), 1, delta=0.1)
            self.assertEqual(*ran)
            if layout == "auto":  # and so without --layout
                unnamed = self.expect(support.call("run", *job, "-i", path, "--skip-tokenizer-init"), support.COMPLETE)
                self.assertEqual(re.findall("--layout auto.*", unnamed.err), [line for line in foreseen if line.startswith("--layout auto")])
        for timed in (["-i", path, "--skip-tokenizer-init"], ["--trace", "synthetic:n=60,prompt=512,output=64,bound=1"]):
            done = self.expect(support.call("run", *job, *timed, "--request-rate", 50), support.COMPLETE)
            self.assertNotIn("--layout auto", done.err)
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"prompt": 5}\n')
        none = support.call("plan", *job, "-i", path, "--skip-tokenizer-init")
        self.assertEqual(none.code, support.USAGE)
        self.assertIn("none of 1 lines can run", none.err)

    def test_a_real_job_is_known_and_goes_on_in_its_layout(self):
        lines = support.mixed_requests(random.Random(4), 40)
        flags = ["--memory", "128MiB", "--threads", 2, "--digest", "--max-model-len", 512]
        one = self.job(lines, "one", flags=flags)
        self.expect(one.run(), support.COMPLETE)
        job = self.job(lines, flags=[*flags, "--devices", "2xcpu", "--device-profile", "zen4"])
        for layout in ("auto", "dp=2,weights=striped,pool=auto"):
            told = []
            for kept in (0, 20):
                with open(job.output, "wb") as file:
                    file.writelines(one.whole_lines()[:kept])
                done = self.expect(job.run("--layout", layout), support.COMPLETE, "the whole job was expected to take")
                told.append(re.findall(r"(?:pool=auto|--layout auto|expected of this job).*", done.err))
                self.assertEqual(job.answers(), one.answers())
                self.assertEqual(job.summary()["num_resumed"], kept)
                self.assertGreater(job.summary()["mode_counters"]["expected_ms"], 0)
            self.assertEqual(*told)
            self.assertEqual(len(told[0]), 2)
        # Of a job of which no line can run, or that has none, nothing can be foreseen, and nothing need be.
        for content, end in ((b'{"prompt": 5}\n', support.ALL_FAILED), (b"", support.COMPLETE)):
            job.forget()
            job.write(content)
            self.assertEqual(job.run("--layout", "auto").code, end)

    def test_where_no_layer_is_pooled_a_forced_mode_says_that_it_was_not_taken(self):
        job = self.job(support.mixed_requests(random.Random(4), 40), flags=[
            "--memory", "512MiB", "--threads", 2, "--max-model-len", 512, "--devices", "2xcpu", "--device-profile", "zen4",
            "--layout", "dp=2,weights=striped,pool=auto", "--mode", "ship"])
        self.expect(job.run(), support.ERROR, "0 of 3 layers are pooled", "steps_ship is 0", "[mode_not_taken]")

    def test_a_cpu_is_measured_once(self):
        cache = os.path.join(self.folder, "cache")
        env = {**os.environ, "XDG_CACHE_HOME": cache}
        job = self.job(support.mixed_requests(random.Random(3), 12), flags=["--memory", "128MiB", "--threads", 2])
        self.assertEqual(job.run(env=env).code, support.COMPLETE)
        job.forget()
        done = self.expect(job.run("--devices", "2xcpu", env=env), support.COMPLETE)
        self.assertNotIn("--layout auto", done.err)
        self.assertFalse(os.path.exists(cache), "one rank needs no prices, nor do copies, which run where no layout is named")
        ranks = ["--devices", "2xcpu", "--layout", "dp=2,weights=striped,pool=auto"]
        names = []
        for told in (True, False):
            job.forget()
            done = job.run(*ranks, env=env)
            self.assertEqual(done.code, support.COMPLETE, done.err)
            self.assertEqual("measuring 1 of" in done.err, told, done.err)
            names.append(job.summary()["device_profile"])
        self.assertEqual(len(set(names)), 1)
        profile = os.path.join(cache, "forebay", names[0] + ".json")
        # By the same profile the real ranks and the simulated ones choose the same.
        plan = ["plan", "--pool", "-m", support.LLAMA, "--layout", "dp=2,weights=striped", "--memory-per-rank", "64MiB", "--threads", 2,
                "--pool-slice", "1MiB", "--trace", "synthetic:n=40,prompt=64,output=32"]
        real = support.call(*plan, "--devices", "2xcpu", env=env)
        self.assertEqual(real.code, 0, real.err)
        self.assertNotIn("measuring", real.err)
        self.assertEqual(real.out, support.call(*plan, "--devices", f"sim:2x{profile}").out)
        # So are modes of steps whose rows are cut.
        job.forget()
        done = self.expect(job.run("--devices", "2xcpu", "--layout", "sp=2", env=env), support.COMPLETE)
        self.assertNotIn("measuring", done.err)
        self.assertEqual(job.summary()["device_profile"], names[0])


if __name__ == "__main__":
    support.main()
