"""One job on four processes of this machine, each with cores of its own; a killed one costs nothing. usage: workers.py MODEL INPUT OUTPUT"""

import sys

from forebay import scale


def main() -> None:
    model, requests, results = sys.argv[1:]
    summary = scale.run_batch(requests, results, model, num_workers=4, num_cpus=1)
    print(f"{summary['num_requests']} lines done, {summary['num_resumed']} were there, {summary['num_failed']} failed")


if __name__ == "__main__":
    main()
