"""A job in shards: their merged results are those of one run; what does not belong together is refused."""
import fcntl
import json
import os
import random
import shutil

import support


class Shards(support.TestCase):
    def setUp(self):
        super().setUp()
        lines = support.mixed_requests(random.Random(3), 60)
        lines.insert(7, b"")  # a blank line has no result, and counts
        self.whole = self.job(lines, "whole")
        self.merged = os.path.join(self.folder, "merged.jsonl")

    def shard(self, index, count, **kwargs):
        part = self.job([], f"part{index}", **kwargs)
        part.input = self.whole.input
        self.expect(part.run("--shard", f"{index}/{count}"), support.COMPLETE)
        return part

    def merge(self, *parts, flags=()):
        return support.call("merge", "-o", self.merged, *flags, *(part.output for part in parts))

    def lines_of(self, path):
        with open(path, "rb") as file:
            return file.read().splitlines()

    def test_three_shards_are_one_run(self):
        self.expect(self.whole.run("--preserve-order"), support.COMPLETE)
        parts = [self.shard(index, 3) for index in (1, 2, 3)]
        for index, part in enumerate(parts):
            self.assertTrue(all(number % 3 == (index + 1) % 3 for number in part.results()))
        self.expect(self.merge(*parts, flags=["-i", self.whole.input]), support.COMPLETE, "60 results of 3 parts")
        merged = [support.answer(line) for line in self.lines_of(self.merged)]
        self.assertEqual(merged, [support.answer(line) for line in self.lines_of(self.whole.output)])
        # `forebay run` finds the merged file complete.
        before = self.lines_of(self.merged)
        self.whole.output = self.merged
        self.expect(self.whole.run(), support.COMPLETE, "60 of 60 lines are done")
        self.assertEqual(self.lines_of(self.merged), before)

    def test_what_is_missing_is_said_and_run_goes_on(self):
        parts = [self.shard(1, 3), self.shard(3, 3)]
        self.expect(self.merge(*parts, flags=["-i", self.whole.input]), support.DRAINED, "no results for lines 2, 5, 11,")
        self.expect(self.merge(*parts, flags=["-i", self.whole.input]), support.USAGE, "exists and is none of the parts")
        self.whole.output = self.merged
        self.expect(self.whole.run(), support.COMPLETE, "going on")
        self.assertEqual(len(self.whole.results()), 60)

    def test_without_the_input_gaps_tell(self):
        self.expect(self.merge(self.shard(2, 3)), support.DRAINED, "no results for lines 1, 3-4, 6-10, 12-13,")

    def test_parts_without_a_result_are_a_job_that_has_not_begun(self):
        """Or one whose input is empty, which the input alone can tell."""
        empty = [self.job([], f"empty{index}") for index in (1, 2)]
        for part in empty:
            self.expect(part.run(), support.COMPLETE)
            self.assertEqual(part.raw(), b"")
        self.expect(self.merge(*empty), support.DRAINED, "warning: ", "no part has a result", "--input-file tells which")
        self.assertEqual(self.lines_of(self.merged), [])
        self.whole.output = self.merged
        self.expect(self.whole.run(), support.COMPLETE)
        self.assertEqual(len(self.lines_of(self.merged)), 60, "`forebay run` goes on with the merged file")
        os.remove(self.merged)
        self.expect(self.merge(*empty, flags=["-i", empty[0].input]), support.COMPLETE, "0 results of 2 parts")
        os.remove(self.merged)
        self.expect(self.merge(*empty, flags=["-i", self.whole.input]), support.DRAINED, "no results for lines 1-7, 9-61")

    def test_overlaps(self):
        parts = [self.shard(1, 2), self.shard(2, 2)]
        copy = parts[1].output + ".copy"
        shutil.copy(parts[1].output, copy)
        finished = support.call("merge", "-i", self.whole.input, "-o", self.merged, parts[0].output, parts[1].output, copy)
        self.expect(finished, support.COMPLETE, f"{len(parts[1].results())} lines had two results")
        os.remove(self.merged)
        # One answer is changed as broken hardware would.
        lines = self.lines_of(copy)
        changed = next(i for i, line in enumerate(lines) if b'"finish_reason":"length"' in line)
        number = support.line_number(lines[changed])
        lines[changed] = lines[changed].replace(b'"finish_reason":"length"', b'"finish_reason":"stop"', 1)
        with open(copy, "wb") as file:
            file.writelines(line + b"\n" for line in lines)
        finished = support.call("merge", "-o", self.merged, parts[0].output, parts[1].output, copy)
        self.expect(finished, support.MISMATCH, "results_differ", f"input line {number}:", copy)
        self.assertFalse(os.path.exists(self.merged))

    def test_other_jobs(self):
        parts = [self.shard(1, 2), self.shard(2, 2, flags=["--seed", "5"])]
        self.expect(self.merge(*parts), support.MISMATCH, "results_of_another_job", "flags")
        other = self.job([{"prompt": "another"}], "other")
        self.expect(other.run(), support.COMPLETE)
        self.expect(self.merge(parts[0], flags=["-i", other.input]), support.MISMATCH, "results_of_another_job")
        # The same settings, another input.
        self.expect(self.merge(parts[0], other), support.MISMATCH, "different inputs")
        self.expect(support.call("merge", "-o", self.merged, self.whole.input), support.MISMATCH, "results_invalid")
        self.expect(support.call("merge", "-o", self.merged, self.folder + "/none"), support.RESULTS_IO, "results_io")
        pipe = os.path.join(self.folder, "pipe")
        os.mkfifo(pipe)
        self.expect(support.call("merge", "-o", self.merged, pipe, timeout=60), support.RESULTS_IO, "is no regular file")

    def test_nothing_that_was_there_is_followed_or_overwritten(self):
        """The merged file comes into being under a name that no file had."""
        parts = [self.shard(1, 2), self.shard(2, 2)]
        precious = os.path.join(self.folder, "precious")
        with open(precious, "w", encoding="utf-8") as file:
            file.write("precious")
        os.symlink(precious, self.merged + ".merging")
        self.expect(self.merge(*parts), support.DRAINED)
        self.assertEqual(len(self.lines_of(self.merged)), 60)
        self.assertEqual(self.lines_of(precious), [b"precious"])
        self.assertTrue(os.path.islink(self.merged + ".merging"))
        # What a link names is replaced, not the link, and keeps who may read it.
        link = os.path.join(self.folder, "link.jsonl")
        os.symlink(parts[0].output, link)
        os.chmod(parts[0].output, 0o600)
        self.expect(support.call("merge", "-o", link, parts[0].output, parts[1].output), support.DRAINED)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(self.lines_of(parts[0].output), self.lines_of(self.merged))
        self.assertEqual(os.stat(parts[0].output).st_mode & 0o777, 0o600)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("merged.jsonl.")], ["merged.jsonl.merging"])

    def test_outputs_are_checked_as_those_of_run(self):
        parts = [self.shard(1, 2), self.shard(2, 2)]
        names = [part.output for part in parts]
        before = self.lines_of(self.whole.input)
        self.expect(support.call("merge", "-i", self.whole.input, "-o", self.whole.input, *names), support.USAGE,
                    "output_taken", "--output-file", "would overwrite --input-file")
        self.assertEqual(self.lines_of(self.whole.input), before)
        self.expect(support.call("merge", "-o", "-", *names), support.USAGE, "--output-file is -; expected a file")
        self.expect(support.call("merge", "-o", self.folder, *names), support.RESULTS_IO, "cannot be written")
        self.expect(support.call("merge", "-o", self.folder + "/none/merged", *names), support.RESULTS_IO, "cannot be written")
        # A part may be the output.
        self.expect(support.call("merge", "-i", self.whole.input, "-o", names[0], *names), support.COMPLETE)
        self.assertEqual(len(self.lines_of(names[0])), 60)

    def test_a_part_that_a_job_writes_to_is_not_replaced(self):
        parts = [self.shard(1, 2), self.shard(2, 2)]
        before = self.lines_of(parts[0].output)
        with open(parts[0].output, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # as `forebay run` does
            self.expect(support.call("merge", "-o", parts[0].output, *(part.output for part in parts)), support.LOCKED, "results_locked")
            self.assertEqual(self.lines_of(parts[0].output), before)
            # What it has so far may be merged into another file.
            self.expect(self.merge(*parts, flags=["-i", self.whole.input]), support.COMPLETE)

    def test_a_torn_part_is_read_as_resume_reads_it(self):
        parts = [self.shard(1, 2), self.shard(2, 2)]
        last = parts[1].whole_lines()[-1]
        with open(parts[1].output, "r+b") as file:
            file.truncate(os.path.getsize(parts[1].output) - 9)
        finished = self.merge(*parts, flags=["-i", self.whole.input])
        self.expect(finished, support.DRAINED, f"{len(last) - 9} bytes of torn results",
                    f"no results for lines {support.line_number(last)} ")

    def test_bad_flags(self):
        for text in ("0/3", "4/3", "1/0", "1", "a/3", "1/3x", "-1/3", "1/3/5"):
            finished = support.call(*self.whole.arguments("--shard=" + text))
            self.expect(finished, support.USAGE, "--shard")
        more = self.job([], "more")
        more.input = self.whole.input
        # More shards than lines: the last ones have nothing to do.
        self.expect(more.run("--shard", "200/200"), support.COMPLETE)
        self.assertEqual(more.raw(), b"")


if __name__ == "__main__":
    support.main()
