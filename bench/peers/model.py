#!/usr/bin/env python3
"""One set of random weights of a model's shape in the forms that the engines read, and proof that the bits agree.

usage: model.py qwen3-0.6b|qwen3-moe hf|gguf|openvino [--check]     (hf and gguf in the environment of llama, openvino in its own)
qwen3-moe is Qwen3-30B-A3B cut to four layers, 6.2 GB a form. Leaves build/peers/model/NAME/hf (safetensors, config.json), model.gguf,
openvino. Every value is one that bfloat16, float16 and float32 hold exactly, so that no conversion can change it, and the
check is for equality. Rows differ and norms are near 1, so that engines that compute the same agree in first tokens.
"""
import json
import os
import shutil
import subprocess
import sys

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
from shapes import QWEN3_06B, QWEN3_30B_A3B_CUT  # noqa: E402

MODELS = {"qwen3-0.6b": QWEN3_06B, "qwen3-moe": QWEN3_30B_A3B_CUT}
CONFIG = MODELS[sys.argv[1]]
FOLDER = os.path.join(ROOT, "build", "peers", "model", sys.argv[1])
HF, GGUF, OPENVINO = (os.path.join(FOLDER, name) for name in ("hf", "model.gguf", "openvino"))
GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "lm_head": "output", "mlp.gate": "ffn_gate_inp", "mlp.experts.0.gate_proj": "ffn_gate_exps",
    "mlp.experts.0.up_proj": "ffn_up_exps", "mlp.experts.0.down_proj": "ffn_down_exps",
}


def shapes():
    """{name: shape} of all tensors. The same matrix of all experts of a layer follow one another: a stack, as GGUF has it."""
    hidden, ffn, head = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["head_dim"]
    q, kv = CONFIG["num_attention_heads"] * head, CONFIG["num_key_value_heads"] * head
    layer = {
        "input_layernorm": [hidden], "post_attention_layernorm": [hidden], "self_attn.q_norm": [head], "self_attn.k_norm": [head],
        "self_attn.q_proj": [q, hidden], "self_attn.k_proj": [kv, hidden], "self_attn.v_proj": [kv, hidden],
        "self_attn.o_proj": [hidden, q],
    }
    if experts := CONFIG.get("num_experts"):
        ffn = CONFIG["moe_intermediate_size"]
        layer["mlp.gate"] = [experts, hidden]
    for name, shape in {"gate_proj": [ffn, hidden], "up_proj": [ffn, hidden], "down_proj": [hidden, ffn]}.items():
        layer |= {f"mlp.experts.{i}.{name}": shape for i in range(experts)} if experts else {f"mlp.{name}": shape}
    out = {"model.embed_tokens.weight": [CONFIG["vocab_size"], hidden], "model.norm.weight": [hidden]}
    if not CONFIG["tie_word_embeddings"]:
        out["lm_head.weight"] = [CONFIG["vocab_size"], hidden]
    for i in range(CONFIG["num_hidden_layers"]):
        out.update({f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()})
    return out


def random_bf16(rng, shape):
    """Matrices: multiples of 2^-12 below 2^-5, deviation 0.018; norms: multiples of 2^-7 around 1. As uint16."""
    step, middle = (2.0**-7, 1.0) if len(shape) == 1 else (2.0**-12, 0.0)
    ticks = rng.integers(-32, 33, shape) if len(shape) == 1 else rng.integers(-127, 128, shape, dtype=np.int8)
    return (np.float32(middle) + ticks.astype(np.float32) * np.float32(step)).view(np.uint32).__rshift__(16).astype(np.uint16)


