"""The metrics of ``get_metrics``, with vLLM's names, kinds and labels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any


@dataclass
class Metric:
    name: str
    labels: dict[str, str]


@dataclass
class Counter(Metric):
    """A number that never falls."""

    value: int


@dataclass
class Gauge(Metric):
    value: float


@dataclass
class Histogram(Metric):
    """``buckets``: the count of values up to each upper bound, by the bound as text; the last one (+Inf) counts all."""

    count: int
    sum: float
    buckets: dict[str, int]


_COUNTERS = {
    "vllm:prompt_tokens": "prompt_tokens",
    "vllm:generation_tokens": "output_tokens",
    "vllm:num_preemptions": "preemptions",
    "vllm:prefix_cache_hits": "cached_prompt_tokens",
}


def metrics_of(model: str, stats: dict[str, Any], meters: dict[str, Any]) -> list[Metric]:
    """The metrics of the engine's ``stats`` and ``meters``. All replicas count as engine 0. Requests count by their choices."""
    labels = {"model_name": model, "engine": "0"}
    used = stats["kv_blocks_used"] / max(1, stats["kv_blocks_total"])
    cache = {"block_size": str(meters["block_tokens"]), "num_gpu_blocks": str(stats["kv_blocks_total"])}
    waiting = stats["choices_waiting"] + meters["choices_ahead"]
    found: list[Metric] = [
        Gauge("vllm:num_requests_running", {**labels}, stats["choices_running"]),
        Gauge("vllm:num_requests_waiting", {**labels}, waiting),
        Gauge("vllm:kv_cache_usage_perc", {**labels}, used),
        Gauge("vllm:cache_config_info", {**labels, **cache}, 1),
    ]
    found += [Counter(name, {**labels}, stats[ours]) for name, ours in _COUNTERS.items()]
    found.append(Counter("vllm:prefix_cache_queries", {**labels}, meters["prefix_queries"]))
    found += [Counter("vllm:request_success", {**labels, "finished_reason": reason}, count) for reason, count in meters["ends"].items()]
    for name, bounds, counts, total in meters["histograms"]:
        ends = [*(str(float(bound)) for bound in bounds), "+Inf"]
        found.append(Histogram(name, {**labels}, sum(counts), total, dict(zip(ends, accumulate(counts)))))
    return found
