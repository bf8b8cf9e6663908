"""README's commands, and those of the pages of examples/, run as they are printed: one job for all of them, in a folder that looks like a clone.

What needs the network, the demo's model where it is not there, or minutes is skipped, printed and counted. Real devices
are priced by a built-in profile, which a user's first run would measure for 15 s.
"""
import os
import re
import shlex
import subprocess

import support

PROGRAM = "build/release/forebay"
README = os.path.join(support.ROOT, "README.md")
# They install, build or fetch, or belong to another test (tests/python/examples_test.py).
ELSEWHERE = re.compile(r"make |pip |from forebay |import forebay|llm = |outputs = |print\(")
# Seconds for a block: all together take some 10 on two cores, and a machine may be busy.
LIMIT = 300


def blocks(text):
    """The indented parts of a page, without their indent."""
    for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE):
        yield [line[4:] for line in block.splitlines()]


def commands(block):
    """The lines of a block that a user types: those after "$ ", else all of them, if one calls the program."""
    block = re.sub(r"\\\n *", "", "\n".join(block)).split("\n")
    if any(line.startswith("$ ") for line in block):
        return [line[2:] for line in block if line.startswith("$ ")]
    return block if any(PROGRAM in line for line in block) else []


class Readme(support.TestCase):
    def setUp(self):
        super().setUp()
        self.clone = os.path.join(self.folder, "clone")
        os.makedirs(os.path.join(self.clone, os.path.dirname(PROGRAM)))
        # The program is called with one flag more where it would measure this machine's CPU first.
        with open(os.path.join(self.clone, PROGRAM), "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\ncase "$*" in *xcpu*) set -- "$@" --device-profile zen4;; esac\n'
                       f'exec {shlex.quote(support.command()[0])} "$@"\n')
        os.chmod(os.path.join(self.clone, PROGRAM), 0o755)
        for name in ("tests", "examples"):
            os.symlink(os.path.join(support.ROOT, name), os.path.join(self.clone, name))
        self.has_demo_model = os.path.exists(support.DEMO_MODEL)
        os.makedirs(os.path.join(self.clone, "models"))
        if self.has_demo_model:
            os.symlink(support.DEMO_MODEL, os.path.join(self.clone, "models", "SmolLM2-135M-Instruct.Q4_1.gguf"))

    def run_lines(self, lines):
        script = "set -e\n" + "\n".join(lines) + "\n"
        done = subprocess.run(["bash", "-c", script], cwd=self.clone, capture_output=True, text=True, timeout=LIMIT,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, f"{script}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")

    def test_examples(self):
        if not self.has_demo_model:
            self.skipTest("the demo's model is not there")
        for page in ("likelihoods", "vectors"):
            with open(os.path.join(support.ROOT, "examples", page + ".md"), encoding="utf-8") as file:
                lines = [line for block in blocks(file.read()) for line in commands(block)]
            self.assertGreaterEqual(len(lines), 2)
            self.run_lines(lines)

    def test_commands(self):
        ran = calls = 0
        skipped = []
        with open(README, encoding="utf-8") as file:
            text = file.read()
        for block in blocks(text):
            if block[0].startswith('{"custom_id"'):
                with open(os.path.join(self.clone, "requests.jsonl"), "w", encoding="utf-8") as file:
                    file.write("\n".join(block) + "\n")
                continue
            if ELSEWHERE.match(block[0]):
                skipped += [line for line in block if line]
                continue
            lines = commands(block)
            if not lines:
                continue
            if not self.has_demo_model and any("models/SmolLM2" in line for line in lines):
                skipped += lines
                continue
            with self.subTest(lines[0]):
                self.run_lines(lines)
                ran += 1
                calls += sum(PROGRAM in line or line.startswith("$RUN ") for line in lines)
        for line in skipped:
            print(f"SKIPPED {line}")
        print(f"{calls} commands of {ran} blocks ran, {len(skipped)} lines skipped")
        self.assertGreaterEqual(calls, 10)

    def test_the_program_has_one_spelling(self):
        with open(README, encoding="utf-8") as file:
            for block in blocks(file.read()):
                for line in block:
                    self.assertNotRegex(line, r"^(\$ )?\s*forebay (?!:)")


if __name__ == "__main__":
    support.main()