def write_hf():
    os.makedirs(HF, exist_ok=True)
    json.dump(CONFIG, open(os.path.join(HF, "config.json"), "w"), indent=1)
    header, end = {}, 0
    for name, shape in shapes().items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(1)
    with open(os.path.join(HF, "model.safetensors.part"), "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes().values():
            random_bf16(rng, shape).tofile(out)
    os.rename(out.name, out.name[:-len(".part")])


def read_hf(stacked=False):
    """{name: uint16 array}, mapped. `stacked`: expert 0's name has those of all experts [experts, out, in], the others' have none."""
    path = os.path.join(HF, "model.safetensors")
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        shape = entry["shape"]
        if stacked and ".experts." in name:
            if ".experts.0." not in name:
                continue
            shape = [CONFIG["num_experts"], *shape]
        tensors[name] = np.memmap(path, np.uint16, "r", 8 + size + entry["data_offsets"][0], tuple(shape))
    return tensors


def as_float(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def gguf_name(name):
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{GGUF_NAMES[rest]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def in_float32(name, bits):
    """What llama.cpp wants so: norms and routers."""
    return bits.ndim == 1 or name.endswith("mlp.gate.weight")


def write_gguf():
    import gguf
    writer = gguf.GGUFWriter(GGUF + ".part", CONFIG["model_type"].replace("_", ""))
    if "num_experts" in CONFIG:
        writer.add_expert_count(CONFIG["num_experts"])
        writer.add_expert_used_count(CONFIG["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(CONFIG["moe_intermediate_size"])
    writer.add_context_length(CONFIG["max_position_embeddings"])
    writer.add_embedding_length(CONFIG["hidden_size"])
    writer.add_block_count(CONFIG["num_hidden_layers"])
    writer.add_feed_forward_length(CONFIG["intermediate_size"])
    writer.add_head_count(CONFIG["num_attention_heads"])
    writer.add_head_count_kv(CONFIG["num_key_value_heads"])
    writer.add_key_length(CONFIG["head_dim"])
    writer.add_value_length(CONFIG["head_dim"])
    writer.add_rope_freq_base(CONFIG["rope_theta"])
    writer.add_layer_norm_rms_eps(CONFIG["rms_norm_eps"])
    writer.add_vocab_size(CONFIG["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for name, bits in read_hf(stacked=True).items():
        if in_float32(name, bits):
            writer.add_tensor(gguf_name(name), as_float(bits))
        else:
            writer.add_tensor(gguf_name(name), bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.rename(GGUF + ".part", GGUF)


def check_gguf():
    import gguf
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(GGUF).tensors}
    expected = read_hf(stacked=True)
    assert len(tensors) == len(expected), f"{len(tensors)} tensors, expected {len(expected)}"
    for name, bits in expected.items():
        data = tensors[gguf_name(name)].data
        same = np.array_equal(data, as_float(bits)) if in_float32(name, bits) else np.array_equal(data.view(np.uint16), bits)
        assert same, f"{name}: other bits in the GGUF file"
    return f"{len(tensors)} tensors of the GGUF file have the bits of the safetensors file"


def write_openvino():
    part = OPENVINO + ".part"
    shutil.rmtree(part, ignore_errors=True)
    export = os.path.join(os.path.dirname(sys.executable), "optimum-cli")
    subprocess.run([export, "export", "openvino", "-m", HF, "--task", "text-generation-with-past", "--weight-format", "fp16", part],
                   check=True, stdout=sys.stderr)
    os.rename(part, OPENVINO)


def check_openvino():
    """Every matrix must be found among the constants of the exported graph; norms may have been folded into others."""
    import openvino
    model = openvino.Core().read_model(os.path.join(OPENVINO, "openvino_model.xml"))
    constants = {}
    for op in model.get_ops():
        if op.get_type_name() == "Constant" and len(op.output(0).get_shape()) == 2:
            constants.setdefault(tuple(op.output(0).get_shape()), []).append(op)
    kinds, count = set(), 0
    for name, bits in read_hf().items():
        if bits.ndim == 1:
            continue
        wanted = as_float(bits)
        for op in constants.get(bits.shape, []):
            bf16 = op.output(0).get_element_type() == openvino.Type.bf16
            got = as_float(op.get_data(dtype=None).view(np.uint16)) if bf16 else op.data.astype(np.float32)
            if np.array_equal(got, wanted):
                break
        else:
            raise AssertionError(f"{name}: no constant with these bits in the exported graph")
        kinds.add(op.output(0).get_element_type().get_type_name())
        count += 1
    return f"all {count} matrices stand in the exported graph with equal values (as {', '.join(kinds)})"


FORMS = {"hf": (HF + "/model.safetensors", write_hf, lambda: f"{len(read_hf())} tensors"), "gguf": (GGUF, write_gguf, check_gguf),
         "openvino": (OPENVINO, write_openvino, check_openvino)}


def main():
    path, write, check = FORMS[sys.argv[2]]
    if not os.path.exists(path):
        os.makedirs(FOLDER, exist_ok=True)
        write()
        print(f"{sys.argv[1]}, {sys.argv[2]}: {check()}")
    elif "--check" in sys.argv:
        print(f"{sys.argv[1]}, {sys.argv[2]}: {check()}")


if __name__ == "__main__":
    main()
