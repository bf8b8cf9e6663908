"""Runs on file systems that refuse locks, shared mappings or syncs: a warning, and the same answers."""
import errno
import json
import os
import subprocess
import tempfile
import unittest

import support


class FileSystems(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.refuse = os.path.join(cls.folder.name, "refuse.so")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "refuse.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", cls.refuse, source, "-ldl"], check=True)
        cls.input = os.path.join(cls.folder.name, "in.jsonl")
        with open(cls.input, "w") as file:
            for i in range(3):
                file.write(json.dumps({"prompt": [3 + i, 4, 5], "max_tokens": 4, "temperature": 0}) + "\n")
        cls.plain = cls.answers(cls.run_with("plain", {}))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def run_with(cls, name, refused, *flags):
        cls.output = os.path.join(cls.folder.name, name + ".jsonl")
        refused = {key: str(value) for key, value in refused.items()}
        return support.call("run", "-m", support.LLAMA, "-i", cls.input, "-o", cls.output, *flags,
                            env={**os.environ, "LD_PRELOAD": cls.refuse, **refused})

    @classmethod
    def answers(cls, done):
        with open(cls.output) as file:
            results = sorted(map(json.loads, file), key=lambda result: result["id"])
        return [result["response"]["body"]["choices"] for result in results], done.code

    def check(self, name, refused, words, *flags):
        done = self.run_with(name, refused, *flags)
        self.assertEqual(self.answers(done), self.plain, done.err)
        self.assertEqual("warning" in done.err, bool(words), done.err)
        self.assertIn(words, done.err)

    def test_locks(self):
        for error in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF):
            self.check(f"flock{error}", {"REFUSE_FLOCK": error}, "has no locks")

    def test_locks_of_kept_kv_files(self):
        file = os.path.join(self.folder.name, "kv")
        done = self.run_with("kv", {"REFUSE_FLOCK": errno.ENOSYS}, "--kv-file", file, "--kv-file-size", "16M")
        self.assertNotIn("another process uses it", done.err)

    def test_a_lock_that_is_held_is_still_an_error(self):
        done = self.run_with("held", {"REFUSE_FLOCK": errno.EWOULDBLOCK})
        self.assertEqual(done.code, support.LOCKED, done.err)

    def test_mappings(self):
        # Privately where that goes, else by copying.
        self.check("shared", {"REFUSE_SHARED_MMAP": errno.ENODEV}, "")
        self.check("none", {"REFUSE_SHARED_MMAP": errno.ENODEV, "REFUSE_PRIVATE_MMAP": errno.ENODEV}, "maps no files")

    def test_syncs(self):
        for error in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            refused = {"REFUSE_FDATASYNC": error, "REFUSE_FSYNC": error}
            self.check(f"sync{error}", refused, "cannot sync files", "--preserve-order")
        self.check("fdatasync", {"REFUSE_FDATASYNC": errno.EINVAL}, "")
        done = self.run_with("io", {"REFUSE_FDATASYNC": errno.EIO})
        self.assertEqual(done.code, support.RESULTS_IO, done.err)

    def test_results_that_cannot_be_read(self):
        """A disk's fault is the results', when they are written and when a job goes on from them."""
        self.assertEqual(self.run_with("read", {}).code, support.COMPLETE)
        for flags in ([], ["--preserve-order"], ["--retry-failed"]):
            done = self.run_with("read", {"REFUSE_READ": errno.EIO, "REFUSE_READ_OF": "/read.jsonl"}, *flags)
            self.assertEqual(done.code, support.RESULTS_IO, done.err)
            self.assertIn("[results_io]", done.err)


if __name__ == "__main__":
    support.main()
