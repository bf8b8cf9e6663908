#!/usr/bin/env python3
"""Writes a mixture of experts in Hugging Face's layout as a GGUF file, laid out as llama.cpp's converter does.

    make_moe_gguf.py FOLDER OUT.gguf [F32|F16|BF16|Q8_0|Q4_1]

For Qwen3-MoE (architecture `qwen3moe`) and Mixtral (`llama` with `expert_count`). The experts of a layer are one
stack; vectors and the router are F32; a matrix whose width the type's blocks do not divide stays F16; of `llama` the
rows of q and k are reordered, head by head, from halves to neighbouring pairs. There is no tokenizer in the file.

Needs PyPI's gguf and numpy. The files under tests/golden/gguf/ were made by it from tests/golden/models/.
"""

import json
import pathlib
import struct
import sys

import gguf
import numpy as np

LAYER_NAMES = {
    'input_layernorm': 'attn_norm',
    'post_attention_layernorm': 'ffn_norm',
    'self_attn.q_proj': 'attn_q',
    'self_attn.k_proj': 'attn_k',
    'self_attn.v_proj': 'attn_v',
    'self_attn.o_proj': 'attn_output',
    'self_attn.q_norm': 'attn_q_norm',
    'self_attn.k_norm': 'attn_k_norm',
    'mlp.gate': 'ffn_gate_inp',
    'block_sparse_moe.gate': 'ffn_gate_inp',
}
MODEL_NAMES = {'model.embed_tokens': 'token_embd', 'model.norm': 'output_norm', 'lm_head': 'output'}
EXPERT_NAMES = {
    'gate_proj': 'ffn_gate_exps', 'up_proj': 'ffn_up_exps', 'down_proj': 'ffn_down_exps',
    'w1': 'ffn_gate_exps', 'w3': 'ffn_up_exps', 'w2': 'ffn_down_exps',
}


def read_tensors(folder):
    """All tensors of the folder's safetensors files, as fp32."""
    tensors = {}
    for path in sorted(folder.glob('*.safetensors')):
        if path.name.startswith('golden'):
            continue
        data = path.read_bytes()
        length = struct.unpack('<Q', data[:8])[0]
        for name, entry in json.loads(data[8:8 + length]).items():
            if name == '__metadata__':
                continue
            begin, end = entry['data_offsets']
            raw = data[8 + length + begin:8 + length + end]
            if entry['dtype'] == 'BF16':
                values = (np.frombuffer(raw, '<u2').astype('<u4') << 16).view('<f4')
            else:
                values = np.frombuffer(raw, {'F16': '<f2', 'F32': '<f4'}[entry['dtype']]).astype('<f4')
            tensors[name] = values.reshape(entry['shape'])
    return tensors


def neighbouring_pairs(rows, heads):
    """Rows of heads in halves, reordered so that elements which rope turns together are neighbours."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(rows.shape)


def gguf_tensors(config, tensors, architecture):
    """Yields (name, array) with the experts of each layer stacked."""
    stacks = {}
    for name, values in tensors.items():
        stem, suffix = name.rsplit('.', 1)
        if stem in MODEL_NAMES:
            yield f'{MODEL_NAMES[stem]}.{suffix}', values
            continue
        layer, rest = stem.removeprefix('model.layers.').split('.', 1)
        if '.experts.' in rest:
            expert, matrix = rest.split('.experts.')[1].split('.')
            stacks.setdefault((int(layer), EXPERT_NAMES[matrix]), {})[int(expert)] = values
            continue
        if architecture == 'llama' and rest in ('self_attn.q_proj', 'self_attn.k_proj'):
            key = 'num_attention_heads' if rest.endswith('q_proj') else 'num_key_value_heads'
            values = neighbouring_pairs(values, config[key])
        yield f'blk.{layer}.{LAYER_NAMES[rest]}.{suffix}', values
    for (layer, matrix), experts in sorted(stacks.items()):
        yield f'blk.{layer}.{matrix}.weight', np.stack([experts[e] for e in range(len(experts))])


def add_tensor(writer, name, values, kind):
    if values.ndim == 1 or 'ffn_gate_inp' in name:
        kind = gguf.GGMLQuantizationType.F32
    elif values.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] != 0:
        kind = gguf.GGMLQuantizationType.F16
    data = gguf.quants.quantize(values, kind)
    writer.add_tensor(name, data, raw_dtype=kind)


def main():
    folder, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    kind = gguf.GGMLQuantizationType[sys.argv[3] if len(sys.argv) > 3 else 'BF16']
    config = json.loads((folder / 'config.json').read_text())
    architecture = {'qwen3_moe': 'qwen3moe', 'mixtral': 'llama'}[config['model_type']]
    writer = gguf.GGUFWriter(out, architecture)
    writer.add_block_count(config['num_hidden_layers'])
    writer.add_context_length(config['max_position_embeddings'])
    writer.add_embedding_length(config['hidden_size'])
    writer.add_feed_forward_length(config['intermediate_size'])
    writer.add_head_count(config['num_attention_heads'])
    writer.add_head_count_kv(config['num_key_value_heads'])
    head_dim = config.get('head_dim') or config['hidden_size'] // config['num_attention_heads']
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config['rms_norm_eps'])
    writer.add_rope_freq_base(config['rope_theta'])
    writer.add_vocab_size(config['vocab_size'])
    writer.add_expert_count(config.get('num_experts') or config['num_local_experts'])
    writer.add_expert_used_count(config['num_experts_per_tok'])
    if 'moe_intermediate_size' in config:
        writer.add_expert_feed_forward_length(config['moe_intermediate_size'])
    for name, values in gguf_tensors(config, read_tensors(folder), architecture):
        add_tensor(writer, name, values, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == '__main__':
    main()
