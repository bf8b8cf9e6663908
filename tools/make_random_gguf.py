#!/usr/bin/env python3
"""Writes a GGUF file of random weights with a model's shape, to measure loading and large models without a download.

    make_random_gguf.py CONFIG.json OUT.gguf [Q4_K_M|Q8_0] [KEY=VALUE ...]

CONFIG.json is one of a Qwen3 or Qwen3-MoE folder, or of src/model/configs/; KEY=VALUE replaces one of its numbers. Of Q4_K_M, as llama.cpp mixes it:
the head, and in half of the layers attn_v and ffn_down, are Q6_K; the other matrices are Q4_K. Norms and routers are F32. A matrix is written in pieces
of 32 MiB, so the script's memory does not grow with the model. There is no tokenizer in the file: prompts are lists of tokens.
"""

import json
import random
import struct
import sys

PIECE_BYTES = 32 << 20
ALIGNMENT = 32
DEVIATION = 0.02  # of weights, about


class Type:
    """A type of GGUF: its number, elements and bytes of a block, and where its blocks have numbers that are no random bytes: offset -> fp16."""

    def __init__(self, number, elements, size, halves):
        self.number, self.elements, self.size = number, elements, size
        self.halves = {offset: struct.pack("<e", value) for offset, value in halves.items()}

    def bytes_of(self, shape):
        count = 1
        for extent in shape:
            count *= extent
        return count // self.elements * self.size

    def pieces(self, shape, rng):
        left = self.bytes_of(shape) // self.size
        while left > 0:
            blocks = min(left, PIECE_BYTES // self.size)
            data = bytearray(rng.randbytes(blocks * self.size))
            for offset, half in self.halves.items():
                for i in range(2):
                    data[offset + i::self.size] = half[i:i + 1] * blocks
            yield data
            left -= blocks


class Float32(Type):
    """Ones for norms, random values for routers."""

    def __init__(self):
        super().__init__(0, 1, 4, {})

    def pieces(self, shape, rng):
        for _ in range(shape[-1] if len(shape) > 1 else 1):
            values = [1.0] * shape[0] if len(shape) == 1 else [rng.gauss(0, DEVIATION) for _ in range(shape[0])]
            yield struct.pack(f"<{shape[0]}f", *values)


# Q4_K: d x scale x code less m x minimum, of 6, 4 and 6 bits. Q6_K: d x scale x (code - 32), of 8 and 6 bits. Q8_0: d x code.
STEP = DEVIATION / 32 / 4.6
Q4_K = Type(12, 256, 144, {0: STEP, 2: STEP * 7.5})
Q6_K = Type(14, 256, 210, {208: DEVIATION / 74 / 18.5})
Q8_0 = Type(8, 32, 34, {0: DEVIATION / 74})
F32 = Float32()


def has_more_bits(layer, layers):
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def tensors(config, mix):
    """Yields (name, shape with the shortest stride first, type)."""
    low, high = (Q4_K, Q6_K) if mix == "Q4_K_M" else (Q8_0, Q8_0)
    hidden, layers, experts = config["hidden_size"], config["num_hidden_layers"], config.get("num_experts", 0)
    heads, kv_heads, head_dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    yield "token_embd.weight", (hidden, config["vocab_size"]), low
    for layer in range(layers):
        more = high if has_more_bits(layer, layers) else low
        prefix = f"blk.{layer}."
        for name, size in (("attn_norm", hidden), ("ffn_norm", hidden), ("attn_q_norm", head_dim), ("attn_k_norm", head_dim)):
            yield f"{prefix}{name}.weight", (size,), F32
        yield prefix + "attn_q.weight", (hidden, heads * head_dim), low
        yield prefix + "attn_k.weight", (hidden, kv_heads * head_dim), low
        yield prefix + "attn_v.weight", (hidden, kv_heads * head_dim), more
        yield prefix + "attn_output.weight", (heads * head_dim, hidden), low
        stack, suffix = ((experts,), "_exps") if experts else ((), "")
        width = config["moe_intermediate_size"] if experts else config["intermediate_size"]
        if experts:
            yield prefix + "ffn_gate_inp.weight", (hidden, experts), F32
        for name in ("ffn_gate", "ffn_up"):
            yield f"{prefix}{name}{suffix}.weight", (hidden, width, *stack), low
        yield f"{prefix}ffn_down{suffix}.weight", (width, hidden, *stack), more
    yield "output_norm.weight", (hidden,), F32
    if not config.get("tie_word_embeddings"):
        yield "output.weight", (hidden, config["vocab_size"]), high


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def entry(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    return text(key) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


def metadata(config):
    architecture = {"qwen3": "qwen3", "qwen3_moe": "qwen3moe"}[config["model_type"]]
    values = {"block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"],
              "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
              "attention.head_count": config["num_attention_heads"], "attention.head_count_kv": config["num_key_value_heads"],
              "attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"],
              "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]), "rope.freq_base": float(config["rope_theta"]),
              "vocab_size": config["vocab_size"]}
    if "num_experts" in config:
        values |= {"expert_count": config["num_experts"], "expert_used_count": config["num_experts_per_tok"],
                   "expert_feed_forward_length": config["moe_intermediate_size"]}
    return [entry("general.architecture", architecture)] + [entry(f"{architecture}.{key}", value) for key, value in values.items()]


def padding(size):
    return b"\0" * (-size % ALIGNMENT)


def main():
    source, out, *rest = sys.argv[1:]
    changes = dict(argument.split("=") for argument in rest if "=" in argument)
    mix = next((argument for argument in rest if "=" not in argument), "Q4_K_M")
    if mix not in ("Q4_K_M", "Q8_0"):
        sys.exit(f"{mix} is no type of this script; expected Q4_K_M or Q8_0")
    with open(source, encoding="utf-8") as file:
        config = json.load(file)
    config |= {key: int(value) for key, value in changes.items()}
    listed = list(tensors(config, mix))
    for name, shape, kind in listed:
        if shape[0] % kind.elements != 0:
            sys.exit(f"{name} has rows of {shape[0]}; expected a multiple of {kind.elements}")
    head, offset = [], 0
    for name, shape, kind in listed:
        head.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind.number, offset))
        offset += kind.bytes_of(shape)
        offset += len(padding(offset))
    entries = metadata(config)
    rng = random.Random(1)
    with open(out, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(entries)) + b"".join(entries + head))
        file.write(padding(file.tell()))
        for _, shape, kind in listed:
            for piece in kind.pieces(shape, rng):
                file.write(piece)
            file.write(padding(file.tell()))
        print(f"{out}: {file.tell() / 1e9:.2f} GB, {mix}")


if __name__ == "__main__":
    main()
