#!/usr/bin/env python3
"""The peers of docs/gpu/measure: a llama of the shape 1B or 8B with random bf16 weights in transformers, on the GPU.

  peer.py SHAPE --prompt N [--generate M] --repeats R   one JSON object: tokens a second of reading the prompt (SDPA), or of
                                                        transformers' generate (greedy), each repeat and the median
  peer.py summary DIR                                   ratios of what measure wrote
"""
import argparse
import glob
import json
import os
import statistics
import sys
import time

SHAPES = {
    "1B": dict(num_hidden_layers=16, hidden_size=2048, num_attention_heads=32, num_key_value_heads=8, intermediate_size=8192, tie_word_embeddings=True),
    "8B": dict(num_hidden_layers=32, hidden_size=4096, num_attention_heads=32, num_key_value_heads=8, intermediate_size=14336, tie_word_embeddings=False),
}


def measure(shape, prompt, generate, repeats):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=128256, max_position_embeddings=40960, attn_implementation="sdpa", **SHAPES[shape])
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).eval()
    ids = torch.randint(100, 30000, (1, prompt), device="cuda")

    def run(n):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        if n:
            model.generate(ids, max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=0)
        else:
            model(ids, use_cache=True, logits_to_keep=1)
        torch.cuda.synchronize()
        return time.perf_counter() - begun

    speeds = []
    with torch.no_grad():
        run(generate)
        for _ in range(repeats):
            if generate:  # without the prompt: the time of one more token and of generate more
                one = run(1)
                speeds.append(generate / (run(generate + 1) - one))
            else:
                speeds.append(prompt / run(0))
    return {"shape": shape, "prompt": prompt, "generate": generate, "tps_all": speeds, "tps_median": statistics.median(speeds),
            "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}


def load(path):
    with open(path) as f:
        return json.load(f)


def stall(row):
    """Share of a repeat in which the device computed nothing."""
    tokens = row["n_prompt"] or row["n_gen"] * row["batch"]
    return 1 - row["device"]["compute_ms"] / 1000 / (tokens / row["tps_median"])


def summary(folder):
    for path in sorted(glob.glob(os.path.join(folder, "*-torch.json"))):
        try:
            peer, ours = load(path), load(path.replace("-torch.json", ".json"))[0]
        except ValueError:
            continue  # one of the two was ended; measure says so
        print(f"{os.path.basename(path)[:-11]}: {ours['tps_median']:.1f} t/s, torch {peer['tps_median']:.1f}, ratio {ours['tps_median'] / peer['tps_median']:.3f}")
    for path in sorted(glob.glob(os.path.join(folder, "*-offload.json")) + glob.glob(os.path.join(folder, "*-ttft.json"))):
        for row in load(path) if os.path.getsize(path) else []:
            moved = row["kv"]["bytes_moved"]
            print(f"{os.path.basename(path)[:-5]}: {row['policy']} on {' '.join(row['tiers']) or 'all'}: {row['tps_median']:.2f} t/s, x {row['ratio']:.3f}, "
                  f"ttft {row['ttft_ms']:.0f} ms, device idle {stall(row):.0%}, up {moved.get('host>device', 0)}, down {moved.get('device>host', 0)} bytes")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=[*SHAPES, "summary"])
    p.add_argument("folder", nargs="?")
    p.add_argument("--prompt", type=int, default=4096)
    p.add_argument("--generate", type=int, default=0)
    p.add_argument("--repeats", type=int, default=5)
    a = p.parse_args()
    if a.what == "summary":
        summary(a.folder or sys.exit("summary needs a folder"))
    else:
        print(json.dumps(measure(a.what, a.prompt, a.generate, a.repeats)))
