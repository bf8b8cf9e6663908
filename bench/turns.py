"""Commands that do the same job, timed in turns, so that what the machine does besides meets all of them."""
import os
import resource
import statistics
import subprocess
import sys
import time

HEAD = ["| job | way | seconds | times the first, of pairs |", "|---|---|---|---|"]


def in_turns(ways, rounds):
    """ways: {name: a function that does the job once}. -> {name: seconds of each round}; who begins changes from round to round."""
    times = {name: [] for name in ways}
    for i in range(rounds):
        names = list(ways)
        for name in names[i % len(names):] + names[:i % len(names)]:
            began = time.monotonic()
            ways[name]()
            times[name].append(time.monotonic() - began)
    return times


def cpu_in_turns(ways, rounds):
    """The same, and what processes that it started used of the CPU: on a machine that others use too it says more."""
    cpu = {name: [] for name in ways}

    def counted(name):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ways[name]()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    return in_turns({name: lambda name=name: counted(name) for name in ways}, rounds), cpu


def table(job, times):
    """Rows: how fast each way is as a multiple of the first, in each round; the median, the least and the greatest."""
    first = next(iter(times))
    for name, seconds in times.items():
        yield f"| {job} | {name} | {statistics.median(seconds):.2f} | {share(times[first], seconds)} |"


def share(first, seconds):
    """The first way's time in this one's, of rounds: the median, the least and the greatest."""
    speeds = [then / own for then, own in zip(first, seconds)]
    return f"{statistics.median(speeds):.3f} ({min(speeds):.3f}-{max(speeds):.3f})"


def python(code, *arguments):
    """Runs Python code in a process of its own, and returns what it prints."""
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, check=True, text=True).stdout


def machine():
    with open("/proc/cpuinfo") as info:
        name = next(line.split(":")[1].strip() for line in info if line.startswith("model name"))
    return f"{name}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"
