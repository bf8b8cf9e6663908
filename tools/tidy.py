#!/usr/bin/env python3
"""Structure as a test: include order, cycles, doubled includes, orphan sources, commented-out code, disabled tests,
dead links, error codes, flags, and pages that say what the sources say.

Exits 1 and lists every finding as file:line: what. `tidy.py --picture` prints the picture of ARCHITECTURE.md.
What no rule can judge, docs/review.md asks a reviewer.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# A folder may include folders of a lower level, and itself. The pure books stand below the folders that act on them.
LEVELS = [
    {"base"}, {"tensor"}, {"cost"}, {"runtime"}, {"device"}, {"kernels", "fabric"}, {"weights", "kv"},
    {"model", "sample"}, {"share"}, {"layout"}, {"price"}, {"engine"}, {"choose"}, {"job", "profile"}, {"settings"}, {"trace"}, {"open", "report"}, {"repro"}, {"cli"},
]
LEVEL = {folder: i for i, level in enumerate(LEVELS) for folder in level}
# Folders with a list of their own instead of a level.
ONLY = {
    "text": {"base"},
    "oracle": {"base"},
    "schedule": {"base", "cost", "weights/book", "kv/book"},
    "weights/book": {"base", "tensor", "cost"},
    "kv/book": {"base", "tensor", "cost"},
    "job/lines": {"base"},
    "job/files": {"base", "schedule", "job/lines"},
}
# Who may include them.
USERS = {"oracle": {"repro", "cli"},
         "text": {"engine", "job", "settings", "trace", "open", "report", "repro", "cli"},
         "schedule": {"layout", "price", "engine", "choose", "job", "settings", "trace", "open", "report", "repro", "cli"}}
# What is excepted from the rules, and why. ARCHITECTURE.md has a row for each, and no other.
# Headers that others too may include.
OPEN = {"schedule/step_mode.h": ({"model", "share"}, "names of plain values that all levels pass on"),
        "kv/book/block_tokens.h": ({"kernels"}, "a block's tokens, on which its kernels and its book have to agree")}
# Members of plain structs that nobody reads yet.
UNREAD = {"StepView::now_us": "a policy may go by the clock; none does"}
# Files that reckon with strides of ranks.
STRIDES = {"layout/layout.cc": "where a rank stands among groups, replicas and stages: `PlaceOf`, `RankOf`",
           "model/modes.h": "which block of a replica's step a rank has",
           "model/modes.cc": "as in `model/modes.h`",
           "kernels/serve.cc": "a kernel has no layout; members are numbered by part, then rank: `FirstOfPart`"}
# Files of PLANNERS that ask what machine this is; what is planned follows from options else.
PLANNERS = ("layout/", "price/", "choose/")
HOST_READERS = {"layout/platforms/cpu.cc": "cores, memory and the CPU's name for `--devices cpu`, files of profiles",
                "layout/platforms/cuda.cc": "what the driver says of GPUs for `--devices cuda`, cores, files of profiles",
                "layout/platforms/simulated.cc": "files of profiles",
                "layout/layout_draft.cc": "the kernel set of `--isa auto`, whose scratch a plan counts"}
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
    return path.endswith(("_test.cc", "_fuzz.cc")) or "/testing/" in path


def check_edge(path, line, source, included):
    target = folder_of(included)
    if included in OPEN and source in OPEN[included][0]:
        return
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
            if target.startswith("forebay/") or (target.startswith("testing/") and is_test(path)):
                continue
            if not os.path.exists(os.path.join(ROOT, "src", target)):
                report(path, number, f"includes {target}, which is not under src/")
                continue
            graph.setdefault(relative, []).append(target)
            if not is_test(path):
                check_edge(path, number, source, target)
    return graph


def check_test_helpers():
    """What tests share stands in testing/ of its room, and only tests and benchmarks include it."""
    users = {}
    for path in tracked("*.cc") + tracked("*.h") + tracked("*.cu"):
        for name in re.findall(r'^#include "([^"]+)"', open(path, encoding="utf-8").read(), re.M):
            users.setdefault(name, set()).add(path)
    for room in ("src", "tests"):
        for path in tracked(f"{room}/*.h"):
            name = os.path.relpath(path, os.path.join(ROOT, room))
            tests = {user for user in users.get(name, ()) if is_test(user)}
            others = {user for user in users.get(name, ()) if "/bench/" not in user} - tests
            if not is_test(path) and tests and not others:
                report(path, 1, f"is for tests alone: it belongs into {os.path.dirname(os.path.relpath(path, ROOT))}/testing/")
            for user in sorted(others if is_test(path) else ()):
                report(user, 1, f"includes {name}, which is for tests")


NAMESPACE = re.compile(r"^namespace ([\w:]+) \{")
DEFINITION = re.compile(r"^(?:class|struct|enum class) (?:alignas\(\w+\) )?(\w+)\b[^;]*$")
FORWARD = re.compile(r"^(?:class|struct|enum class) (\w+)[^{]*;$")


def check_forward_declarations(files):
    """A type that is declared ahead comes from a folder that could be included: no edge hides behind its name."""
    homes, ahead = {}, []
    for path in files:
        namespace, folder = "", folder_of(os.path.relpath(path, os.path.join(ROOT, "src")))
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            if match := NAMESPACE.match(text):
                namespace = match.group(1)
            elif match := DEFINITION.match(text):
                homes.setdefault((namespace, match.group(1)), folder)
            elif (match := FORWARD.match(text)) and not is_test(path) and namespace.startswith("forebay"):
                ahead.append((path, number, folder, (namespace, match.group(1))))
    for path, number, folder, name in ahead:
        if name not in homes:
            report(path, number, f"declares {'::'.join(name)}, which no file under src/ defines")
        else:
            check_edge(path, number, folder, homes[name])


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
        included = set()
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            code = bool(CODE_IN_COMMENT.match(text)) and "e.g." not in text
            if code and previous_was_code:
                report(path, number, "commented-out code")
            previous_was_code = code
            if text.startswith("#include"):
                if text in included:
                    report(path, number, "is included twice: " + text.split()[1])
                included.add(text)
            if re.search(r"\bDISABLED_\w+", text):
                report(path, number, "disabled test")
            if re.search(r"GTEST_SKIP\(\)\s*;", text):
                report(path, number, "skips without a reason")
            if re.search(r"\b(TODO|FIXME|XXX)\b", text):
                report(path, number, "an unfinished mark")


def check_simulator_knowledge(files):
    allowed = re.compile(r"/sim/|runtime/virtual/|engine/(backend/|compose)|layout/(devices\.|platforms/)|/cli/")
    for path in files:
        if allowed.search(path) or is_test(path):
            continue
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            if re.search(r"[.>]simulated\b|is_simulat|IsSimulat|is_virtual\(\)\s*[)?&|]", text) and "runtime/" not in path and "device/" not in path:
                report(path, number, "asks whether it runs in the simulator")


def check_modes(files):
    """Names of step modes stand in one file; a copy's label in fabric/ is none."""
    allowed = re.compile(r"schedule/step_mode\.cc|/fabric/")
    for path in files:
        if allowed.search(path) or is_test(path):
            continue
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            for name in re.findall(r'"((?:steps_)?(?:local|pull|ship|gather|routed))"', text):
                report(path, number, f'spells the mode "{name}": see schedule/step_mode.h')


