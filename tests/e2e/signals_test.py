"""SIGTERM and SIGINT at 20 points of a job: it drains, says so by its exit code, loses nothing, and resumes."""
import os
import pty
import random
import select
import signal
import subprocess
import time

import support
import tiny_model

POINTS = 20


def slow_lines(count=6, tokens=3000):
    """Line 1 ends soon and tells that the engine runs; the others take longer than any test waits for."""
    first = {"custom_id": "first", "prompt": [5], "max_tokens": 1}
    return [first] + [{"custom_id": f"s{i}", "prompt": [5], "max_tokens": tokens, "ignore_eos": True} for i in range(count)]


class Signals(support.TestCase):
    def read_until(self, process, text, seconds=60):
        """Waits for `text` on the process' stderr."""
        seen, deadline = b"", time.monotonic() + seconds
        while text not in seen:
            chunk = process.stderr.read1(4096)
            self.assertTrue(chunk or time.monotonic() < deadline, seen)
            if not chunk and process.poll() is not None:
                self.fail(f"ended with {process.returncode} before {text!r}: {seen!r}")
            seen += chunk
        return seen

    def wait_for_results(self, job, count, process, seconds=60):
        deadline = time.monotonic() + seconds
        while len(job.whole_lines()) < count:
            self.assertLess(time.monotonic(), deadline, "no results")
            if process.poll() is not None:
                return
            time.sleep(0.005)

    def test_drains_at_twenty_points(self):
        rng = random.Random(5)
        lines = support.mixed_requests(rng, 300, most_tokens=64)
        flags = ["--digest", "--max-num-seqs", "8"]
        reference = self.job(lines, "reference", flags=flags)
        self.expect(reference.run(), support.COMPLETE)
        expected = reference.answers()
        drained = 0
        for point in range(POINTS):
            job = self.job(lines, f"point{point}", flags=flags)
            process = job.start()
            self.wait_for_results(job, 1 + point * 270 // POINTS, process)
            process.send_signal(rng.choice([signal.SIGTERM, signal.SIGINT]))
            _, err = process.communicate(timeout=60)
            err = err.decode()
            self.assertIn(process.returncode, (support.DRAINED, support.COMPLETE), err)
            data = job.raw()
            self.assertTrue(data.endswith(b"\n"), "a drained job leaves whole lines")
            found = job.answers()
            for number, one in found.items():
                self.assertEqual(one, expected[number])
            if process.returncode == support.DRAINED:
                drained += 1
                self.assertLess(len(found), 300)
                self.assertIn("the same command goes on", err)
                self.assertIn("job_unfinished", err)
                self.assertEqual(job.summary()["end"], "drained")
                self.assertEqual(job.summary()["num_requests"], len(found))
            self.expect(job.run(), support.COMPLETE)
            self.assertTrue(job.raw().startswith(data), "what was there before stays")
            self.assertEqual(job.answers(), expected)
        print(f"{drained} of {POINTS} signals came in time to drain")
        self.assertGreater(drained, POINTS // 2)

    def test_what_runs_is_finished(self):
        """The drain keeps going until the running choices are done, and takes no new ones."""
        lines = [{"custom_id": f"r{i}", "prompt": "x", "max_tokens": 300, "ignore_eos": True} for i in range(40)]
        job = self.job(lines, flags=["--max-num-seqs", "4"])
        process = job.start()
        self.wait_for_results(job, 1, process)
        before = len(job.whole_lines())
        process.terminate()
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, support.DRAINED)
        after = len(job.whole_lines())
        self.assertGreater(after, before)
        self.assertLessEqual(after, before + 8)
        summary = job.summary()
        rows = summary["prompt_tokens"] + summary["output_tokens"] - summary["num_requests"]
        self.assertEqual(summary["engine"]["computed_tokens"], rows, "what was begun was finished: no row was computed for nothing")

    def test_grace_is_bounded(self):
        job = self.job(slow_lines(), model=self.long_model(), flags=["--skip-tokenizer-init"])
        process = job.start("--grace", "0.2")
        self.wait_for_results(job, 1, process)
        began = time.monotonic()
        process.terminate()
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, support.DRAINED, err.decode())
        self.assertLess(time.monotonic() - began, 20)
        self.assertEqual(list(job.answers()), [1])

    def test_second_signal_stops_at_once(self):
        for first, second in [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)]:
            job = self.job(slow_lines(), name=f"twice{first}{second}", model=self.long_model(), flags=["--skip-tokenizer-init"])
            process = job.start("--grace", "600")
            self.wait_for_results(job, 1, process)
            process.send_signal(first)
            self.read_until(process, b"once more to stop at once")
            self.assertIsNone(process.poll())
            began = time.monotonic()
            process.send_signal(second)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, support.ABORTED, err.decode())
            self.assertLess(time.monotonic() - began, 20)
            self.assertIn(b"job_unfinished", err)
            self.assertEqual(list(job.answers()), [1])

    def test_signal_before_the_job_begins(self):
        """Wherever it comes, the process ends by a documented code or by the signal itself, and nothing breaks."""
        lines = support.mixed_requests(random.Random(6), 50)
        job = self.job(lines)
        codes = set()
        for i in range(12):
            process = job.start()
            time.sleep(0.012 * i)
            process.terminate()
            _, err = process.communicate(timeout=60)
            codes.add(process.returncode)
            self.assertIn(process.returncode, (support.COMPLETE, support.DRAINED, -signal.SIGTERM), err.decode())
        self.expect(job.run(), support.COMPLETE)
        self.assertEqual(len(job.answers()), 50)
        print(f"exit codes of early signals: {sorted(codes)}")

    def test_hangup_of_the_terminal_and_closed_stderr(self):
        """A reader of stderr that goes away does not end the job."""
        job = self.job(support.mixed_requests(random.Random(7), 50))
        process = job.start()
        process.stderr.close()
        self.assertEqual(process.wait(60), support.COMPLETE)
        self.assertEqual(len(job.answers()), 50)

    def test_hangup_drains(self):
        job = self.job(slow_lines(), model=self.long_model(), flags=["--skip-tokenizer-init"])
        process = job.start("--grace", "0.2")
        self.wait_for_results(job, 1, process)
        process.send_signal(signal.SIGHUP)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, support.DRAINED, err.decode())
        self.assertEqual(list(job.answers()), [1])

    def test_a_signal_clears_the_live_block(self):
        """What Ctrl-C says stands on lines of its own, and no stale progress stays below."""
        job = self.job(slow_lines(), model=self.long_model(), flags=["--skip-tokenizer-init"])
        ours, theirs = pty.openpty()
        process = subprocess.Popen(support.command(*job.arguments("--grace", "600")), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=theirs)
        os.close(theirs)
        seen = b""
        def until(text):
            nonlocal seen
            while text not in seen:
                self.assertTrue(select.select([ours], [], [], 60)[0], seen)
                seen += os.read(ours, 4096)
        until(b"running")
        for message in (b"forebay: finishing what runs; once more to stop at once\r\n", b"forebay: stopping\r\n"):
            process.send_signal(signal.SIGINT)
            until(message)
            self.assertIn(b"\r\x1b[J" + message, seen)
        self.assertEqual(process.wait(60), support.ABORTED)
        os.close(ours)

    def long_model(self):
        return tiny_model.write(os.path.join(self.folder, "long"), max_position_embeddings=4096, hidden_size=256,
                                intermediate_size=1024, num_hidden_layers=4)


if __name__ == "__main__":
    support.main()
