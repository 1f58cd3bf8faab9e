"""Makes the goldens of this folder with kvpress (its main branch of August 2026, commit 8bb29b9) on torch 2.15.0 and transformers 5.2.0, in
float32.

usage: python make.py   (pip install git+https://github.com/NVIDIA/kvpress@8bb29b9)

filters/    random filters for qfilter (seed 7), as kvpress's own class saves them
model/      a random llama (seed 5; bf16 on disk, so that every reader has the same numbers)
kvzap/      random maps for kvzap (seed 8), as kvpress's own classes have them: a matrix, two, and gates of Fast KVzip
cases.json  ids: the prompt; forced: tokens read behind it; for each case the policy as Terrace writes it, what kvpress keeps
            ("layer/head": one bit a position, the first one lowest, as hexadecimal), the key channels that it sets to 0 (likewise) and
            every fourth logit of the forced steps.
            full: the logits without a press. Each case is run again in float64 and must keep the same.
"""
import json, math, os
from pathlib import Path
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
import numpy as np, torch, transformers
transformers.utils.logging.disable_progress_bar()
from safetensors.torch import save_file
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
import kvpress as kp
from kvpress.presses.fastkvzip_press import FastKVzipGate
from kvpress.presses.kvzap_press import KVzapConfig, KVzapModel
from kvpress.presses.qfilter_press import QFilters

torch.set_num_threads(1)

HERE = os.path.dirname(os.path.abspath(__file__))
FILTERS = "testdata/kvpress/filters/model.safetensors"  # as the test names it
QUESTION, DELIMITER = 24, 223  # finch: tokens behind the delimiter
PATTERN = [[0.93, 0.02], [0.41, 0.4], [-0.1, 1.2]]  # duo_attention: one number a layer and KV head, clipped to 0 … 1
N, STEPS, VOCAB, EVERY = 200, 3, 224, 4
CONFIG = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
              head_dim=16, rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=512, hidden_act="silu",
              tie_word_embeddings=False, bos_token_id=222, eos_token_id=223)


def make_model():
    g = torch.Generator().manual_seed(5)
    weights = {}
    for name, p in LlamaForCausalLM(LlamaConfig(**CONFIG)).state_dict().items():
        std = 0.16 if "q_proj" in name or "k_proj" in name else 0.5 if "embed" in name else 0.12
        w = 1 + 0.1 * torch.randn(p.shape, generator=g) if "norm" in name else std * torch.randn(p.shape, generator=g)
        weights[name] = w.bfloat16().contiguous()
    os.makedirs(f"{HERE}/model", exist_ok=True)
    save_file(weights, f"{HERE}/model/model.safetensors", metadata={"format": "pt"})
    with open(f"{HERE}/model/config.json", "w") as f:
        json.dump(dict(CONFIG, architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="float32"), f, indent=1)
        f.write("\n")


def load(dtype):
    return LlamaForCausalLM.from_pretrained(f"{HERE}/model", dtype=dtype, attn_implementation="sdpa").eval()


def run(model, ids, forced, press, at=None):
    """What press keeps, the key channels that it sets to 0, [layers][heads] lists, and the logits of the forced steps from position at on."""
    layers = model.model.layers
    for l in layers:
        l.self_attn.masked_key_indices = None
    full, cache = DynamicCache(), DynamicCache()
    finch = isinstance(press, kp.FinchPress)
    asked = ids
    if finch:  # the question stands behind a token that is taken out again
        asked = torch.cat([ids[:, :-QUESTION], torch.tensor([[DELIMITER]]), ids[:, -QUESTION:]], 1)
        press.delimiter_token_id = DELIMITER
    with torch.no_grad():
        model.model(ids, past_key_values=full)
        if press is None:
            model.model(ids, past_key_values=cache)
        else:
            with press(model):
                model.model(asked, past_key_values=cache)
        kept, zero = [], []
        for i, l in enumerate(layers):
            all_k, k = full.layers[i].keys[0], cache.layers[i].keys[0]
            if finch and press.rerotate_keys:  # counted from 0 there, up to the prompt's end here: what was kept a case without it says
                kept.append([list(range(N - k.shape[1], N))] * 2)
                zero.append([[], []])
                at = k.shape[1]
                continue
            live = [(head != 0).any(0) for head in k]
            # the nearest key, for kvcompose attends by another kernel
            row = [sorted((k[g][:, None, on] - all_k[g][None, :, on]).abs().amax(-1).argmin(-1).tolist()) for g, on in enumerate(live)]
            zero.append([(~on).nonzero()[:, 0].tolist() for on in live])
            if l.self_attn.masked_key_indices is not None:
                _, heads, seq = l.self_attn.masked_key_indices
                gone = {(int(h), int(s)) for h, s in zip(heads, seq)}
                row = [[s for s in r if (g, s) not in gone] for g, r in enumerate(row)]
            kept.append(row)
        logits, at = [], N if at is None else at
        for i, t in enumerate(forced):
            out = model(input_ids=torch.tensor([[t]]), past_key_values=cache, position_ids=torch.tensor([[at + i]]))
            logits.append(out.logits[0, -1])
    return kept, zero, logits


