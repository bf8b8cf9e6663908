#!/usr/bin/env python3
"""Prints one answer of each kind of the demo job. usage: show_results.py REQUESTS RESULTS"""
import json
import sys


def main():
    requests_path, results_path = sys.argv[1:]
    prompts = {}
    for line in open(requests_path, encoding="utf-8"):
        request = json.loads(line)
        prompts[request["custom_id"]] = request["body"]["messages"][-1]["content"]
    shown = set()
    for line in open(results_path, encoding="utf-8"):
        result = json.loads(line)
        kind = result["custom_id"].split("-")[0]
        if kind in shown or result["response"]["status_code"] != 200:
            continue
        shown.add(kind)
        answer = result["response"]["body"]["choices"][0]["message"]["content"].strip()
        print(f"\n[{result['custom_id']}] {prompts[result['custom_id']]}\n--> {answer}")
    print(f"\nall answers: {results_path}")


if __name__ == "__main__":
    main()
