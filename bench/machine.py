"""Is the machine still what it was? Rates of virtual machines change within minutes, of memory above all."""
import json
import os
import statistics
import subprocess
import sys
import time

MOST_DRIFT = 0.10        # of a rate
PATIENCE = 150           # seconds that a measurement waits for the rates to come back, its own time included


def probe_of(forebay):
    """The path of the limits probe that was built beside the program."""
    probe = os.path.join(os.path.dirname(os.path.abspath(forebay)), "bench", "limits_probe")
    if not os.path.exists(probe):
        sys.exit(f"{probe} is missing; build it: cmake --preset release -DFOREBAY_BENCH=ON && ninja -C build/release limits_probe")
    return probe


def share_memory(profile, reads, path):
    """`path` of the profile with what all cores read while the real runs were made, rather than at the profile's one moment."""
    profile["numbers"]["machine_bytes_per_s"] = {"value": statistics.median(reads), "mark": "measured", "source": "probes around the runs"}
    with open(path, "w") as file:
        json.dump(profile, file)
    return path


class Changed(Exception):
    """The machine is not what it was at first: its rates then and now."""


RATES = ("flops", "bytes_per_s")  # the register peak, the stream rate


class Machine:
    """Its rates while the first thing was measured, and whether they hold. `prefix`: a command that probes run under. `holds`: rates that
    must; a job that arithmetic bounds does not mind what memory gives."""

    def __init__(self, forebay, prefix=(), holds=RATES):
        self.command = [*prefix, probe_of(forebay)]
        self.holds = [rate in holds for rate in RATES]
        self.at_first = None
        self.repeated = 0
        self.seen = []  # by `beside`

    def rates(self):
        probes = [json.loads(subprocess.run(self.command, stdout=subprocess.PIPE, check=True, text=True).stdout) for _ in range(3)]
        return [statistics.median(probe[rate] for probe in probes) for rate in RATES]

    def same(self, as_before):
        self.now = self.rates()
        return all(abs(now / then - 1) < MOST_DRIFT for now, then, holds in zip(self.now, as_before, self.holds) if holds)

    def beside(self, what):
        """what() between two probes, which are noted."""
        self.seen.append(self.rates())
        result = what()
        self.seen.append(self.rates())
        return result

    def steady(self, what):
        """what() between two probes that agree with each other and with those around the first thing; raises Changed."""
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE:
            rates = self.at_first or self.rates()
            if self.at_first and not self.same(rates):
                time.sleep(1)
                continue
            result = what()
            if self.same(rates):
                self.at_first = rates
                return result
            self.repeated += 1
        raise Changed("; ".join(f"{flops / 1e9:.0f} GFLOP/s, {read / 1e9:.1f} GB/s" for flops, read in (rates, self.now)))
