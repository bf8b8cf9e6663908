#!/usr/bin/env python3
"""The output of `forebay repro` as a table for people: build/release/forebay repro sidp | tools/repro_table.py

A row has the claim, what is published, ours, the verdict and, where ours is another, the first figures of its account. Of a
row with many values it shows the worst three; `forebay repro ROW` prints all.
"""
import re
import sys

HEAD = re.compile(r"^(\S+)  (.*) \(([^;()]*(?:\([^()]*\))?[^;()]*); ([^()]*)\): ([\w ]+)$")
VALUE = re.compile(r"^  (.{0,32}?) +((?:[<>] )?[-\w.]+) +(-?[\w.+-]+|-) +(-?[\w.+-]+|-)  ([\w ]+)$")
VERDICTS = ["not reproduced", "not reached", "contradiction", "not judged", "within band", "reproduced"]
OWN = ("beyond the paper", "a bound of ours", "a roofline of ours")  # sources in src/repro/claim.h
MOST_VALUES, MOST_TERMS = 3, 3


def rows(lines):
    row = None
    for line in lines:
        line = line.rstrip("\n")
        if match := HEAD.match(line):
            row = {"id": match[1], "claim": match[2], "source": match[3], "verdict": match[5], "values": [], "account": {}}
            yield row
        elif row is None or line.startswith("  " + " " * 20 + " ") and "claimed" in line:
            continue
        elif match := re.match(r"^  account of (.*?): (.*)$", line):
            row["account"][match[1]] = match[2].split(", ")
        elif match := VALUE.match(line):
            row["values"].append((match[1].strip(), match[2], match[3], match[5]))


def cell(text):
    return text.replace("|", "\\|")


def main():
    all_rows = list(rows(sys.stdin))
    print("| row | claim | published | ours | verdict | account |\n|---|---|---|---|---|---|")
    for row in all_rows:
        values = sorted(row["values"], key=lambda value: VERDICTS.index(value[3]))[:MOST_VALUES]
        labels = len(row["values"]) > 1
        published = "; ".join((f"{label}: " if labels and label else "") + claimed for label, claimed, _, _ in values)
        ours = "; ".join(ours for _, _, ours, _ in values)
        more = len(row["values"]) - len(values)
        verdict = row["verdict"]
        if len(row["values"]) > 1:
            same = sum(value[3] == verdict for value in row["values"])
            verdict += f" ({same} of {len(row['values'])})" if same < len(row["values"]) else ""
        account = next((terms for label, _, _, _ in values for terms in [row["account"].get(label)] if terms), [])
        print(f"| {row['id']} | {cell(row['claim'])} ({row['source']}) | {cell(published)}{f'; {more} more' if more else ''} | {ours} "
              f"| {verdict} | {cell(', '.join(account[:MOST_TERMS]))} |")
    print()
    own = [row for row in all_rows if row["source"] in OWN]
    for name, some in (("rows", all_rows), ("published claims", [row for row in all_rows if row not in own]),
                       ("comparisons and bounds of ours", own)):
        counts = [f"{count} {verdict}" for verdict in VERDICTS[::-1] if (count := sum(row["verdict"] == verdict for row in some))]
        if some:
            print(f"- {len(some)} {name}: {', '.join(counts)}.")


if __name__ == "__main__":
    main()
