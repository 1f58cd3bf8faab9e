"""Makes truncation.jsonl: LongBench's prompts, cut and tokenised by transformers as pred.py does it.

usage: truncation.py SHARED SMOLLM2.gguf > truncation.jsonl      (transformers 5.2.0, tokenizers 0.22.2, gguf 0.19.0)

One line a row and case: task, row, case (tokenizer and limit), prompt (hash of the template's str.format), cut (tokens taken
out of the middle), n and ids (number and hash of what the model reads). Hashes are the first 16 hex digits of SHA-256; ids
as little-endian 32-bit. Nothing of the texts is stored. SmolLM2's tokenizer is built from the GGUF's vocabulary with the
checkpoint's pre-tokenizer (digits one by one, then GPT-2's), since AutoTokenizer takes that file for another class.
"""
import hashlib, json, os, struct, sys
from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

NO_CHAT = {"trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"}


def smollm2(path):
    f = GGUFReader(path).fields
    strings = lambda k: [bytes(f[k].parts[i]).decode() for i in f[k].data]
    tokens, merges = strings("tokenizer.ggml.tokens"), [tuple(m.split(" ")) for m in strings("tokenizer.ggml.merges")]
    kinds = [int(f["tokenizer.ggml.token_type"].parts[i][0]) for i in f["tokenizer.ggml.token_type"].data]
    t = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(tokens)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x, k in zip(tokens, kinds) if k == 3])
    tok = PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|im_end|>", clean_up_tokenization_spaces=False)
    tok.chat_template = strings("tokenizer.chat_template")[0]
    return tok


def tiny(folder):
    return PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"), clean_up_tokenization_spaces=False)


def digest(raw):
    return hashlib.sha256(raw).hexdigest()[:16]


def main(shared, gguf):
    data = os.path.join(shared, "data", "longbench")
    prompts = json.load(open(os.path.join(data, "dataset2prompt.json"), encoding="utf-8"))
    real, small = smollm2(gguf), tiny(os.path.join(shared, "data", "golden", "tiny_hf", "llama_gqa"))
    cases = [("smollm2/3500", real, 3500), ("smollm2/777", real, 777), ("tiny/1001", small, 1001)]
    for task in sorted(prompts):
        for i, line in enumerate(open(os.path.join(data, task + ".jsonl"), encoding="utf-8")):
            whole = prompts[task].format(**json.loads(line))
            for case, tok, limit in cases:
                prompt, cut = whole, 0
                ids = tok(prompt, truncation=False).input_ids
                if len(ids) > limit:
                    half = int(limit / 2)
                    cut = len(ids) - 2 * half
                    prompt = tok.decode(ids[:half], skip_special_tokens=True) + tok.decode(ids[-half:], skip_special_tokens=True)
                if tok.chat_template and task not in NO_CHAT:
                    prompt = tok.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True)
                ids = tok(prompt, truncation=False, add_special_tokens=False).input_ids
                print(json.dumps({"task": task, "row": i, "case": case, "prompt": digest(whole.encode()), "cut": cut, "n": len(ids),
                                  "ids": digest(struct.pack("<%di" % len(ids), *ids))}))


main(*sys.argv[1:])
