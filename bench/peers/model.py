#!/usr/bin/env python3
"""One set of random weights of a model's shape in the forms that the engines read, and proof that the bits agree.

usage: model.py qwen3-0.6b|qwen3-moe FORM [--check]     (forms of OpenVINO in its environment, all others in that of llama)
qwen3-moe is Qwen3-30B-A3B cut to four layers, 6.2 GB a form. Leaves build/peers/model/NAME/FORM, a folder or a file:
  hf             safetensors and config.json, in bfloat16; all other forms are made of it
  gguf           BF16; q8_0, q4_k_m: quantised by llama.cpp
  w8a8, awq      int8 with a scale a row (compressed-tensors), 4 bits in groups of 128
  openvino       the exported graph; openvino_int8, openvino_int4: optimum's own compression of weights
Every value of hf is one that bfloat16, float16 and float32 hold exactly, so that no conversion can change it, and the check of
gguf and openvino is for equality. Rows differ and norms are near 1, so that engines that compute the same agree in first tokens.
Values are 127 ticks at most: w8a8 has them exactly, too. The others are rounded.
"""
import functools
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
AWQ_GROUP = 128
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # of a word's eight codes, from the lowest bits on
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


DTYPE_BYTES = {"BF16": 2, "F16": 2, "I8": 1, "I32": 4}


def write_folder(folder, config, tensors, arrays):
    """A model's folder: `tensors` is {name: (dtype, shape)}, `arrays` gives their contents in that order."""
    os.makedirs(folder, exist_ok=True)
    json.dump(config, open(os.path.join(folder, "config.json"), "w"), indent=1)
    header, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = DTYPE_BYTES[dtype] * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors.part"), "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for array in arrays:
            array.tofile(out)
        assert out.tell() == 8 + len(text) + end, f"{folder}: the contents have another size than their header says"
    os.rename(out.name, out.name[:-len(".part")])


def write_hf():
    rng = np.random.default_rng(1)
    write_folder(HF, CONFIG, {name: ("BF16", shape) for name, shape in shapes().items()}, (random_bf16(rng, shape) for shape in shapes().values()))


def is_linear(name):
    """A matrix of a layer that quantised folders quantise; routers, norms, head and embedding keep their type."""
    return name.endswith("_proj.weight")


def to_bf16(values):
    """Values that bfloat16 holds exactly, as uint16."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def write_quantised(folder, quantisation, parts_of, make):
    """`parts_of(shape)`: {suffix: (dtype, shape)} in place of a matrix; `make(float32 matrix)`: their contents."""
    tensors = {}
    for name, shape in shapes().items():
        stem = name.removesuffix(".weight")
        parts = parts_of(shape) if is_linear(name) else {"weight": ("BF16", shape)}
        tensors |= {f"{stem}.{suffix}": part for suffix, part in parts.items()}
    arrays = (array for name, bits in read_hf().items() for array in (make(as_float(bits)) if is_linear(name) else [np.asarray(bits)]))
    write_folder(folder, CONFIG | {"quantization_config": quantisation}, tensors, arrays)


def write_w8a8(folder):
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": weights | {"strategy": "token", "dynamic": True}}

    def make(matrix):
        # The greatest of a row is 127 ticks, or so near that a whole tick is the scale for all rows.
        return np.rint(matrix * 2.0**12).astype(np.int8), to_bf16(np.full((len(matrix), 1), 2.0**-12))
    write_quantised(folder, {"quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
                             "ignore": ["lm_head"], "config_groups": {"group_0": group}},
                    lambda shape: {"weight": ("I8", shape), "weight_scale": ("BF16", [shape[0], 1])}, make)


def write_awq(folder):
    def pack(codes):
        words = codes.astype(np.uint32).reshape(len(codes), -1, 8)[:, :, AWQ_ORDER] << (4 * np.arange(8, dtype=np.uint32))
        return np.bitwise_or.reduce(words, axis=2)

    def make(matrix):
        groups = matrix.T.reshape(-1, AWQ_GROUP, len(matrix))  # [groups, 128, out]
        scales = (np.ptp(groups, axis=1) / 15).astype(np.float16)
        step = scales.astype(np.float32)
        zeros = np.clip(np.rint(-groups.min(axis=1) / step), 0, 15)
        codes = np.clip(np.rint(groups / step[:, None]) + zeros[:, None], 0, 15)
        return pack(codes.reshape(-1, len(matrix))), pack(zeros), scales
    write_quantised(folder, {"quant_method": "awq", "bits": 4, "group_size": AWQ_GROUP, "zero_point": True, "version": "gemm"},
                    lambda shape: {"qweight": ("I32", [shape[1], shape[0] // 8]), "qzeros": ("I32", [shape[1] // AWQ_GROUP, shape[0] // 8]),
                                   "scales": ("F16", [shape[1] // AWQ_GROUP, shape[0]])}, make)


def read_hf(stacked=False):
    """{name: uint16 array}, mapped. `stacked`: expert 0's name has those of all experts [experts, out, in], the others' have none."""
    path = weights_of(HF)
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


def write_llama(path, file_type):
    """llama.cpp's own quantisation of the GGUF file."""
    import llama_cpp
    write_if_missing("gguf")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type
    code = llama_cpp.llama_model_quantize(GGUF.encode(), (path + ".part").encode(), params)
    assert code == 0, f"llama_model_quantize returned {code}"
    os.rename(path + ".part", path)


def write_openvino(path, weights):
    part = path + ".part"
    shutil.rmtree(part, ignore_errors=True)
    export = os.path.join(os.path.dirname(sys.executable), "optimum-cli")
    subprocess.run([export, "export", "openvino", "-m", HF, "--task", "text-generation-with-past", "--weight-format", weights, part],
                   check=True, stdout=sys.stderr)
    os.rename(part, path)


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


def unchecked():
    return "written"


def weights_of(folder):
    return os.path.join(folder, "model.safetensors")


# form: what is there when it is whole, what writes it, what checks it. The numbers are llama.cpp's `llama_ftype`.
FORMS = {
    "hf": (weights_of(HF), write_hf, lambda: f"{len(read_hf())} tensors"), "gguf": (GGUF, write_gguf, check_gguf),
    "openvino": (OPENVINO, lambda: write_openvino(OPENVINO, "fp16"), check_openvino),
}
for form, number in {"q8_0": 7, "q4_k_m": 15}.items():
    path = os.path.join(FOLDER, form + ".gguf")
    FORMS[form] = (path, functools.partial(write_llama, path, number), unchecked)
for form, writer in {"w8a8": write_w8a8, "awq": write_awq}.items():
    path = os.path.join(FOLDER, form)
    FORMS[form] = (weights_of(path), functools.partial(writer, path), unchecked)
for form in ("int8", "int4"):
    path = os.path.join(FOLDER, "openvino_" + form)
    FORMS["openvino_" + form] = (path, functools.partial(write_openvino, path, form), unchecked)


def write_if_missing(form):
    path, write, check = FORMS[form]
    if not os.path.exists(path):
        os.makedirs(FOLDER, exist_ok=True)
        write()
        print(f"{sys.argv[1]}, {form}: {check()}")
        return True
    return False


def main():
    form = sys.argv[2]
    if not write_if_missing(form) and "--check" in sys.argv:
        print(f"{sys.argv[1]}, {form}: {FORMS[form][2]()}")


if __name__ == "__main__":
    main()