def finch(ratio, **o):
    return kp.FinchPress(compression_ratio=ratio, **o)


def duo(ratio, sink, recent):
    press = kp.DuoAttentionPress(head_compression_ratio=ratio)
    press.load_attention_pattern = lambda model: (sink, recent, np.clip(np.array(PATTERN), 0, 1))
    return press


def make_filters():
    torch.manual_seed(7)
    os.makedirs(f"{HERE}/filters", exist_ok=True)
    QFilters(CONFIG["num_hidden_layers"], CONFIG["num_key_value_heads"], CONFIG["head_dim"])._save_pretrained(Path(f"{HERE}/filters"))


def qfilter(ratio):
    press = kp.QFilterPress(compression_ratio=ratio)
    press.load_q_filters = lambda name: QFilters.from_pretrained(f"{HERE}/filters", num_layers=CONFIG["num_hidden_layers"],
                                                                num_kv_heads=CONFIG["num_key_value_heads"], kv_head_dim=CONFIG["head_dim"]).q_filters
    return press


def maps():
    """The maps of kvzap/, which are written; a gate's numbers are of a size that its exponents need."""
    g = torch.Generator().manual_seed(8)
    os.makedirs(f"{HERE}/kvzap", exist_ok=True)
    layers, d, heads = CONFIG["num_hidden_layers"], CONFIG["hidden_size"], CONFIG["num_key_value_heads"]
    group = CONFIG["num_attention_heads"] // heads
    made = {"linear": KVzapModel(KVzapConfig(input_dim=d, output_dim=heads, n_modules=layers)),
            "mlp": KVzapModel(KVzapConfig(input_dim=d, output_dim=heads, hidden_dim=6, n_modules=layers)),
            "gates": torch.nn.ModuleList(FastKVzipGate(i, d, heads, group, torch.float32, output_dim=4, sink=3) for i in range(layers))}
    for name, module in made.items():
        with torch.no_grad():
            for p in module.parameters():
                p.copy_(0.3 * torch.randn(p.shape, generator=g))
        prefix = "layers." if name == "gates" else ""
        save_file({prefix + k: v.contiguous() for k, v in module.state_dict().items()}, f"{HERE}/kvzap/{name}.safetensors")
    return made


def kvzap(ratio, form):
    press = kp.KVzapPress(compression_ratio=ratio)
    press.post_init_from_model = lambda model: setattr(press, "kvzap_model", maps()[form].to(model.dtype))
    return press


def fastkvzip(ratio, **o):
    press = kp.FastKVzipPress(compression_ratio=ratio, **o)
    press.post_init_from_model = lambda model: setattr(press, "gates", list(maps()["gates"].to(model.dtype)))
    return press


MASK = (1 << 64) - 1


def splitmix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def gaussian(layer, head, d, k, seed=0):
    """compactor's random matrix [d, k], variance 1."""
    begin = splitmix(seed ^ splitmix(layer << 32 | head))
    u = [((splitmix((begin + i) & MASK) >> 11) + 0.5) / 2**53 for i in range(d * k)]
    x = []
    for a, b in zip(u[::2], u[1::2]):
        r = math.sqrt(-2 * math.log(a))
        x += [r * math.cos(2 * math.pi * b), r * math.sin(2 * math.pi * b)]
    return torch.tensor(x, dtype=torch.float64).view(k, d).T


class Sketched(kp.LeverageScorePress):
    """LeverageScorePress with the policy's random numbers in place of torch's."""

    def score(self, module, *a, **k):
        torch.randn, drawn = lambda b, h, d, k, **o: torch.stack([gaussian(module.layer_idx, g, d, k) for g in range(h)])[None].to(o["dtype"]), torch.randn
        try:
            return super().score(module, *a, **k)
        finally:
            torch.randn = drawn


