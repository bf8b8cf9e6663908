"""kill -9 at random times over a job, resumed each time: no result is lost, given twice or different.

FOREBAY_KILLS (200), FOREBAY_KILL_SEED, FOREBAY_KILL_MODEL (a path; default: a tiny model), FOREBAY_KILL_MEMORY,
FOREBAY_KILL_REQUESTS and FOREBAY_KILL_TOKENS make it longer (tools/soak.sh).
"""
import os
import random
import signal
import subprocess
import time

import support

KILLS = int(os.environ.get("FOREBAY_KILLS", 200))
SEED = int(os.environ.get("FOREBAY_KILL_SEED", 20260307))
MODEL = os.environ.get("FOREBAY_KILL_MODEL", support.LLAMA)
REQUESTS = int(os.environ.get("FOREBAY_KILL_REQUESTS", 80))
TOKENS = int(os.environ.get("FOREBAY_KILL_TOKENS", 64))
MEMORY = os.environ.get("FOREBAY_KILL_MEMORY", "64MiB")
STATE_KILLS = 20  # of a job whose layers keep states


class Kill(support.TestCase):
    def test_kill_at_random_times(self):
        rng = random.Random(SEED)
        lines = support.mixed_requests(rng, REQUESTS, most_tokens=TOKENS)
        # What may not change an answer may change from run to run.
        resumed = self.kill_often(rng, lines, MODEL, ["--memory", MEMORY], KILLS, lambda: [
            "--threads", rng.choice([1, 1, 1, 2]), "--max-num-batched-tokens", rng.choice([64, 256, 512]),
            "--max-num-seqs", rng.choice([8, 64, 256])])
        if KILLS >= 100:
            self.assertGreater(resumed, KILLS // 10, "hardly any kill left a part to resume")

    def test_layers_with_state(self):
        rng = random.Random(SEED)
        begins = [[rng.randrange(250) for _ in range(70)] for _ in range(4)]
        lines = [{"custom_id": f"ids-{i}", "prompt": rng.choice(begins) + [rng.randrange(250) for _ in range(rng.randint(1, 60))],
                  "n": 1 + i % 2, "max_tokens": rng.randint(1, 90), "temperature": rng.choice([0, 1]), "ignore_eos": True}
                 for i in range(60)]
        model = os.path.join(support.GOLDEN, "models", "qwen3.5")
        self.kill_often(rng, lines, model, ["--memory", "64MiB", "--max-model-len", 512, "--skip-tokenizer-init"], STATE_KILLS, lambda: [
            "--state-every", rng.choice([32, 64, 1024]), "--max-num-seqs", rng.choice([4, 16, 64]),
            *rng.choice([["--threads", 2], ["--devices", "2xcpu", "--layout", "tp=2"], ["--devices", "2xcpu", "--layout", "pp=2"],
                         ["--num-kv-blocks-override", 20, "--kv-offloading-size", "8MiB", "--kv-preempt", "park"],
                         ["--devices", "2xcpu", "--context", "dp=1", "--generation", "dp=1"],
                         ["--devices", "2xcpu", "--layout", "dp=2", "--steal", "always"]])])

    def kill_often(self, rng, lines, model, flags, wanted, varied):
        """Kills and resumes a job with other flags each time; returns how many runs resumed a part."""
        flags = ["--digest", "--quiet", *flags]
        reference = self.job(lines, "reference", model=model, flags=flags)
        began = time.monotonic()
        self.expect(reference.run("--threads", 1), support.COMPLETE)
        whole = time.monotonic() - began
        expected = reference.answers()
        self.assertEqual(len(expected), len(lines))

        job = self.job(lines, "killed", model=model, flags=flags)
        kills, rounds, resumed, torn, jobs = 0, 0, 0, 0, 1
        reach = 0.6 * whole  # the latest kill; follows the machine's mood
        while kills < wanted:
            rounds += 1
            self.assertLess(rounds, 4 * wanted + 100, f"{kills} kills in {rounds} rounds: runs end before they are killed")
            before = job.whole_lines()
            process = job.start(*varied())
            try:
                process.wait(rng.uniform(0, reach))
            except subprocess.TimeoutExpired:
                process.kill()
            # A run may also end between the time-out and the kill.
            code = process.wait()
            self.assertIn(code, (support.COMPLETE, -signal.SIGKILL), process.stderr.read().decode())
            kills += code == -signal.SIGKILL
            process.stderr.close()
            data = job.raw()
            torn += not data.endswith(b"\n") and len(data) > 0
            after = job.whole_lines()
            self.assertEqual(after[: len(before)], before, "results that were whole before a run are not after it")
            self.assert_prefix(job, expected)
            resumed += 0 < len(before) < len(lines)
            if process.returncode == support.COMPLETE:
                self.assertEqual(job.answers(), expected)
                job.forget()
                jobs += 1
                reach *= 0.9
            elif len(after) == len(before):
                reach *= 1.04
        self.expect(job.run(), support.COMPLETE)
        self.assertEqual(job.answers(), expected)
        self.assertEqual(job.raw()[-1:], b"\n")
        print(f"{kills} kills over {jobs} jobs of {len(lines)} requests ({rounds} runs, {resumed} of them resumed a part, "
              f"{torn} torn tails): 0 lost, 0 duplicated, 0 differing")
        return resumed

    def assert_prefix(self, job, expected):
        for number, found in job.answers().items():
            self.assertEqual(found, expected[number], f"input line {number}")


if __name__ == "__main__":
    support.main()