def check_strides(files):
    """Where a rank stands among groups, replicas and stages is known to one file, and within a replica's step to another."""
    cut = r"\(?(?:\w+(?:\.|->))*(?:groups|dp|tp|pp|sp|ranks_per_\w+)\b(?!\(?\)?\s*[!=]=)"
    pattern = re.compile(rf"replicas_per_|\b(?:rank|replica|member|device)s?\b\s*[/%]\s*{cut}|%\s*{cut}|[/%]\s*num_ranks\b")
    for path in files:
        if os.path.relpath(path, os.path.join(ROOT, "src")) in STRIDES or is_test(path):
            continue
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            if pattern.search(text.split("//")[0]) and not INCLUDE.match(text):
                report(path, number, "reckons with strides of ranks: see PlaceOf and RankOf in layout/layout.h")


def check_host(files):
    """What is planned follows from arguments: files that ask the machine are named."""
    pattern = re.compile(r"\b(?:ReadTopology|CpuName|LoadProfile|ChooseKernels)\(|<(?:fstream|filesystem|unistd\.h)>")
    for path in files:
        relative = os.path.relpath(path, os.path.join(ROOT, "src"))
        if not relative.startswith(PLANNERS) or relative in HOST_READERS or is_test(path):
            continue
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            if pattern.search(text.split("//")[0]):
                report(path, number, "asks what machine this is: a plan is pure")


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
    """Links of pages lead somewhere, and so do the paths of sources that they name."""
    for path in tracked("*.md"):
        if "/tests/golden/" in path:
            continue
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            for name in re.findall(r"`((?:\w+/)+\w+\.(?:cc|h|py|sh))\b", text):
                if not re.search(r"/[A-Z]+\b", name) and not any(os.path.exists(os.path.join(ROOT, folder, name)) for folder in ("", "src", "include", "tests")):
                    report(path, number, f"names {name}, which is not there")
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