def compactor(ratio, **o):
    press = kp.CompactorPress(compression_ratio=ratio, **o)
    press._leverage_press = Sketched(compression_ratio=ratio, sketch_dimension=press.sketch_dimension)
    return press


class Composed(kp.KVComposePress):
    """KVComposePress that forgets its second pass before it decides: structured=False would leave it in the cache, add_v_norm fail on it."""

    def prepare_important_masks(self):
        self.cache.crop(self.context_len)
        super().prepare_important_masks()
        all_scores = self.composite_scores_per_layer.flatten().sort(descending=True)[0]
        most = int(all_scores.numel() * (1 - self.compression_ratio))
        self.tied = self.structured and bool(all_scores[most - 1] == all_scores[most])  # the first layer's scores are copies of others'


def mask(positions):
    return "%x" % sum(1 << p for p in positions)


def snap(**o):
    return kp.SnapKVPress(window_size=16, **o)


def expected(ratio):
    return kp.ExpectedAttentionPress(compression_ratio=ratio, use_vnorm=False)


SNAP, EXPECTED = "snapkv,window_size=16", "expected_attention,use_vnorm=false"
CASES = []
for ratio in (0.3, 0.55, 0.8):
    for inner, make in ((SNAP, lambda r: snap(compression_ratio=r)), (EXPECTED, expected), ("keydiff", lambda r: kp.KeyDiffPress(compression_ratio=r)),
                        ("knorm", lambda r: kp.KnormPress(compression_ratio=r))):
        CASES.append((f"criticalkv:{inner},ratio={ratio}", lambda make=make, ratio=ratio: kp.CriticalKVPress(make(ratio))))
        CASES.append((f"criticalkv:{inner},ratio={ratio},adaptive=true", lambda make=make, ratio=ratio: kp.CriticalAdaKVPress(make(ratio))))
CASES += [
    (f"criticalkv:{SNAP},ratio=0.6,first_stage_ratio=0.2,epsilon=0.01", lambda: kp.CriticalKVPress(snap(compression_ratio=0.6), epsilon=0.01, first_stage_ratio=0.2)),
    (f"criticalkv:{SNAP},ratio=0.6,first_stage_ratio=0.2,epsilon=0.01,adaptive=true,alpha_safeguard=0.6",
     lambda: kp.CriticalAdaKVPress(snap(compression_ratio=0.6), alpha_safeguard=0.6, epsilon=0.01, first_stage_ratio=0.2)),
]
for channels, window in ((0.3, 32), (0.5, 8), (0.8, 32)):
    CASES.append((f"think:key_channel_compression_ratio={channels},window_size={window}",
                  lambda channels=channels, window=window: kp.ThinKPress(key_channel_compression_ratio=channels, window_size=window)))
CASES.append((f"{SNAP.replace(',', ':')},ratio=0.5+think:key_channel_compression_ratio=0.4",
              lambda: kp.ComposedPress([snap(compression_ratio=0.5), kp.ThinKPress(key_channel_compression_ratio=0.4)])))
for ratio, more in ((0.4, {}), (0.8, {}), (0.5, {"normalize_scores": False}), (0.5, {"chunk_length": 50})):
    for rerotate in (False, True):
        o = dict(more, rerotate_keys=rerotate)
        CASES.append((f"finch:window_size={QUESTION},ratio={ratio}," + ",".join(f"{k}={str(v).lower()}" for k, v in o.items()), lambda ratio=ratio, o=o: finch(ratio, **o)))
for ratio, sink, recent in ((0.5, 4, 32), (0.34, 16, 64), (1, 8, 50), (0.5, 100, 100)):
    CASES.append((f"duo_attention:pattern={'/'.join(str(x) for row in PATTERN for x in row)},head_compression_ratio={ratio},sink_size={sink},recent_size={recent}",
                  lambda ratio=ratio, sink=sink, recent=recent: duo(ratio, sink, recent)))
for ratio in (0.25, 0.5, 0.85):
    CASES.append((f"qfilter:filters=@{FILTERS},ratio={ratio}", lambda ratio=ratio: qfilter(ratio)))
for threshold, recent, last in ((0.3, 50, 1), (0.31, 60, 4), (0.5, 80, 1), (0.52, 100, 8)):
    CASES.append((f"simlayerkv:lazy_threshold={threshold},n_recent={recent},n_last={last}",
                  lambda threshold=threshold, recent=recent, last=last: kp.SimLayerKVPress(lazy_threshold=threshold, n_recent=recent, n_last=last)))
