"""OpenVINO GenAI's continuous batching pipeline, fed token ids."""
import numpy as np
import openvino
import openvino_genai
import worker


class Engine:
    def __init__(self, settings):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = settings["cache_gib"]
        scheduler.max_num_seqs = settings["slots"]
        scheduler.max_num_batched_tokens = settings["batch"]
        scheduler.enable_prefix_caching = False
        properties = {"INFERENCE_NUM_THREADS": settings["threads"], "INFERENCE_PRECISION_HINT": "bf16",
                      "KV_CACHE_PRECISION": settings["kv"]}
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(settings["model"], scheduler, "CPU", properties)

    def prepare(self, requests):
        pass

    def run(self, requests):
        prompts = [openvino.Tensor(np.array([prompt], np.int64)) for prompt, _ in requests]
        configs = [openvino_genai.GenerationConfig(max_new_tokens=output, min_new_tokens=output, ignore_eos=True, do_sample=False)
                   for _, output in requests]
        results = self.pipeline.generate(prompts, configs)
        for result, (_, output) in zip(results, requests):
            assert len(result.m_generation_ids[0]) == output
        return [result.m_generation_ids[0][0] for result in results]


if __name__ == "__main__":
    worker.serve(Engine)
