"""Makes cases.json with the code of TriAttention's authors (WeianMao/triattention, commit c3744ee, Apache 2.0) on torch 2.15.0, float32.

usage: python make.py PATH_OF_THEIR_CHECKOUT

Two layers of 4 heads and 2 KV heads of 8; keys before RoPE of 70 tokens, 24 of them the prompt's. Each case is what their
compute_keep_indices keeps by layer and KV head (per_layer_perhead_pruning, no noise), as positions: of all tokens, or again of what the
first case kept and 12 more. In float64 they keep the same.
"""
import json, os, sys, types
import torch
sys.path.insert(0, sys.argv[1])
from triattention.methods import triattention as ta, pruning_utils as pu

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS, HEADS, KV, DIM, N, PROMPT, MORE, BASE, SCALE = 2, 4, 2, 8, 58, 24, 12, 10000.0, 1.25
g = torch.Generator().manual_seed(11)
draw = lambda *shape: (torch.randn(*shape, generator=g) * 1e3).round() / 1e3
keys = draw(LAYERS, KV, N + MORE, DIM)
centers = draw(LAYERS, HEADS, 2, DIM // 2)
lengths = (centers.pow(2).sum(2).sqrt() + draw(LAYERS, HEADS, DIM // 2).abs()).mul(1e3).round() / 1e3


class Rotary(torch.nn.Module):
    """Transformers' rotary embedding with a factor, as YaRN has."""
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.inv_freq = 1.0 / (BASE ** (torch.arange(0, DIM, 2).double() / DIM))

    def forward(self, x, position_ids):
        angle = position_ids.double()[..., None] * self.inv_freq
        angle = torch.cat((angle, angle), -1)
        return (angle.cos() * self.scale).to(x.dtype), (angle.sin() * self.scale).to(x.dtype)


def rotated(scale, dtype, upto):
    cos, sin = Rotary(scale)(torch.zeros(1, dtype=torch.float64), torch.arange(upto)[None])
    k = keys[:, :, :upto].double()
    return (k * cos + pu.rotate_half(k) * sin).to(torch.float32).to(dtype)


def compressor(dtype, scale, budget, options):
    c = object.__new__(ta.TriAttention)
    c.config = types.SimpleNamespace(device=torch.device("cpu"), dtype=dtype, layer_perhead_aggregation=options.get("layer_perhead_aggregation", "max"))
    c.budget, c.head_dim, c.rope_style, c.attention_scale = budget, DIM, "half", scale
    c.rotary = Rotary(scale)
    c.omega = c.rotary.inv_freq.to(dtype)
    c.offsets = pu.build_geometric_offsets(options.get("offset_max_length", 65536), "cpu").to(dtype)
    c.freq_scale_sq = torch.full((DIM // 2,), scale * scale, dtype=dtype)
    c.num_attention_heads, c.num_key_value_heads, c.num_key_value_groups = HEADS, KV, HEADS // KV
    c.sampled_heads = [(l, h) for l in range(LAYERS) for h in range(HEADS)]
    c.head_stats = {(l, h): pu.HeadFrequencyStats(torch.complex(centers[l, h, 0], centers[l, h, 1]), lengths[l, h]) for l, h in c.sampled_heads}
    c.cache_positions_per_head = c.cache_positions_per_layer_perhead = c.generator = None
    c.score_aggregation = options.get("score_aggregation", "mean")
    c.normalize_scores = options.get("normalize_scores", True)
    c.per_head_pruning, c.per_layer_perhead_pruning = False, True
    c.disable_mlr, c.disable_trig = options.get("disable_mlr", False), options.get("disable_trig", False)
    c.allow_prefill_compression = options.get("allow_prefill_compression", False)
    return c


def kept(dtype, scale, budget, options, before=None):
    c, k = compressor(dtype, scale, budget, options), rotated(scale, dtype, N if before is None else N + MORE)
    if before is None:
        c.cache_positions, c.absolute_position = list(range(N)), N
        layers = [(k[l:l + 1], None) for l in range(LAYERS)]
        position = lambda l, h, i: i
    else:
        all_of = {(l, h): before[l][h] + list(range(N, N + MORE)) for l in range(LAYERS) for h in range(KV)}
        c.cache_positions_per_layer_perhead, c.cache_positions, c.absolute_position = all_of, all_of[0, 0], N + MORE
        layers = [(torch.stack([k[l, h][all_of[l, h]] for h in range(KV)])[None], None) for l in range(LAYERS)]
        position = lambda l, h, i: all_of[l, h][i]
    keep = c.compute_keep_indices(tuple(layers), prefix_length=PROMPT)
    return [[sorted(position(l, h, i) for i in keep[l, h].tolist()) for h in range(KV)] for l in range(LAYERS)]


def both(scale, budget, options, before=None):
    a, b = kept(torch.float32, scale, budget, options, before), kept(torch.float64, scale, budget, options, before)
    assert a == b, options
    return a


cases = []
for options, scale, budget in [
    ({}, 1.0, 40), ({}, SCALE, 33), ({"score_aggregation": "max"}, 1.0, 40), ({"layer_perhead_aggregation": "mean"}, 1.0, 36),
    ({"normalize_scores": False}, 1.0, 40), ({"disable_mlr": True}, SCALE, 40), ({"disable_trig": True}, 1.0, 40),
    ({"allow_prefill_compression": True}, 1.0, 30), ({"offset_max_length": 6}, 1.0, 40), ({"score_aggregation": "max", "normalize_scores": False, "offset_max_length": 100}, SCALE, 34),
]:
    cases.append(dict(options=options, scale=scale, budget=budget, again=False, kept=both(scale, budget, options)))
cases.append(dict(options={}, scale=1.0, budget=40, again=True, kept=both(1.0, 40, {}, cases[0]["kept"])))
r = lambda t: [round(x, 3) for x in t.flatten().tolist()]
with open(f"{HERE}/cases.json", "w") as f:
    json.dump(dict(layers=LAYERS, heads=HEADS, kvheads=KV, dim=DIM, tokens=N, prompt=PROMPT, more=MORE, base=BASE, keys=r(keys),
                   real=r(centers[:, :, 0]), imag=r(centers[:, :, 1]), length=r(lengths), cases=cases), f)
    f.write("\n")
