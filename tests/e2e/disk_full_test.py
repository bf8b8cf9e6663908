"""Results that cannot be written: the job stops cleanly, says why, and goes on once there is room."""
import os
import random
import resource
import stat
import subprocess

import support


class DiskFull(support.TestCase):
    def setUp(self):
        super().setUp()
        self.lines = support.mixed_requests(random.Random(11), 200)
        reference = self.job(self.lines, "reference")
        self.expect(reference.run(), support.COMPLETE)
        self.expected = reference.answers()
        self.size = len(reference.raw())

    def stops_with_whole_lines(self, job, finished, reason):
        self.expect(finished, support.RESULTS_IO, job.output, reason, "results_io")
        self.assertNotIn("Traceback", finished.err)
        found = job.answers()
        self.assertGreater(len(found), 0)
        self.assertLess(len(found), len(self.expected))
        self.assertTrue(job.raw().endswith(b"\n"), "the line that did not fit is cut off again")
        for number, one in found.items():
            self.assertEqual(one, self.expected[number])
        return found

    def test_small_tmpfs(self):
        small = os.path.join(self.folder, "small")
        os.mkdir(small)
        size = self.size // 2 // 4096 * 4096
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", small], capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("no right to mount a tmpfs; test_file_size_limit stands in for it")
        self.addCleanup(subprocess.run, ["umount", "-l", small], check=False)
        job = self.job(self.lines)
        job.output = os.path.join(small, "out.jsonl")
        found = self.stops_with_whole_lines(job, job.run(), "No space left on device")
        # Still no room: nothing is lost, nothing is added.
        self.expect(job.run(), support.RESULTS_IO)
        self.assertGreaterEqual(len(job.answers()), len(found))
        subprocess.run(["mount", "-o", f"remount,size={8 * self.size}", small], check=True)
        self.expect(job.run(), support.COMPLETE, "going on")
        self.assertEqual(job.answers(), self.expected)

    def test_no_room_to_put_in_order(self):
        """The finished results stay as they are where the ordered copy does not fit."""
        small = os.path.join(self.folder, "small")
        os.mkdir(small)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size * 3 // 2 // 4096 * 4096}", "tmpfs", small],
                                 capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("no right to mount a tmpfs")
        self.addCleanup(subprocess.run, ["umount", "-l", small], check=False)
        job = self.job(self.lines)
        job.output = os.path.join(small, "out.jsonl")
        self.expect(job.run("--preserve-order"), support.RESULTS_IO, "No space left on device")
        self.assertEqual(job.answers(), self.expected)
        self.assertEqual(os.listdir(small), ["out.jsonl"])
        subprocess.run(["mount", "-o", f"remount,size={8 * self.size}", small], check=True)
        self.expect(job.run("--preserve-order"), support.COMPLETE)
        self.assertEqual(list(job.answers()), sorted(self.expected))

    def test_file_size_limit(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size // 2, self.size // 2))

        job = self.job(self.lines)
        self.stops_with_whole_lines(job, job.run(preexec_fn=limit), "File too large")
        self.expect(job.run(), support.COMPLETE)
        self.assertEqual(job.answers(), self.expected)

    def test_outputs_that_are_no_files(self):
        job = self.job(self.lines)
        for name, path in {"folder": self.folder, "missing folder": os.path.join(self.folder, "no", "out.jsonl"),
                           "under a file": os.path.join(job.input, "out.jsonl"), "device": "/dev/null", "full": "/dev/full"}.items():
            with self.subTest(name):
                job.output = path
                self.expect(job.run(), support.RESULTS_IO, path, "results_io")
        fifo = os.path.join(self.folder, "fifo")
        os.mkfifo(fifo)
        job.output = fifo
        self.expect(job.run(timeout=60), support.RESULTS_IO, fifo)

    def test_outputs_without_permission(self):
        job = self.job(self.lines)
        locked = os.path.join(self.folder, "locked")
        os.mkdir(locked)
        os.chmod(locked, stat.S_IRUSR | stat.S_IXUSR)
        os.chmod(self.folder, 0o755)
        os.chmod(job.input, 0o644)
        user = 65534 if os.geteuid() == 0 else os.geteuid()  # root may write anywhere
        if user == 65534:
            os.chown(locked, user, user)
        job.output = os.path.join(locked, "out.jsonl")
        try:
            finished = job.run(preexec_fn=lambda: os.geteuid() == user or os.setuid(user))
        except PermissionError:
            self.skipTest("the binary cannot be run by another user here")
        if "model" in finished.err and "Permission denied" in finished.err and locked not in finished.err:
            self.skipTest("the model cannot be read by another user here")
        self.expect(finished, support.RESULTS_IO, job.output, "Permission denied")

    def test_summary_that_cannot_be_written(self):
        """That is found out before anything runs."""
        job = self.job(self.lines)
        job.summary_path = os.path.join(self.folder, "no", "summary.json")
        self.expect(job.run(), support.ERROR, job.summary_path)
        self.assertEqual(job.answers(), {})

    def test_input_that_goes_away(self):
        """The input is read twice; a shorter or changed one stops the job, and what is done stays."""
        job = self.job(self.lines)
        process = job.start("--max-num-seqs", "1")
        try:
            while not job.whole_lines() and process.poll() is None:
                pass
            os.truncate(job.input, 10)
            _, err = process.communicate(timeout=120)
        finally:
            process.kill()
        if process.returncode != support.COMPLETE:
            self.assertEqual(process.returncode, support.BAD_INPUT, err)
            self.assertIn(b"input_changed", err)
        job.write(self.lines)
        self.expect(job.run(), support.COMPLETE)
        self.assertEqual(job.answers(), self.expected)


if __name__ == "__main__":
    support.main()
