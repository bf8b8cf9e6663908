"""KV cache in a file: a job with little KV memory, the next job on a kept file, kills, damage, and files that cannot serve."""
import json
import os
import random
import resource
import signal
import time

import support

WORDS = support.WORDS


class KvFile(support.TestCase):
    answers = {}

    def setUp(self):
        super().setUp()
        rng = random.Random(5)
        documents = [[rng.randrange(3, 250) for _ in range(200)] for _ in range(3)]
        self.lines = [{"custom_id": f"r{i}", "prompt": documents[i % 3] + [rng.randrange(3, 250) for _ in range(1 + i)],
                       "max_tokens": 60 + 3 * i, "ignore_eos": True, "temperature": i % 2} for i in range(12)]
        self.path = os.path.join(self.folder, "kv")
        self.file = ["--kv-file", self.path, "--kv-file-size", "64MiB", "--kv-preempt", "park"]
        # The profile: of the machine at hand nothing is measured.
        self.flags = ["--skip-tokenizer-init", "--digest", "--num-kv-blocks-override", "24", "--max-num-batched-tokens", "64",
                      "--device-profile", "zen4"]

    def ran(self, name, *flags):
        job = self.job(self.lines, name, flags=self.flags)
        finished = self.expect(job.run(*flags), support.COMPLETE)
        self.assertEqual("kv-offload=auto: nothing is streamed: what lies below is in a file that is kept" in finished.err,
                         "--kv-file-keep" in flags and "--kv-offloading-size" not in flags)
        counters = job.summary()["mode_counters"]
        return job.answers(), counters, job

    def expected(self):
        """What a run without a file answers; one for all tests."""
        if not KvFile.answers:
            KvFile.answers, _, _ = self.ran("plain")
        return KvFile.answers

    def test_parked_in_a_file(self):
        """Little KV memory: the same answers with and without the file, and no row twice with it."""
        expected, _, plain = self.ran("plain")
        self.assertGreater(plain.summary()["engine"]["recomputed_tokens"], 0)
        answers, counters, job = self.ran("parked", *self.file)
        self.assertEqual(answers, expected)
        self.assertGreater(counters["kv_parks"], 0)
        self.assertEqual(counters["kv_returns"], counters["kv_parks"])
        self.assertEqual(job.summary()["engine"]["recomputed_tokens"], 0)
        self.assertGreaterEqual(counters["kv_file_bytes_read"], counters["kv_bytes_up"])
        self.assertEqual(counters["kv_blocks_failed"], 0)
        self.assertFalse(os.path.exists(self.path))

    def test_behind_memory(self):
        """A little memory, a file behind it: the same answers, blocks found in either, and kept for the next job."""
        expected = self.expected()
        both = [*self.file, "--kv-offloading-size", "64KiB", "--kv-offload", "off"]
        answers, counters, job = self.ran("both", *both)
        self.assertEqual(answers, expected)
        self.assertEqual(job.summary()["engine"]["recomputed_tokens"], 0)
        self.assertGreater(counters["kv_blocks_to_file"], 0)
        self.assertGreater(counters["kv_blocks_up_from_file"], 0)
        self.assertLess(counters["kv_blocks_up_from_file"], counters["kv_blocks_up"])
        self.assertFalse(os.path.exists(self.path))
        _, first, _ = self.ran("first", *both, "--kv-file-keep")
        again, second, _ = self.ran("second", *both, "--kv-file-keep")
        self.assertEqual(again, expected)
        self.assertGreaterEqual(second["kv_blocks_kept"], 3 * 6)
        self.assertGreater(second["prefix_blocks_hit_below"], first["prefix_blocks_hit_below"])

    def test_the_next_job_finds_what_was_kept(self):
        expected = self.expected()
        keep = [*self.file, "--kv-file-keep"]
        first_answers, first, first_job = self.ran("first", *keep)
        self.assertEqual(first_answers, expected)
        self.assertEqual(first["kv_blocks_kept"], 0)
        again, second, second_job = self.ran("second", *keep)
        self.assertEqual(again, expected)
        self.assertGreaterEqual(second["kv_blocks_kept"], 3 * 6)
        self.assertGreater(second["prefix_blocks_hit_below"], first["prefix_blocks_hit_below"])
        self.assertLess(second_job.summary()["engine"]["computed_tokens"], first_job.summary()["engine"]["computed_tokens"])
        # Damage costs rows, and no answer: some bytes in each block.
        size = os.path.getsize(self.path)
        with open(self.path, "r+b") as file:
            for at in range(100, size, 4096):
                file.seek(at)
                file.write(b"damaged")
        damaged, third, _ = self.ran("damaged", *keep)
        self.assertEqual(damaged, expected)
        self.assertGreater(third["kv_blocks_failed"], 0)
        # A torn index is used as far as it stands.
        with open(self.path + ".index", "r+b") as file:
            file.truncate(os.path.getsize(self.path + ".index") * 2 // 3 + 5)
        torn, fourth, _ = self.ran("torn", *keep)
        self.assertEqual(torn, expected)
        self.assertGreater(fourth["kv_blocks_kept"], 0)

    def test_kills(self):
        """kill -9 in between: nothing is left of a file that is not kept; of a kept one the next run goes on; so it does where choices are streamed."""
        expected = self.expected()
        began = time.monotonic()
        self.ran("timed", *self.file)
        whole = time.monotonic() - began
        rng = random.Random(3)
        stream = ["--kv-offloading-size", "1MiB", "--kv-offload", "always"]
        for kills, more in ((8, []), (4, stream), (8, ["--kv-file-keep"])):
            job = self.job(self.lines, "killed" + "".join(more[:1]), flags=[*self.flags, *self.file, *more])
            for _ in range(kills):
                process = job.start()
                time.sleep(rng.uniform(0.2, 0.9) * whole)
                process.kill()
                process.wait()
                process.stderr.close()
                self.assertEqual(os.path.exists(self.path), os.path.exists(self.path + ".index"))
            self.expect(job.run(), support.COMPLETE)
            self.assertEqual(job.answers(), expected)
        _, counters, _ = self.ran("streamed", *stream)
        self.assertGreater(counters["kv_blocks_streamed"], 0)

    def test_files_that_cannot_serve(self):
        def refused(code, *texts, flags=(), path=self.path, size="1MiB", exit_code=support.ERROR):
            job = self.job(self.lines, "refused", flags=self.flags)
            finished = self.expect(job.run("--kv-file", path, "--kv-file-size", size, *flags), exit_code, code, *texts)
            self.assertEqual(job.raw(), b"")
            return finished

        refused("kv_file_invalid", "none/kv", "No such file", path=os.path.join(self.folder, "none", "kv"), exit_code=support.USAGE)
        refused("kv_file_invalid", "tmpfs", path="/dev/shm/forebay-kv-file-e2e", exit_code=support.USAGE)
        # Its space is not taken before it is known to be too little, and the number is what others have.
        self.assertNotIn("the disk has 0 B free", refused("kv_file_no_space", self.path, "the disk has", size="900TiB").err)
        refused("kv_file_size_invalid", "--kv-file-size 64 is 64 bytes", "64GiB?", size="64", exit_code=support.USAGE)
        refused("kv_file_size_invalid", "1KiB is 1024 bytes, less than any block of KV cache; expected more", size="1KiB", exit_code=support.USAGE)
        refused("kv_offload_invalid", "--kv-file-keep", flags=["--kv-offload", "always", "--kv-file-keep"], exit_code=support.USAGE)
        self.assertFalse(os.path.exists(self.path))
        with open(self.path, "wb") as file:
            file.write(b"mine")
        refused("kv_file_invalid", "there already", exit_code=support.USAGE)
        refused("kv_file_invalid", "no index", flags=["--kv-file-keep"], exit_code=support.USAGE)
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), b"mine")
        os.remove(self.path)
        self.ran("kept", *self.file, "--kv-file-keep")
        before = os.path.getsize(self.path)
        job = self.job(self.lines, "other", model=support.QWEN, flags=self.flags)
        self.expect(job.run(*self.file, "--kv-file-keep"), support.ERROR, "kv_file_mismatch", "llama3-gqa", "qwen3")
        self.assertEqual(os.path.getsize(self.path), before)
        job = self.job(self.lines, "f32", flags=self.flags)
        self.expect(job.run(*self.file, "--kv-file-keep", "--dtype", "float32"), support.ERROR, "kv_file_mismatch", "f32")

    def test_a_disk_that_fails_later(self):
        """Writes fail from some moment on: said once, the job goes on, and no answer is lost."""
        expected = self.expected()
        size, least = 64 << 20, 64 << 10
        job = self.job(self.lines, "failing", flags=self.flags)
        process = job.start(*self.file, "--threads", 2)  # slow enough for what follows
        folder = f"/proc/{process.pid}/fd"

        def allocated():
            for name in os.listdir(folder):
                try:
                    if os.stat(os.path.join(folder, name)).st_size == size:
                        return True
                except OSError:
                    continue
            return False

        deadline = time.monotonic() + 60
        while not allocated() and time.monotonic() < deadline:
            time.sleep(0.001)
        # What lies behind the first blocks can be read from now on, and not written. Results are shorter.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (least, least))
        said = process.communicate(timeout=300)[1].decode()
        self.assertEqual(process.returncode, support.COMPLETE, said)
        self.assertEqual(job.answers(), expected)
        self.assertEqual(said.count("[kv_file_io]: nothing goes below any more, and what is lost is computed again"), 1, said)
        self.assertGreater(job.summary()["mode_counters"]["kv_blocks_failed"], 0)
        self.assertLess(len(job.raw()), least)

    def test_copies_that_are_slow(self):
        """The trials of slow copies: a stall of 2 s costs no answer, and less is streamed for it; without KV below a device they are refused."""
        expected = self.expected()
        uniform = ["--kv-file", self.path, "--kv-file-size", "64MiB", "--kv-offload", "uniform"]
        answers, counters, job = self.ran("stalled", *uniform, "--kv-up-stall", "2")
        self.assertEqual(answers, expected)
        self.assertGreater(counters["kv_stream_shrinks"], 0)
        self.assertGreater(counters["waited_kv_us"], 1_900_000)
        for flags in (["--kv-up-gbps", "1"], ["--kv-up-stall", "2"]):
            self.expect(self.job(self.lines, "refused", flags=self.flags).run(*flags), support.USAGE, "[invalid_argument]",
                        "--kv-up-gbps and --kv-up-stall: expected real devices with KV below them")

    def test_its_files_are_taken(self):
        """What the file and its index are named no output of the job is, nor what the job reads."""
        keep = [*self.file, "--kv-file-keep"]
        job = self.job(self.lines, flags=self.flags)
        os.link(job.input, self.path + ".1")

        def refused(flag, path, *flags):
            with open(path, "ab"):
                pass
            with open(path, "rb") as file:
                before = file.read()
            given = [] if flag == "--output-file" else [flag, path]
            job.output = path if flag == "--output-file" else os.path.join(self.folder, "results")
            self.expect(job.run(*given, *flags), support.USAGE, "[output_taken]", "--kv-file", path, "would overwrite")
            with open(path, "rb") as file:
                self.assertEqual(file.read(), before)

        for suffix in (".index", ".index.new", ""):
            refused("--output-file", self.path + suffix, *keep)
            refused("--steps", self.path + suffix, *keep)
            os.remove(self.path + suffix)
        refused("--output-file", self.path, *self.file)
        # Of several ranks each has one: the second's is the input.
        job.output = os.path.join(self.folder, "results")
        self.expect(job.run(*self.file, "--devices", "2xcpu"), support.USAGE, "[output_taken]", f"--kv-file {self.path}.1", "--input-file")

    def test_two_processes(self):
        keep = [*self.file, "--kv-file-keep"]
        self.ran("first", *keep)
        job = self.job([{"prompt": [5], "max_tokens": 400, "ignore_eos": True}] * 64, "long", flags=self.flags)
        process = job.start(*keep)
        try:
            deadline = time.monotonic() + 60
            while not os.path.exists(job.output) and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(signal.SIGSTOP)
            self.assertIsNone(process.poll())
            second = self.job(self.lines, "second", flags=self.flags)
            self.expect(second.run(*keep), support.ERROR, "kv_file_locked", self.path)
        finally:
            process.kill()
            process.wait()
            process.stderr.close()

    def test_plan(self):
        finished = support.call("plan", "-m", support.LLAMA, "--memory", "--json", "--device-profile", "zen4", *self.file)
        self.expect(finished, support.COMPLETE)
        self.assertIn("file_bytes", finished.out)
        self.assertTrue(json.loads(finished.out))


if __name__ == "__main__":
    support.main()
