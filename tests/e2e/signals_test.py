"""SIGTERM and SIGINT at 20 points of a job: it drains, says so by its exit code, loses nothing, and resumes."""
import fcntl
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import termios
import time

import support
import tiny_model

POINTS = 20


def slow_lines(count=6, tokens=3000):
    """Line 1 ends soon and tells that the engine runs; the others take longer than any test waits for."""
    first = {"custom_id": "first", "prompt": [5], "max_tokens": 1}
    return [first] + [{"custom_id": f"s{i}", "prompt": [5], "max_tokens": tokens, "ignore_eos": True} for i in range(count)]


class Terminal:
    """As much of one as the block needs. Rows that were wrapped are joined when it becomes wider, and lines are wrapped anew when
    it becomes narrower; the cursor stays at its character."""

    def __init__(self, width, height):
        self.width, self.height, self.wraps = width, height, True
        self.rows, self.goes_on = [""], [False]  # goes_on: the next row is of the same line
        self.row = self.column = 0

    def lines(self):
        joined, begins = [], True
        for row, goes_on in zip(self.rows, self.goes_on):
            joined = joined + [row] if begins else [*joined[:-1], joined[-1] + row]
            begins = not goes_on
        return joined

    def resize(self, width, height):
        line = sum(not goes_on for goes_on in self.goes_on[:self.row])
        first = self.row
        while first > 0 and self.goes_on[first - 1]:
            first -= 1
        at = sum(map(len, self.rows[first:self.row])) + self.column
        self.width, self.height = width, height
        rows, goes_on = [], []
        for number, text in enumerate(self.lines()):
            pieces = [text[i:i + width] for i in range(0, len(text), width)] or [""]
            if number == line:
                self.row, self.column = len(rows) + min(at // width, len(pieces) - 1), at % width
            rows += pieces
            goes_on += [True] * (len(pieces) - 1) + [False]
        self.rows, self.goes_on = rows, goes_on

    def down(self, goes_on=False):
        self.goes_on[self.row] = goes_on
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.rows):
            self.rows.append("")
            self.goes_on.append(False)

    def put(self, character):
        if self.column == self.width:
            if self.wraps:
                self.down(goes_on=True)
            else:
                self.column -= 1
        text = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = text[:self.column] + character + text[self.column + 1:]
        self.column += 1

    def show(self, data):
        for part in re.findall(r"\x1b\[\??\d*[A-Za-z]|[^\x1b]", data.decode()):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self.down()
            elif part in ("\x1b[?7l", "\x1b[?7h"):
                self.wraps = part.endswith("h")
            elif part in ("\x1b[K", "\x1b[J"):
                self.rows[self.row] = self.rows[self.row][:self.column]
                self.goes_on[self.row] = False
                if part == "\x1b[J":
                    del self.rows[self.row + 1:], self.goes_on[self.row + 1:]
            elif part.endswith("A") and len(part) > 1:
                # Not above the terminal's first row: what is there has scrolled away.
                top = max(0, len(self.rows) - self.height)
                self.row = max(top, self.row - int(part[2:-1]))
            else:
                self.put(part)


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
        lines = support.mixed_requests(rng, 120, most_tokens=64)
        flags = ["--digest", "--max-num-seqs", "8"]
        reference = self.job(lines, "reference", flags=flags)
        self.expect(reference.run(), support.COMPLETE)
        expected = reference.answers()
        drained = 0
        for point in range(POINTS):
            job = self.job(lines, f"point{point}", flags=[*flags, "--threads", 1 + point % 2])
            process = job.start()
            self.wait_for_results(job, 1 + point * 100 // POINTS, process)
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
                self.assertLess(len(found), len(lines))
                self.assertIn("the same command goes on", err)
                self.assertIn("drained: ", err)
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

    def test_a_trace_that_is_drained_says_so(self):
        """And not that nothing was streamed until then."""
        steps = os.path.join(self.folder, "steps.jsonl")
        process = subprocess.Popen(support.command("run", "-m", support.LLAMA, "--memory", "64MiB", "--steps", steps, "--trace",
                                                   "synthetic:n=20000,prompt=4,output=20", "--max-num-seqs", 8, "--num-kv-blocks-override", 100,
                                                   "--kv-offloading-size", "1MiB", "--kv-offload", "always", "--device-profile", "zen4"),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while process.poll() is None and not (os.path.exists(steps) and os.path.getsize(steps) > 0):
            self.assertLess(time.monotonic(), deadline, "no steps")
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, support.DRAINED, err.decode())
        self.assertIn(b"forebay: drained: ", err)

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

    def test_a_resize_leaves_no_stale_lines(self):
        """Whatever the terminal's size becomes, and however late the job hears of it, there is one block."""
        job = self.job(slow_lines(60), model=self.long_model(), flags=["--skip-tokenizer-init", "--max-num-seqs", "2"])
        ours, theirs = pty.openpty()
        terminal = Terminal(100, 24)

        def tell(width, height):
            fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

        tell(100, 24)
        process = subprocess.Popen(support.command(*job.arguments("--grace", "600")), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=theirs)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        os.close(theirs)

        def draws(count):
            """Shows what comes until the block was drawn so many times."""
            while count > 0:
                self.assertTrue(select.select([ours], [], [], 60)[0], terminal.rows)
                text = os.read(ours, 4096)
                terminal.show(text)
                count -= text.count(b"\x1b[J")

        draws(2)
        for width, height in ((40, 24), (72, 24), (20, 3), (100, 24)):
            if height < terminal.height:  # lines that scroll away stay above
                tell(terminal.width, height)
                draws(2)
            terminal.resize(width, height)
            draws(1)  # drawn for the size before
            tell(width, height)
            draws(2)
            lines = terminal.lines()
            self.assertEqual(sum(" done" in line for line in lines), 1, lines)
            self.assertEqual(sum(line.startswith("[") or "ETA" in line for line in lines), 1, lines)
        process.kill()
        os.close(ours)

    def long_model(self):
        return tiny_model.write(os.path.join(self.folder, "long"), max_position_embeddings=4096, hidden_size=256,
                                intermediate_size=1024, num_hidden_layers=4)


if __name__ == "__main__":
    support.main()
