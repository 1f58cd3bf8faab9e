"""Writes cases.jsonl: small tokenizer.json files, texts, and what Hugging Face's
library `tokenizers` (0.23.3) makes of them. Run: pip install tokenizers; python generate.py
"""

import json

from tokenizers import Tokenizer

FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
LLAMA = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}
GEMMA = {"type": "Sequence", "decoders": LLAMA["decoders"][:3]}
SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def metaspace(scheme):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}


def bpe(tokens, merges=(), **more):
    vocab = {t: i for i, t in enumerate(["<unk>"] + tokens + [m.replace(" ", "") for m in merges])}
    model = {"type": "BPE", "unk_token": "<unk>", "fuse_unk": False, "byte_fallback": False}
    return model | {"vocab": vocab, "merges": list(merges)} | more


def case(name, texts, model, added=(), **parts):
    ids = model["vocab"] if isinstance(model["vocab"], dict) else {t: i for i, (t, _) in enumerate(model["vocab"])}
    listed, size = [], len(ids)
    for a in added:
        a = FLAGS | ({"content": a} if isinstance(a, str) else a)
        a["id"] = ids.get(a["content"], size)
        size += a["content"] not in ids
        listed.append(a)
    config = {"version": "1.0", "added_tokens": sorted(listed, key=lambda a: a["id"]), "normalizer": None,
              "pre_tokenizer": None, "post_processor": None, "decoder": LLAMA, "model": model} | parts
    tok = Tokenizer.from_str(json.dumps(config))
    rows = []
    for text in texts:
        ids = tok.encode(text, add_special_tokens=False).ids
        rows.append({"text": text, "ids": ids, "with_special": tok.decode(ids, skip_special_tokens=False), "plain": tok.decode(ids)})
    print(json.dumps({"name": name, "tokenizer": config, "rows": rows}, ensure_ascii=False), file=out)


marks = "".join("\u0301\u0316\u0327\u0345\u05b0"[i % 5] for i in range(40))
letters = ["▁", "a", "b", "A", "é", "e", "1", "½", "²", "\u0301", "\u0316", "\u0327", "\u0345", "\u05b0", "\u200d", "\u0940", "\u0307", "i", "ς", "σ"]
out = open("cases.jsonl", "w")
case("runs of spaces as in Gemma", ["    a", "a  b   a", "    ", "<b>  <s>a"],
     bpe(["▁", "a", "b"], ["▁ ▁", "▁▁ ▁▁", "▁ a"]), ["▁▁", "▁▁▁▁", "<b>", {"content": "<s>", "special": True}],
     normalizer=SPACES, decoder=GEMMA)
case("special tokens before a stripped space", ["<s> a", "<s>a b", " a"],
     bpe(letters), [{"content": "<s>", "special": True}], pre_tokenizer=metaspace("always"))
case("decoder Metaspace takes the first token's", ["▁▁a", " a a", "<s> a"],
     bpe(letters, ["▁ ▁"]), [{"content": "<s>", "special": True}], normalizer=SPACES, decoder=metaspace("always"))
case("prepend_scheme first and normalized tokens", ["a<b>a", "<b>a<b> a", " a<b>a<c>a", "<c>a<b>a"],
     bpe(letters), [{"content": "<b>", "normalized": True}, "<c>"], pre_tokenizer=metaspace("first"))
case("prepend_scheme first after removed text", ["a a", " a a"], bpe(letters),
     pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace("first")]})
case("prepend_scheme first after stripped text", ["a a", " a", "\u0301a", "b<b> a", "1a"], bpe(letters), [{"content": "<b>", "normalized": True}],
     pre_tokenizer=metaspace("first"),
     normalizer={"type": "Sequence", "normalizers": [{"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "StripAccents"},
                                                     {"type": "Replace", "pattern": {"String": "1"}, "content": ""},
                                                     {"type": "Replace", "pattern": {"Regex": "[2-9]"}, "content": ""}]})
for form in ["NFC", "NFD", "NFKC", "NFKD"]:
    case(form + " of many marks", ["e" + marks + "a", "é" + marks, marks + "\u0327\u0301", "½²é"], bpe(letters), normalizer={"type": form})
case("accents and lower case", ["éé\u0940a\u0301", "İi", "AΣς"], bpe(letters),
     normalizer={"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]})
case("lower case alone", ["İ", "AΣ"], bpe(letters), normalizer={"type": "Lowercase"})
case("Whitespace", ["a\u200db a½b²", "½a\u0301 \u200d1"], bpe(letters), pre_tokenizer={"type": "Whitespace"})
case("word class of a Split", ["a½b² ab", "1²a"], bpe(letters),
     pre_tokenizer={"type": "Split", "pattern": {"Regex": r"[\w]+"}, "behavior": "Isolated", "invert": False})
case("single words", ["<b>", "a<b>", "\u0301<b>", "½<b>.", "<b>\u200d"], bpe(letters), [{"content": "<b>", "single_word": True}])
case("fuse_unk within words", ["xy z xy", "x"], bpe(letters, fuse_unk=True), pre_tokenizer={"type": "WhitespaceSplit"})
case("unknown characters left out", ["axa", "▁x▁"], bpe(letters, ["▁ ▁", "a a"], unk_token=None))
case("bytes without byte_fallback", ["ax"], bpe(["a"] + ["<0x%02X>" % b for b in range(ord("w"), ord("z"))]))
case("added tokens outside BPE", ["aªz"], bpe(["b", "▁"]), ["z", "a"], normalizer={"type": "NFKC"})
unigram = [["<unk>", 0.0], ["a", -1.0], ["b", -1.5], ["ab", -2.5000000001], ["ba", -2.4999999999], ["▁", -3.0], ["</s>", 0.0], ["c", -1.0]]
case("unigram", ["abba", "aab<x></s>xa", "c<x>", "ª<y>ab"], {"type": "Unigram", "unk_id": 0, "vocab": unigram},
     ["<x>", "c", {"content": "<y>", "normalized": True}, "xa"], normalizer={"type": "NFKC"})
