"""Commands that do the same job, timed in turns, so that what the machine does besides meets all of them."""
import os
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


def table(job, times):
    """Rows: how fast each way is as a multiple of the first, in each round; the median, the least and the greatest."""
    first = next(iter(times))
    for name, seconds in times.items():
        speeds = [then / own for then, own in zip(times[first], seconds)]
        yield (f"| {job} | {name} | {statistics.median(seconds):.2f} | "
               f"{statistics.median(speeds):.3f} ({min(speeds):.3f}-{max(speeds):.3f}) |")


def python(code, *arguments):
    """Runs Python code in a process of its own, and returns what it prints."""
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, check=True, text=True).stdout


def machine():
    with open("/proc/cpuinfo") as info:
        name = next(line.split(":")[1].strip() for line in info if line.startswith("model name"))
    return f"{name}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"
