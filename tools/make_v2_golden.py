#!/usr/bin/env python3
"""Writes tests/golden/models/deepseek-v2 and deepseek-v2-lite: tiny models of random weights, and what they say.

    make_v2_golden.py

The reference is this file: DeepSeek-V2 (arXiv 2405.04434, sections 2.1 and 2.2, appendix C) and its published code's choices,
in NumPy and float64, from the weights as stored. The published code scales scores by mscale_all_dim squared, which transformers'
own DeepseekV2ForCausalLM leaves out.

Needs PyPI's numpy.
"""

import json
import math
import pathlib
import struct

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[1] / 'tests/golden/models'
INNER_EPS = 1e-6  # of the norms within attention, whatever rms_norm_eps says
LATENT_GAIN = 1 / 400  # of what these norms take: so small that another eps would be seen
LENGTHS = [41, 75]
PROMPTS, GREEDY_STEPS = [7, 33, 60], 48
LEAST_GREEDY_GAP, LEAST_ROUTING_GAP = 0.005, 1e-5

V2 = {
    'architectures': ['DeepseekV2ForCausalLM'], 'model_type': 'deepseek_v2', 'vocab_size': 128, 'hidden_size': 64,
    'intermediate_size': 96, 'num_hidden_layers': 3, 'num_attention_heads': 4, 'num_key_value_heads': 4, 'hidden_act': 'silu',
    'max_position_embeddings': 256, 'rms_norm_eps': 1e-5, 'tie_word_embeddings': False, 'rope_theta': 10000.0,
    'attention_bias': False, 'bos_token_id': 1, 'eos_token_id': 2, 'torch_dtype': 'bfloat16', 'q_lora_rank': 40, 'kv_lora_rank': 24,
    'qk_nope_head_dim': 16, 'qk_rope_head_dim': 8, 'v_head_dim': 12, 'n_routed_experts': 8, 'n_shared_experts': 2,
    'num_experts_per_tok': 3, 'n_group': 4, 'topk_group': 2, 'moe_intermediate_size': 16, 'first_k_dense_replace': 1,
    'moe_layer_freq': 1, 'norm_topk_prob': False, 'routed_scaling_factor': 4.0, 'scoring_func': 'softmax',
    'topk_method': 'group_limited_greedy', 'aux_loss_alpha': 0.001, 'seq_aux': True,
    'rope_scaling': {'beta_fast': 32, 'beta_slow': 1, 'factor': 4.0, 'mscale': 0.707, 'mscale_all_dim': 0.707,
                     'original_max_position_embeddings': 64, 'type': 'yarn'},
}
MODELS = {
    'deepseek-v2': V2,
    'deepseek-v2-lite': V2 | {'q_lora_rank': None, 'topk_method': 'greedy', 'n_group': 1, 'topk_group': 1,
                              'routed_scaling_factor': 1.0},
}


def shapes(c):
    """{name: shape} of all tensors."""
    hidden, heads = c['hidden_size'], c['num_attention_heads']
    query = heads * (c['qk_nope_head_dim'] + c['qk_rope_head_dim'])
    found = {'model.embed_tokens': [c['vocab_size'], hidden], 'model.norm': [hidden], 'lm_head': [c['vocab_size'], hidden]}

    def feed_forward(stem, width):
        found.update({stem + 'gate_proj': [width, hidden], stem + 'up_proj': [width, hidden], stem + 'down_proj': [hidden, width]})

    for i in range(c['num_hidden_layers']):
        layer, attention = f'model.layers.{i}.', f'model.layers.{i}.self_attn.'
        found.update({layer + 'input_layernorm': [hidden], layer + 'post_attention_layernorm': [hidden],
                      attention + 'kv_a_proj_with_mqa': [c['kv_lora_rank'] + c['qk_rope_head_dim'], hidden],
                      attention + 'kv_a_layernorm': [c['kv_lora_rank']],
                      attention + 'kv_b_proj': [heads * (c['qk_nope_head_dim'] + c['v_head_dim']), c['kv_lora_rank']],
                      attention + 'o_proj': [hidden, heads * c['v_head_dim']]})
        if c['q_lora_rank'] is None:
            found[attention + 'q_proj'] = [query, hidden]
        else:
            found.update({attention + 'q_a_proj': [c['q_lora_rank'], hidden], attention + 'q_a_layernorm': [c['q_lora_rank']],
                          attention + 'q_b_proj': [query, c['q_lora_rank']]})
        if i < c['first_k_dense_replace']:
            feed_forward(layer + 'mlp.', c['intermediate_size'])
            continue
        found[layer + 'mlp.gate'] = [c['n_routed_experts'], hidden]
        for expert in range(c['n_routed_experts']):
            feed_forward(f'{layer}mlp.experts.{expert}.', c['moe_intermediate_size'])
        feed_forward(layer + 'mlp.shared_experts.', c['n_shared_experts'] * c['moe_intermediate_size'])
    return {name + '.weight': shape for name, shape in found.items()}