def check_members(files):
    """Somebody reads each member of a plain struct. Reading is any use of its name but an assignment or an initializer."""
    structs, members, declared, uses = re.compile(r"^struct (?!alignas)(\w+)[^;]*\{\s*$"), [], set(), {}
    member = re.compile(r"^  (?=[\w:])(?!return|using|friend|static|enum|struct)[\w:<>,\s*&\[\]]+?[\s*&>](\w+)(?:\[[^\]]*\])*"
                        r"\s*(?:=[^;]*|\{[^;]*\})?;")
    for path in files:
        struct = None
        for number, text in enumerate(open(path, encoding="utf-8"), 1):
            code = text.split("//")[0]
            for word in re.finditer(r"\b\w+\b(?!\s*(?:=[^=]|\{))", code):
                uses.setdefault(word.group(0), set()).add((path, number))
            begins, found = structs.match(code), member.match(code)
            struct = begins.group(1) if begins else None if code.startswith("}") else struct
            if struct and found and "(" not in code.split("=")[0]:
                declared.add((path, number))
                name = f"{struct}::{found.group(1)}"
                if "/src/" in path and not is_test(path) and name not in UNREAD:
                    members.append((path, number, name, found.group(1)))
    for path, number, name, word in members:
        if not uses.get(word, set()) - declared:
            report(path, number, f"nobody reads {name}")


def folders_of_source():
    return {os.path.relpath(path, os.path.join(ROOT, "src")).split("/")[0] for path in tracked("src/*/CMakeLists.txt")}


def check_levels():
    """LEVELS and ONLY name the folders of src/ and no other, and CMakeLists.txt adds them from the lowest to the highest."""
    folders, known = folders_of_source(), set(LEVEL) | {folder for folder in ONLY if "/" not in folder}
    for folder in sorted(folders ^ known):
        report(__file__, 1, f"src/{folder}/ " + ("has no level" if folder in folders else "has a level and is not there"))
    page = os.path.join(ROOT, "CMakeLists.txt")
    added = re.search(r"foreach\(folder (base[\w\s]*)\)", open(page, encoding="utf-8").read())[1].split()
    for folder in sorted(folders ^ set(added)):
        report(page, 1, f"does not add src/{folder}/" if folder in folders else f"adds src/{folder}/, which is not there")
    place = {folder: at for at, folder in enumerate(added)}
    # What has to come before what: levels in order, and folders without one between those they include and those that do.
    pairs = [(low, high) for low in LEVEL for high in LEVEL if LEVEL[low] < LEVEL[high]]
    pairs += [(low.split("/")[0], folder) for folder, lows in ONLY.items() if folder in place for low in lows]
    pairs += [(folder, high) for folder, highs in USERS.items() for high in highs]
    for low, high in sorted(set(pairs)):
        if low in place and high in place and place[low] > place[high]:
            report(page, 1, f"adds src/{high}/ before src/{low}/, which is of a lower level")


def picture():
    """The rooms by level, the highest first; beside them the rooms that have a list instead of a level."""
    sides = {room: f"{room}: needs {', '.join(sorted(lows)) or 'nothing'}" for room, lows in ONLY.items()}
    lines = [("  " + "   ".join(sorted(level))).ljust(28) for level in reversed(LEVELS)]
    for line, side in enumerate(sorted(sides.values())):
        lines[line + len(lines) - len(sides)] += side
    return "\n".join("    " + line.rstrip() for line in lines)


