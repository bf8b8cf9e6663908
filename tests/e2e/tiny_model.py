"""Writes the tiniest model the engine takes: random BF16 weights in Hugging Face's layout, no tokenizer.

usage: tiny_model.py FOLDER [hidden_size=V ...]
"""
import json
import math
import os
import random
import statistics
import struct
import sys

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 32,
    "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "hidden_act": "silu", "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
    "rope_theta": 10000.0, "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16",
}


def tensor_shapes(config):
    """Name -> shape of every weight."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (hidden,), prefix + "post_attention_layernorm.weight": (hidden,),
            prefix + "self_attn.q_proj.weight": (queries, hidden), prefix + "self_attn.k_proj.weight": (keys, hidden),
            prefix + "self_attn.v_proj.weight": (keys, hidden), prefix + "self_attn.o_proj.weight": (hidden, queries),
            prefix + "mlp.gate_proj.weight": (inner, hidden), prefix + "mlp.up_proj.weight": (inner, hidden),
            prefix + "mlp.down_proj.weight": (hidden, inner),
        }
    return shapes


def bf16(value):
    return struct.pack("<f", value)[2:]


# 256 weights that share a normal distribution evenly. A byte drawn at random is one of them: its number takes no time.
_WEIGHTS = [bf16(0.3 * statistics.NormalDist().inv_cdf((i + 0.5) / 256)) for i in range(256)]
_BYTES = [bytes(weight[i] for weight in _WEIGHTS) for i in range(2)]


def drawn(rng, count):
    """`count` weights of a normal distribution, in BF16."""
    numbers, content = rng.randbytes(count), bytearray(2 * count)
    for i in range(2):
        content[i::2] = numbers.translate(_BYTES[i])
    return bytes(content)


def safetensors(tensors):
    """`tensors`: name -> (shape, bytes), all BF16."""
    header, end = {}, 0
    for name, (shape, content) in tensors.items():
        begin, end = end, end + len(content)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(content for _, content in tensors.values())


def write(folder, seed=1, **changes):
    """The folder, which now holds the model. `changes` go into its config."""
    rng = random.Random(seed)
    config = CONFIG | changes
    tensors = {}
    for name, shape in tensor_shapes(config).items():
        tensors[name] = (shape, drawn(rng, math.prod(shape)) if len(shape) == 2 else bf16(1.0) * shape[0])
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(safetensors(tensors))
    return folder


if __name__ == "__main__":
    write(sys.argv[1], **{key: int(value) for key, value in (pair.split("=") for pair in sys.argv[2:])})
