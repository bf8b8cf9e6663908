#!/usr/bin/env python3
"""Structure as a test: include order, cycles, orphan sources, dead code, disabled tests, dead links, error codes.

Exits 1 and lists every finding as file:line: what.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# A folder may include folders of a lower level, and itself. The pure books stand below the folders that act on them.
LEVELS = [
    {"base"}, {"tensor"}, {"cost"}, {"runtime"}, {"device"}, {"kernels", "fabric"}, {"weights", "kv"},
    {"model", "sample"}, {"engine"}, {"job", "profile"}, {"sim", "plan"}, {"repro", "serve"}, {"cli"},
]
LEVEL = {folder: i for i, level in enumerate(LEVELS) for folder in level}
# Folders with a list of their own instead of a level.
ONLY = {
    "text": {"base"},
    "schedule": {"base", "cost", "weights/book", "kv/book"},
    "weights/book": {"base", "tensor", "cost"},
    "kv/book": {"base", "tensor", "cost"},
}
# Who may include them.
USERS = {"text": {"engine", "job", "sim", "plan", "repro", "serve", "cli"},
         "schedule": {"engine", "job", "sim", "plan", "repro", "serve", "cli"}}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
# Two such lines in a row are code; what is indented inside a comment is a sketch of an interface or a layout.
CODE_IN_COMMENT = re.compile(r"^\s*// ?[^\s/].*(;|\{|\})\s*$")

findings = []


def report(path, line, what):
    findings.append(f"{os.path.relpath(path, ROOT)}:{line}: {what}")


def tracked(pattern):
    out = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern], cwd=ROOT,
                         capture_output=True, text=True, check=True).stdout
    return [os.path.join(ROOT, p) for p in out.split("\n") if p and os.path.exists(os.path.join(ROOT, p))]


def folder_of(relative):
    """'kv/book/block_book.h' -> 'kv/book'; 'kernels/cpu/linear.h' -> 'kernels'."""
    parts = relative.split("/")
    nested = "/".join(parts[:2])
    return nested if nested in ONLY else parts[0]


def is_test(path):
    return path.endswith(("_test.cc", "_fuzz.cc")) or "/testing/" in path or "/test_" in path


def check_edge(path, line, source, target):
    if source == target or target == "forebay":
        return
    if source in ONLY:
        if target not in ONLY[source]:
            report(path, line, f"{source}/ may include {sorted(ONLY[source])} only, not {target}/")
        return
    if target in USERS:
        if source not in USERS[target]:
            report(path, line, f"{source}/ may not include {target}/")
        return
    top = target.split("/")[0]
    if source not in LEVEL or top not in LEVEL:
        report(path, line, f"unknown folder in {source}/ -> {target}/: add it to tools/tidy.py")
    elif LEVEL[top] > LEVEL[source] or (LEVEL[top] == LEVEL[source] and top != source):
        report(path, line, f"include goes up: {source}/ -> {target}/")


def check_includes(files):
    graph = {}
    for path in files:
        relative = os.path.relpath(path, os.path.join(ROOT, "src"))
        source = folder_of(relative)
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            match = INCLUDE.match(text)
            if not match:
                continue
            target = match.group(1)
            if target.startswith("forebay/"):
                continue
            if not os.path.exists(os.path.join(ROOT, "src", target)):
                report(path, number, f"includes {target}, which is not under src/")
                continue
            graph.setdefault(relative, []).append(target)
            if not is_test(path):
                check_edge(path, number, source, folder_of(target))
    return graph


def check_cycles(graph):
    state = {}

    def visit(node, trail):
        state[node] = "open"
        for target in graph.get(node, []):
            if state.get(target) == "open":
                report(os.path.join(ROOT, "src", node), 1, f"include cycle: {' -> '.join(trail + [node, target])}")
            elif target not in state:
                visit(target, trail + [node])
        state[node] = "done"

    for node in list(graph):
        if node not in state:
            visit(node, [])


def check_targets(files):
    listed = set()
    for path in tracked("*CMakeLists.txt"):
        for name in re.findall(r"[\w./-]+\.cc\b", open(path, encoding="utf-8").read()):
            listed.add(os.path.normpath(os.path.join(os.path.dirname(path), name)))
    for path in files:
        if path.endswith(".cc") and path not in listed:
            report(path, 1, "is in no CMake target")


def check_text(files):
    for path in files:
        previous_was_code = False
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            code = bool(CODE_IN_COMMENT.match(text)) and "e.g." not in text
            if code and previous_was_code:
                report(path, number, "commented-out code")
            previous_was_code = code
            if re.search(r"\bDISABLED_\w+", text):
                report(path, number, "disabled test")
            if re.search(r"GTEST_SKIP\(\)\s*;", text):
                report(path, number, "skips without a reason")
            if re.search(r"\b(TODO|FIXME|XXX)\b", text):
                report(path, number, "an unfinished mark")


def check_simulator_knowledge(files):
    allowed = re.compile(r"/sim/|runtime/virtual/|engine/compose|/cli/")
    for path in files:
        if allowed.search(path) or is_test(path):
            continue
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            if re.search(r"is_simulat|IsSimulat|is_virtual\(\)\s*[)?&|]", text) and "runtime/" not in path and "device/" not in path:
                report(path, number, "asks whether it runs in the simulator")


def check_clock(files):
    """Nobody but runtime/real reads clocks, sleeps or waits on condition variables."""
    allowed = re.compile(r"src/runtime/|src/cli/|src/job/")
    pattern = re.compile(r"std::this_thread|steady_clock|condition_variable|\bsleep\(")
    for path in files:
        if allowed.search(path) or is_test(path):
            continue
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            if pattern.search(text.split("//")[0]):
                report(path, number, "time and blocking go through runtime/")


def check_links():
    for path in tracked("*.md"):
        if "/tests/golden/" in path:
            continue
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
                if "://" in target or target.startswith("mailto:"):
                    continue
                if not os.path.exists(os.path.join(os.path.dirname(path), target)):
                    report(path, number, f"dead link {target}")


def check_error_codes(files):
    page = os.path.join(ROOT, "docs", "errors.md")
    listed = open(page, encoding="utf-8").read() if os.path.exists(page) else ""
    pattern = re.compile(r'ErrorCode\s+k\w+\{"(\w+)"\}')
    for path in files:
        if is_test(path):
            continue
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            for code in pattern.findall(text):
                if f"`{code}`" not in listed and code != "ok":
                    report(path, number, f"error code {code} is not in docs/errors.md")


def main():
    files = tracked("src/*.h") + tracked("src/*.cc")
    check_cycles(check_includes(files))
    check_targets(files + tracked("tests/*.cc"))
    check_text(files + tracked("tests/*.cc"))
    check_simulator_knowledge(files)
    check_clock(files)
    check_links()
    check_error_codes(files)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