def check_architecture():
    """ARCHITECTURE.md states the order of LEVELS as it is, and has a row for each folder of src/ and each exception."""
    page = os.path.join(ROOT, "ARCHITECTURE.md")
    text = open(page, encoding="utf-8").read()
    folders = folders_of_source()
    levels = [sorted(level) for level in LEVELS]
    order = " < ".join(level[0] if len(level) == 1 else "{" + ", ".join(level) + "}" for level in levels)
    if f"`{order}`" not in text:
        report(page, 1, f"does not state the order of the folders, which is `{order}`")
    if picture() not in text:
        report(page, 1, "does not have the picture that `tools/tidy.py --picture` prints")
    for folder in sorted(folders):
        if f"\n| `src/{folder}/`" not in text:
            report(page, 1, f"has no row for src/{folder}/")
    excepted = [f"| `{header}` | the order of folders, for {' and '.join(sorted(users))} | {why} |" for header, (users, why) in OPEN.items()]
    excepted += [f"| `{member}` | members have readers | {why} |" for member, why in UNREAD.items()]
    excepted += [f"| `{name}` | no strides of ranks | {why} |" for name, why in STRIDES.items()]
    excepted += [f"| `{name}` | plans are pure | {why} |" for name, why in HOST_READERS.items()]
    section = text.split("\n## Where the code differs", 1)[-1].split("\n## ", 1)[0]
    rows = [line for line in section.split("\n") if line.startswith("| `")]
    for row in [row for row in excepted if row not in rows]:
        report(page, 1, f"does not list an exception where the code differs: {row}")
    for row in [row for row in rows if row not in excepted]:
        report(page, 1, f"lists an exception that there is not: {row}")


def check_pages():
    """docs/README.md links every page of docs/, docs/cli.md names every flag and no other, and the figure is as drawn."""
    index = open(os.path.join(ROOT, "docs", "README.md"), encoding="utf-8").read()
    for path in tracked("docs/*.md"):
        page = os.path.relpath(path, os.path.join(ROOT, "docs"))
        if page != "README.md" and f"]({page})" not in index:
            report(path, 1, "is not in docs/README.md")
    flags = set()
    # Settings are rows of a table, which settings_test compares with the page; other commands add their flags.
    for folder, row in (("settings", r'^ +\{+"([^"]*--[^"]*)",\s+k'), ("cli", r'add_(?:option|flag)\(\s*"([^"]*)"')):
        for path in tracked(f"src/{folder}/*.cc"):
            for names in re.findall(row, open(path, encoding="utf-8").read(), re.M):
                flags.update(re.findall(r"--[a-z-]+", names))
    page = os.path.join(ROOT, "docs", "cli.md")
    named = set(re.findall(r"`(--[a-z-]+)", open(page, encoding="utf-8").read()))
    for flag in sorted(flags - named):
        report(page, 1, f"does not name the flag {flag}")
    for flag in sorted(named - flags - {"--version", "--help", "--help-all"}):
        report(page, 1, f"names {flag}, which no command has")
    drawn = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "draw_peers.py"), "--check"], capture_output=True, text=True)
    if drawn.returncode:
        report(os.path.join(ROOT, "docs", "peers.svg"), 1, drawn.stdout.strip())


def check_form(files):
    """Sources have the form of .clang-format; generated tables are left out."""
    sources = [path for path in files if not path.endswith("unicode_tables.h")]
    run = subprocess.run(["clang-format", "--dry-run", *sources], cwd=ROOT, capture_output=True, text=True)
    for path, line in re.findall(r"^(.*?):(\d+):\d+: warning: code should be clang-formatted", run.stderr, re.M):
        report(os.path.join(ROOT, path), int(line), "is not formatted: run clang-format -i")


def main():
    files = tracked("src/*.h") + tracked("src/*.cc")
    kernels = tracked("src/*.cu")
    check_cycles(check_includes(files + kernels))
    check_forward_declarations(files)
    check_targets(files + tracked("tests/*.cc"))
    check_text(files + kernels + tracked("include/*.h") + tracked("tests/*.cc") + tracked("tests/*.h") + tracked("bench/*.cc") + tracked("bindings/*.cc"))
    check_test_helpers()
    check_simulator_knowledge(files)
    check_modes(files)
    check_strides(files)
    check_host(files)
    check_clock(files)
    check_links()
    check_error_codes(files)
    check_members(files + kernels + tracked("tests/*.cc") + tracked("bench/*.cc"))
    check_levels()
    check_architecture()
    check_pages()
    check_form(tracked("*.h") + tracked("*.cc") + kernels)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--picture"]:
        sys.exit(print(picture()))
    sys.exit(main())
