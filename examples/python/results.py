"""A results file as a pandas frame. usage: results.py RESULTS"""

import sys

import pandas as pd

# Ids are text: without a type "007" would become 7.
lines = pd.read_json(sys.argv[1], lines=True, dtype={"custom_id": str})
bodies = lines["response"].map(lambda response: response["body"])
frame = pd.DataFrame(
    {
        "custom_id": lines["custom_id"],
        "status": lines["response"].map(lambda response: response["status_code"]),
        "text": bodies.map(lambda body: [choice.get("text", choice.get("message", {}).get("content")) for choice in body.get("choices", [])]),
        "output_tokens": bodies.map(lambda body: body.get("usage", {}).get("completion_tokens", 0)),
    }
)
print(frame.sort_values("custom_id").to_string(index=False))
