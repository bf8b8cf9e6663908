"""Requests that come over time: what the summary says of them, how such a job ends and goes on, and what is refused."""
import json
import os
import signal
import subprocess
import time

import support

LINES = [{"custom_id": f"r{i}", "prompt": [5, 6, i], "max_tokens": 4, "ignore_eos": True} for i in range(12)]
FLAGS = ["--skip-tokenizer-init"]


class Arrivals(support.TestCase):
    def times(self, *seconds):
        path = os.path.join(self.folder, "times.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{second}\n" for second in seconds)
        return path

    def simulated(self, *flags):
        """The summary of 40 requests on simulated devices."""
        path = os.path.join(self.folder, "s.json")
        self.expect(support.call("run", "-m", support.LLAMA, "--devices", "sim:a10", "--trace", "synthetic:n=40,prompt=100,output=20",
                                 "--summary", path, *flags), support.COMPLETE)
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def test_a_simulated_trace(self):
        at_once = self.simulated()
        steady = self.simulated("--request-rate", "4", "--burstiness", "inf")
        bursty = self.simulated("--request-rate", "4", "--burstiness", ".1")
        for summary in (steady, bursty):
            self.assertEqual((summary["num_requests"], summary["num_failed"]), (40, 0))
            self.assertGreaterEqual(summary["elapsed_time"], 10, "the last of n requests comes at n / rate")
            self.assertLess(summary["elapsed_time"], 10 + 2 * at_once["elapsed_time"])
        self.assertLess(steady["p99_ttft_ms"], at_once["p99_ttft_ms"], "latencies count from the arrival")
        self.assertLess(steady["p99_ttft_ms"], bursty["p99_ttft_ms"])
        self.assertLessEqual(steady["p90_e2el_ms"], steady["p95_e2el_ms"])
        self.assertAlmostEqual(steady["mean_itl_ms"], steady["mean_tpot_ms"], delta=1e-6, msg="all answers are as long")
        self.assertLessEqual(steady["median_itl_ms"], steady["p99_itl_ms"])
        self.assertGreaterEqual(at_once["peak_output_tokens_per_second_1s"], steady["peak_output_tokens_per_second_1s"])
        self.assertEqual(at_once["peak_output_tokens_per_second_10s"], 80, "40 answers of 20 tokens")
        self.assertEqual(steady["num_unfinished"], 0)
        self.assertEqual(bursty["mean_ttft_ms"], self.simulated("--request-rate", "4", "--burstiness", ".1")["mean_ttft_ms"])
        self.assertNotEqual(bursty["mean_ttft_ms"], self.simulated("--request-rate", "4", "--burstiness", ".1", "--seed", "9")["mean_ttft_ms"])

    def test_places_bound_how_many_run_at_once(self):
        one, all_at_once = self.simulated("--max-concurrency", "1"), self.simulated()
        # One after another: each is alone, and the run is as long as all of them.
        self.assertAlmostEqual(40 * one["mean_e2el_ms"], 1e3 * one["elapsed_time"], delta=0.02 * 1e3 * one["elapsed_time"])
        self.assertGreater(one["elapsed_time"], all_at_once["elapsed_time"])
        self.assertLess(one["p99_ttft_ms"], all_at_once["p99_ttft_ms"])

    def test_bursts_and_files(self):
        bursts = self.simulated("--arrivals", "bursts:rate=2,bursts=2,burst_rate=50,burst_seconds=.2")
        self.assertGreaterEqual(bursts["elapsed_time"], 10.4, "20 of 40 come in the bursts, 20 at 2/s")
        late = self.simulated("--arrivals", self.times(*range(100, 150)))
        self.assertGreaterEqual(late["elapsed_time"], 139)
        self.assertLess(late["p99_e2el_ms"], 1000)

    def test_a_job_on_the_cpu(self):
        plain, timed = self.job(LINES, "plain", flags=FLAGS), self.job(LINES, "timed", flags=FLAGS)
        self.expect(plain.run(), support.COMPLETE)
        self.assertNotIn("mean_ttft_ms", plain.summary())
        finished = self.expect(timed.run("--request-rate", "12"), support.COMPLETE, "time to first token")
        self.assertNotIn("inf", finished.err)
        summary = timed.summary()
        self.assertGreaterEqual(summary["elapsed_time"], 1)
        for name in ("ttft", "tpot", "itl", "e2el"):
            self.assertGreater(summary[f"mean_{name}_ms"], 0)
            self.assertLess(summary[f"median_{name}_ms"], 900, "the wait for the arrival does not count")
        self.assertGreater(summary["mean_e2el_ms"], summary["mean_ttft_ms"])
        choices = {name: body["choices"] for name, body in plain.bodies().items()}
        self.assertEqual({name: body["choices"] for name, body in timed.bodies().items()}, choices)
        timed.forget()
        self.expect(timed.run("--max-concurrency", "2", "--max-num-seqs", "8"), support.COMPLETE)
        self.assertEqual({name: body["choices"] for name, body in timed.bodies().items()}, choices)

    def test_a_signal_while_an_arrival_is_waited_for(self):
        job = self.job(LINES, flags=FLAGS)
        process = job.start("--arrivals", self.times(*[0] * 5, *[1000] * 7))
        deadline = time.monotonic() + 60
        while len(job.whole_lines()) < 5 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.2)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            _, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(process.returncode, support.DRAINED, err.decode())
        self.assertEqual((len(job.results()), job.summary()["num_requests"]), (5, 5))
        # It goes on with the seven that are left, which come at once.
        self.expect(job.run("--arrivals", self.times(*[0] * 7, *[1000] * 5), timeout=60), support.COMPLETE)
        self.assertEqual(len(job.answers()), len(LINES))

    def test_what_cannot_be(self):
        trace = ["--devices", "sim:a10", "--trace", "synthetic:n=40,prompt=9,output=2"]
        job = self.job(LINES, flags=FLAGS)
        short = self.times(0, 1, 2)
        for flags, texts in ((["--arrivals", short], ["3 arrivals", "requests", "arrivals_invalid"]),
                             (["--arrivals", "/none"], ["/none", "io_error"]),
                             (["--arrivals", "bursts:rate=2"], ["bursts is missing", "arrivals_invalid"]),
                             (["--arrivals", "bursts:rate=1,bursts=3,burst_rate=20,burst_seconds=1"], ["60 requests come in its bursts", "arrivals_invalid"]),
                             (["--arrivals", short, "--request-rate", "2"], ["both given", "invalid_argument"]),
                             (["--request-rate", "0"], ["--request-rate is 0", "invalid_argument"]),
                             (["--request-rate", "nan"], ["--request-rate", "invalid_argument"]),
                             (["--request-rate", "1", "--burstiness", "-1"], ["--burstiness is -1", "invalid_argument"]),
                             (["--burstiness", "2"], ["without --request-rate", "invalid_argument"]),
                             (["--max-concurrency", "0"], ["--max-concurrency", "\"0\" is no integer above 0"])):
            with self.subTest(flags):
                for finished in (support.call("run", "-m", support.LLAMA, *trace, *flags), job.run(*flags)):
                    self.assertIn(finished.code, (support.USAGE, support.ERROR), finished.err)
                    for text in texts:
                        self.assertIn(text, finished.err)
                    self.assertEqual(job.raw(), b"")
        self.expect(support.call("run", "-m", support.LLAMA, "--devices", "sim:a10", "--trace", "synthetic:n=4,rate=2,prompt=9,output=2",
                                 "--request-rate", "3"), support.USAGE, "arrivals of its own", "--request-rate", "invalid_argument")


if __name__ == "__main__":
    support.main()