def random_weights(c, rng):
    """{name: float64 array}, values that bf16 holds. Rows of matrices keep about the size of what they multiply."""
    weights = {}
    for name, shape in shapes(c).items():
        if len(shape) == 1:
            values = rng.uniform(0.5, 1.5, shape)
        else:
            gain = 1.0 if name.startswith('model.embed') else 3.0 if name.startswith('lm_head') else 1.5
            values = rng.standard_normal(shape) * gain / (1 if name.startswith('model.embed') else math.sqrt(shape[1]))
            if '_a_proj' in name:
                values[:c['q_lora_rank' if 'q_a_proj' in name else 'kv_lora_rank']] *= LATENT_GAIN
        bits = (values.astype(np.float32).view(np.uint32) + 0x8000) >> 16
        weights[name] = (bits << 16).astype(np.uint32).view(np.float32).astype(np.float64)
    return weights


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def yarn_magnitude(factor, mscale):
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def turns_of(c, positions):
    """Complex numbers [positions, half of the turned part] that pairs of neighbours are multiplied by."""
    s, dim, base = c['rope_scaling'], c['qk_rope_head_dim'], c['rope_theta']

    def dimension(rotations):
        return dim * math.log(s['original_max_position_embeddings'] / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(dimension(s['beta_fast'])), 0), min(math.ceil(dimension(s['beta_slow'])), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
    plain = base ** (-np.arange(0, dim, 2) / dim)
    frequencies = plain / s['factor'] * ramp + plain * (1 - ramp)
    magnitude = yarn_magnitude(s['factor'], s['mscale']) / yarn_magnitude(s['factor'], s['mscale_all_dim'])
    return magnitude * np.exp(1j * positions[:, None] * frequencies)


def turned(x, turns):
    """Pairs of neighbours of x [tokens, .., dim] times `turns`."""
    pairs = x[..., 0::2] + 1j * x[..., 1::2]
    pairs = pairs * turns.reshape(len(turns), *[1] * (x.ndim - 2), -1)
    return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)


def attention(c, w, prefix, x):
    tokens, heads, plain = len(x), c['num_attention_heads'], c['qk_nope_head_dim']
    matrix = lambda name: w[f'{prefix}{name}.weight'].T
    if c['q_lora_rank'] is None:
        q = x @ matrix('q_proj')
    else:
        q = rms_norm(x @ matrix('q_a_proj'), w[prefix + 'q_a_layernorm.weight'], INNER_EPS) @ matrix('q_b_proj')
    q = q.reshape(tokens, heads, -1)
    latent, key = np.split(x @ matrix('kv_a_proj_with_mqa'), [c['kv_lora_rank']], axis=1)
    kv = rms_norm(latent, w[prefix + 'kv_a_layernorm.weight'], INNER_EPS) @ matrix('kv_b_proj')
    k, v = np.split(kv.reshape(tokens, heads, -1), [plain], axis=2)
    turns = turns_of(c, np.arange(tokens))
    scores = np.einsum('qhd,khd->hqk', q[..., :plain], k)
    scores += np.einsum('qhd,kd->hqk', turned(q[..., plain:], turns), turned(key, turns))
    mscale = yarn_magnitude(c['rope_scaling']['factor'], c['rope_scaling']['mscale_all_dim'])
    scores *= mscale * mscale / math.sqrt(q.shape[2])
    scores[:, ~np.tri(tokens, dtype=bool)] = -np.inf
    return np.einsum('hqk,khd->qhd', softmax(scores), v).reshape(tokens, -1) @ matrix('o_proj')


def feed_forward(w, stem, x):
    gate = x @ w[stem + 'gate_proj.weight'].T
    return (gate / (1 + np.exp(-gate)) * (x @ w[stem + 'up_proj.weight'].T)) @ w[stem + 'down_proj.weight'].T


