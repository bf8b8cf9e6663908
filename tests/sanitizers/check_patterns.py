"""Checks that each pattern of tests that sanitizers leave out names a test. usage: check_patterns.py TEST_EXECUTABLE..."""
import fnmatch
import os
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def names(executable):
    """The tests of one executable, as GoogleTest's filters see them."""
    suite = ""
    for line in subprocess.run([executable, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.endswith("."):
            suite = name
        elif name.startswith("  "):
            yield suite + name.strip()


def main(executables):
    tests = [name for executable in executables for name in names(executable)]
    unused = []
    for file in ("address.txt", "thread.txt"):
        with open(os.path.join(FOLDER, file), encoding="utf-8") as lines:
            patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        unused += [f"{file}: {pattern}" for pattern in patterns if not any(fnmatch.fnmatchcase(name, pattern) for name in tests)]
    print(f"{len(tests)} tests; patterns that name none: {len(unused)}", *unused, sep="\n")
    return 1 if unused or not tests else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
