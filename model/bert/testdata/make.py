"""Makes the goldens of this folder with torch 2.15.0 and transformers 5.2.0, in double precision.

usage: make.py MINILM   (folder of sentence-transformers/all-MiniLM-L6-v2: 'infer pull minilm:l6' prints it)

tiny/        a random BertModel (seed 7): hidden 32, 2 layers, 4 heads, 89 tokens
tiny.json    texts, ids of BertTokenizerFast, embeddings (mean of rows, length 1)
minilm.json  the same of MiniLM, the embeddings' first 48 numbers and their norm
"""
import json, os, sys
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

here = os.path.dirname(os.path.abspath(__file__))
TEXTS = [
    "", "Hello world", "The quick brown fox jumps over the lazy dog.", "naïve café Ÿ İstanbul ǅ ẞß", "你好，世界 mixed 漢字 text",
    "don't stop-believing (it's 3.14, or $5!)", "a\tb\nc\u00a0d\u200be\u0000f\ufffdg", "[CLS] tokens [MASK] in text [SEP]", "x" * 101 + " y",
    "unaffable Electroencephalographically", "👍 emoji 🏽 flags 🇩🇪", "हिन्दी देवनागरी العربية עברית ไทย 한국어 日本語", "ﬁ ligature ½ ² ™",
    "The capital of France is Paris, and the answer to the question is forty-two.", "def f(x): return x**2  # comment", "the " * 60,
]

def golden(folder, first=None):
    tok, model = BertTokenizerFast.from_pretrained(folder), BertModel.from_pretrained(folder).double().eval()
    out = []
    for text in TEXTS:
        ids = tok(text)["input_ids"]
        with torch.no_grad():
            h = model(torch.tensor([ids])).last_hidden_state[0]
        e = h.mean(0); e = e / e.norm()
        row = {"text": text, "ids": ids, "embedding": [round(float(x), 9) for x in e[:first]]}
        out.append(row)
    return out

def tiny(folder):
    os.makedirs(folder + "/1_Pooling", exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list("abcdefghijklmnopqrstuvwxyz.,'!()$0123456789-") + ["##" + c for c in "abcdefghijklmnopqrstuvwxyz"]
    words += ["the", "##ing", "hello", "world", "token", "fox", "dog", "quick", "是", "你", "in", "text", "answer", "##er"]
    open(folder + "/vocab.txt", "w").write("\n".join(words) + "\n")
    json.dump({"tokenizer_class": "BertTokenizer", "do_lower_case": True}, open(folder + "/tokenizer_config.json", "w"))
    json.dump({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, open(folder + "/1_Pooling/config.json", "w"))
    json.dump({"max_seq_length": 110}, open(folder + "/sentence_bert_config.json", "w"))
    torch.manual_seed(7)
    c = BertConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=128, initializer_range=0.4)
    m = BertModel(c, add_pooling_layer=False)
    for n, p in m.named_parameters():
        if n.endswith("bias") or "LayerNorm" in n:
            p.data += 0.3 * torch.randn_like(p)
    m.save_pretrained(folder)

tiny(here + "/tiny")
json.dump(golden(here + "/tiny"), open(here + "/tiny.json", "w"), ensure_ascii=False, indent=0)
json.dump(golden(sys.argv[1], 48), open(here + "/minilm.json", "w"), ensure_ascii=False, indent=0)
