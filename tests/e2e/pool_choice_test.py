"""pool=auto on whole simulated jobs against what could have been forced, and what `forebay plan` says of a job."""
import json
import os
import re
import subprocess
import sys

import support

GRID = os.path.join(support.ROOT, "bench", "pool_grid.py")
CELLS = ("h20,Qwen3-32B,16,512+128,dp=8 weights=striped", "b200,Llama-3.1-70B,16,512+128,dp=8 weights=striped",
         "b200,Llama-3.1-70B,12,512+128,dp=4 tp=2 weights=striped", "h20,Qwen3-32B,24,512+64,dp=8 weights=by_layer")
JOB = "synthetic:n=400,prompt=2048,output=lognormal(7.5,0.5)"


class PoolChoice(support.TestCase):
    def test_auto_is_as_good_as_the_best_forced_setting(self):
        cells = [argument for cell in CELLS for argument in ("--cell", cell)]
        done = subprocess.run([sys.executable, GRID, support.forebay, "--least", "0.98", *cells], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("\n| h20"), 2, done.stdout)

    def test_where_memory_is_short_all_layers_are_pooled_and_ship(self):
        done = support.call("plan", "--pool", "-m", "builtin:Llama-3.1-70B", "--devices", "sim:8xb200", "--layout",
                            "dp=8,weights=striped", "--trace", JOB)
        self.assertEqual(done.code, 0, done.err)
        self.assertIn("*  80 layers", done.out)
        seconds = {int(layers): float(rest) for layers, rest in re.findall(r"(\d+) layers: ([\d.]+) s", done.out)}
        # Simulated: 282 s of copies, 132 s with all layers pooled.
        self.assertTrue(269 < seconds[0] < 296 and 118 < seconds[80] < 139, seconds)

    def test_layouts_are_ranked(self):
        done = support.call("plan", "-m", "builtin:Llama-3.1-70B", "--devices", "sim:8xh200", "--trace", JOB)
        self.assertEqual(done.code, 0, done.err)
        seconds = [float(line.split()[0]) for line in done.out.splitlines() if re.match(r" +[\d.]+ +\d+ ", line)]
        self.assertEqual(len(seconds), 10, done.out)
        self.assertEqual(seconds, sorted(seconds))
        # A copy fits on no device.
        self.assertRegex(done.out, r"dp=8,tp=1,pp=1,weights=replicated.*\[memory_too_small\]")

    def test_auto_runs_the_first_layout_without_stages(self):
        job = ["-m", "builtin:Qwen3-32B", "--devices", "sim:4xh20", "--trace", "synthetic:n=60,prompt=512,output=64"]
        ranked = support.call("plan", *job)
        first = next(line for line in ranked.out.splitlines() if re.match(r" +[\d.]+ +\d+ .*,pp=1,", line)).split()
        summary = os.path.join(self.folder, "auto.json")
        done = support.call("run", *job, "--layout", "auto", "--summary", summary)
        self.assertEqual(done.code, 0, done.err)
        self.assertIn(f"--layout auto: {first[-1]}", done.err)
        with open(summary, encoding="utf-8") as file:
            self.assertAlmostEqual(json.load(file)["elapsed_time"] / float(first[0]), 1, delta=0.1)
        unknown = self.job([{"prompt": "x"}]).run("--devices", "2xcpu", "--layout", "auto")
        self.assertNotEqual(unknown.code, support.COMPLETE)
        self.assertIn("--layout auto: nothing is known of the job", unknown.err)


if __name__ == "__main__":
    support.main()