for ratio in (0.25, 0.5, 0.8):
    CASES.append((f"compactor:ratio={ratio},chunk_size=64,sketch_dimension=12", lambda ratio=ratio: compactor(ratio, chunk_size=64, sketch_dimension=12)))
    CASES.append((f"leverage_score:ratio={ratio},sketch_dimension=10", lambda ratio=ratio: Sketched(compression_ratio=ratio, sketch_dimension=10)))
    CASES.append((f"non_causal_attn:ratio={ratio},chunk_size=50", lambda ratio=ratio: kp.NonCausalAttnPress(compression_ratio=ratio, chunk_size=50)))
CASES += [
    ("compactor:ratio=0.5", lambda: compactor(0.5)),
    ("compactor:ratio=0.6,blending=1.5,sink_size_start=3,sink_size_end=0,chunk_size=200,sketch_dimension=16",
     lambda: compactor(0.6, blending=1.5, sink_size_start=3, sink_size_end=0, chunk_size=200, sketch_dimension=16)),
    ("adakv:compactor,ratio=0.6,blending=0.6,chunk_size=64", lambda: kp.AdaKVPress(compactor(0.6, blending=0.6, chunk_size=64))),
]
MAP = "weights=@testdata/kvpress/kvzap/"  # as the test names it
for form in ("linear", "mlp"):
    for ratio in (0.3, 0.7):
        CASES.append((f"kvzap:{MAP}{form}.safetensors,n_sink=0,ratio={ratio}", lambda form=form, ratio=ratio: kvzap(ratio, form)))
    CASES.append((f"dms:kvzap,{MAP}{form}.safetensors,n_sink=0,threshold=0.2,sliding_window_size=24",
                  lambda form=form: kp.DMSPress(kvzap(0, form), threshold=0.2, sliding_window_size=24)))
for ratio in (0.3, 0.6, 0.85):
    CASES.append((f"fastkvzip:{MAP}gates.safetensors,ratio={ratio}", lambda ratio=ratio: fastkvzip(ratio)))
CASES.append((f"fastkvzip:{MAP}gates.safetensors,ratio=0.5,budgets=layer,n_sink=2", lambda: fastkvzip(0.5, layerwise=True, n_sink=2)))
for ratio in (0.3, 0.6, 0.85):
    for more in ({}, {"structured": False}, {"agg_task": "mean"}, {"agg_group": "max", "agg_head": "max"}, {"add_v_norm": True, "add_mean_across_heads": False},
                 {"structured": False, "add_v_norm": True, "agg_task": "mean"}, {"keep_token_lower_bound": 25}):
        CASES.append((f"kvcompose:ratio={ratio}" + "".join(f",{k}={str(v).lower()}" for k, v in more.items()),
                      lambda ratio=ratio, more=more: Composed(compression_ratio=ratio, **more)))
CASES.append((f"adakv:qfilter,filters=@{FILTERS},ratio=0.6", lambda: kp.AdaKVPress(qfilter(0.6))))


def main():
    make_model()
    make_filters()
    g = torch.Generator().manual_seed(6)
    ids = torch.randperm(VOCAB - 2, generator=g)[None, :N]  # each token once: twice the same would tie
    forced = torch.randint(0, VOCAB - 2, (STEPS,), generator=g).tolist()
    single, double = load(torch.float32), load(torch.float64)
    rounded = lambda logits: [[round(float(x), 5) for x in row[::EVERY]] for row in logits]
    out = {"ids": ids[0].tolist(), "forced": forced, "full": rounded(run(single, ids, forced, None)[2]), "cases": []}
    for policy, make in CASES:
        press = make()
        kept, zero, logits = run(single, ids, forced, press)
        same = (kept, zero) == run(double, ids, forced, make())[:2]
        print("%-5s %s" % (same, policy), [[len(h) for h in l] for l in kept])
        if not same or getattr(press, "tied", False):
            continue  # rounding decides, or which of two equals torch's topk takes
        heads = lambda lists: {f"{i}/{j}": mask(h) for i, l in enumerate(lists) for j, h in enumerate(l) if h}
        out["cases"].append({"policy": policy, "kept": heads(kept), "zero": heads(zero), "logits": rounded(logits)})
    with open(f"{HERE}/cases.json", "w") as f:
        f.write("{" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in out.items() if k != "cases"))
        f.write(',\n"cases": [\n' + ",\n".join(json.dumps(c) for c in out["cases"]) + "\n]}\n")


main()
