"""What all workers share: a process that loads one engine, then runs the request files named on its standard input.

A line {"requests": FILE, "serial": bool} is answered by {"seconds": S, "first": [ids]}: the time from the first call of the engine
to the end of the last request, all given at once or (serial) one after another, and each request's first token.
"""
import json
import os
import sys
import time


def read_requests(path):
    """[(prompt ids, tokens to generate)] of a file in Forebay's input format."""
    bodies = map(json.loads, open(path))
    return [(body["prompt"], body["max_tokens"]) for body in bodies]


def serve(engine_class):
    """engine_class(settings) has prepare(requests), not timed, and run(requests), which returns first tokens."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine prints goes to the log
    engine = engine_class(json.loads(sys.argv[1]))
    for line in sys.stdin:
        order = json.loads(line)
        requests = read_requests(order["requests"])
        engine.prepare(requests)
        begin = time.perf_counter()
        if order["serial"]:
            first = [engine.run([request])[0] for request in requests]
        else:
            first = engine.run(requests)
        print(json.dumps({"seconds": time.perf_counter() - begin, "first": first}), file=replies, flush=True)