def experts(c, w, prefix, x, gaps):
    """The chosen experts' sum beside the shared ones. To `gaps`: how far the last choice is ahead of the first that was not one."""
    scores = softmax(x @ w[prefix + 'gate.weight'].T)
    k, groups = c['num_experts_per_tok'], c['n_group']
    out = feed_forward(w, prefix + 'shared_experts.', x)
    for row in range(len(x)):
        candidates = np.arange(c['n_routed_experts'])
        if c['topk_method'] == 'group_limited_greedy':
            greatest = scores[row].reshape(groups, -1).max(1)
            order = np.argsort(-greatest, kind='stable')
            gaps.append(greatest[order[c['topk_group'] - 1]] - greatest[order[c['topk_group']]])
            candidates = candidates.reshape(groups, -1)[np.sort(order[:c['topk_group']])].ravel()
        order = candidates[np.argsort(-scores[row, candidates], kind='stable')]
        gaps.append(scores[row, order[k - 1]] - scores[row, order[k]])
        for expert in order[:k]:
            weight = c['routed_scaling_factor'] * scores[row, expert]
            out[row] += weight * feed_forward(w, f'{prefix}experts.{expert}.', x[row:row + 1])[0]
    return out


def logits_of(c, w, ids, gaps):
    x = w['model.embed_tokens.weight'][ids]
    for i in range(c['num_hidden_layers']):
        layer = f'model.layers.{i}.'
        x = x + attention(c, w, layer + 'self_attn.', rms_norm(x, w[layer + 'input_layernorm.weight'], c['rms_norm_eps']))
        normed = rms_norm(x, w[layer + 'post_attention_layernorm.weight'], c['rms_norm_eps'])
        dense = i < c['first_k_dense_replace']
        x = x + (feed_forward(w, layer + 'mlp.', normed) if dense else experts(c, w, layer + 'mlp.', normed, gaps))
    return rms_norm(x, w['model.norm.weight'], c['rms_norm_eps']) @ w['lm_head.weight'].T


def padded(rows):
    longest = max(map(len, rows))
    return np.array([list(row) + [-1] * (longest - len(row)) for row in rows], np.int64)


def golden_of(c, w, rng):
    """What the model says, the least gap between a greedy token and the next, and that of a router's choices."""
    gaps, greedy_gap = [], math.inf
    sequences = [rng.integers(3, c['vocab_size'], length) for length in LENGTHS]
    logits = np.concatenate([logits_of(c, w, ids, gaps) for ids in sequences])
    prompts = [rng.integers(3, c['vocab_size'], length) for length in PROMPTS]
    greedy = []
    for prompt in prompts:
        ids = list(prompt)
        for _ in range(GREEDY_STEPS):
            *_, second, best = np.argsort(last := logits_of(c, w, np.array(ids), gaps)[-1])
            greedy_gap = min(greedy_gap, last[best] - last[second])
            ids.append(int(best))
            if greedy_gap < LEAST_GREEDY_GAP or min(gaps) < LEAST_ROUTING_GAP:
                return None, greedy_gap, min(gaps)
        greedy.append(ids[len(prompt):])
    return {'input_ids': padded(sequences), 'lengths': np.array(LENGTHS, np.int64), 'logits': logits.astype(np.float32),
            'greedy_prompt_ids': padded(prompts), 'greedy_prompt_lengths': np.array(PROMPTS, np.int64),
            'greedy': np.array(greedy, np.int64)}, greedy_gap, min(gaps)


def write_safetensors(path, tensors, dtype_of):
    header, data = {}, b''
    for name, values in tensors.items():
        dtype, raw = dtype_of(values)
        header[name] = {'dtype': dtype, 'shape': list(values.shape), 'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    path.write_bytes(struct.pack('<Q', len(text)) + text + data)


def as_bf16(values):
    return 'BF16', (values.astype(np.float32).view(np.uint32) >> 16).astype('<u2').tobytes()


def as_stored(values):
    return ('I64', values.astype('<i8').tobytes()) if values.dtype == np.int64 else ('F32', values.astype('<f4').tobytes())


def make(name, c):
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        weights = random_weights(c, rng)
        golden, greedy_gap, routing_gap = golden_of(c, weights, rng)
        if golden is not None:
            break
    folder = FOLDER / name
    folder.mkdir(exist_ok=True)
    (folder / 'config.json').write_text(json.dumps(c, indent=1) + '\n')
    write_safetensors(folder / 'model.safetensors', weights, as_bf16)
    write_safetensors(folder / 'golden.safetensors', golden, as_stored)
    meta = {'name': name, 'seed': seed, 'computed': 'float64 by tools/make_v2_golden.py', 'logits_std': round(float(golden['logits'].std()), 4),
            'min_greedy_gap': round(float(greedy_gap), 4), 'min_routing_gap': round(float(routing_gap), 6)}
    (folder / 'meta.json').write_text(json.dumps(meta, indent=1) + '\n')
    print(meta)


def main():
    for name, c in MODELS.items():
        make(name, c)


if __name__ == '__main__':
    main()
