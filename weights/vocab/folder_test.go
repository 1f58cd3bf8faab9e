package vocab_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"terrace/tokenizer"
	"terrace/weights/vocab"
)

// writeFolder makes a model folder of the given files.
func writeFolder(tb testing.TB, files map[string]string) string {
	tb.Helper()
	dir := tb.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

func texts(tok *tokenizer.Tokenizer, ids []int) []string {
	out := []string{}
	for _, id := range ids {
		out = append(out, tok.TokenText(id))
	}
	return out
}

func check(t *testing.T, tok *tokenizer.Tokenizer, text string, add bool, want ...string) {
	t.Helper()
	ids, err := tok.Encode(text, add, true)
	if err != nil || !slices.Equal(texts(tok, ids), want) {
		t.Errorf("%q: got %q, %v; want %q", text, texts(tok, ids), err, want)
	}
}

// llamaJSON is a tokenizer.json in the shape of Llama 2's: BPE over characters
// with byte fallback, spaces written U+2581.
const llamaJSON = `{
 "added_tokens": [
  {"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true, "rstrip": true},
  {"id": 2, "content": "</s>", "special": true}, {"id": 11, "content": "<tool>", "special": false, "lstrip": true}],
 "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
 "pre_tokenizer": null,
 "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
  "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
 "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
 "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
  "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "<0xC3>": 3, "<0xA9>": 4, "▁": 5, "a": 6, "b": 7, "▁a": 8, "ab": 9, "▁ab": 10},
  "merges": [["▁", "a"], ["▁a", "b"], ["a", "b"]]}}`

func TestLlamaFolder(t *testing.T) {
	dir := writeFolder(t, map[string]string{
		"tokenizer.json":          llamaJSON,
		"tokenizer_config.json":   `{"tokenizer_class": "LlamaTokenizer", "bos_token": {"content": "<s>"}, "eos_token": "</s>", "unk_token": null, "add_bos_token": true, "add_eos_token": false, "chat_template": [{"name": "tool", "template": "no"}, {"name": "default", "template": "{{ bos_token }}{{ messages[0].content }}"}]}`,
		"generation_config.json":  `{"eos_token_id": [2, 9], "bos_token_id": 1}`,
		"special_tokens_map.json": `{"pad_token": "<unk>"}`,
	})
	tok := fileTokenizer(t, dir)
	check(t, tok, "ab a", true, "<s>", "▁ab", "▁a")
	check(t, tok, "é", false, "▁", "<0xC3>", "<0xA9>")
	check(t, tok, "axyb", false, "▁a", "<unk>", "b")
	check(t, tok, "<s>  ab <tool>", false, "<s>", "▁ab", "<tool>")
	if !tok.IsEOG(9) || !tok.IsEOG(2) || tok.IsEOG(1) {
		t.Error("generation_config.json's ends are not used")
	}
	ids, _ := tok.Encode("ab é", false, true)
	if back := tok.Decode(ids, false); back != "ab é" {
		t.Errorf("decoded %q", back)
	}
	if text, err := tok.RenderChat([]tokenizer.Message{{Role: "user", Content: "x"}}, true); err != nil || text != "<s>x" {
		t.Errorf("chat: %q, %v", text, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("{{ messages|length }}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := fileTokenizer(t, dir).RenderChat([]tokenizer.Message{{}}, true); err != nil || text != "1" {
		t.Errorf("chat_template.jinja: %q, %v", text, err)
	}
}

// TestAddedByConfig: a token of tokenizer_config.json alone, and a special one
// that an old file calls normalized.
func TestAddedByConfig(t *testing.T) {
	tok := fileTokenizer(t, writeFolder(t, map[string]string{
		"tokenizer.json":        strings.Replace(llamaJSON, `"content": "</s>", "special": true`, `"content": "</s>", "special": true, "normalized": true`, 1),
		"tokenizer_config.json": `{"added_tokens_decoder": {"2": {"content": "</s>", "special": true}, "12": {"content": "<new>", "special": true}}}`,
	}))
	check(t, tok, "a</s>b<new>", false, "▁a", "</s>", "▁", "b", "<new>")
}

func TestAddingFlags(t *testing.T) {
	for config, want := range map[string][]string{
		`{"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false}`:                       {"▁a"},
		`{"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true, "add_eos_token": true}`: {"<s>", "▁a", "</s>"},
		`{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false}`:              {"<s>", "▁a"},
		`{}`: {"<s>", "▁a"},
	} {
		tok := fileTokenizer(t, writeFolder(t, map[string]string{"tokenizer.json": llamaJSON, "tokenizer_config.json": config}))
		check(t, tok, "a", true, want...)
	}
}

// TestBadJSON changes one thing at a time; each must be one error of the
// package's kinds.
func TestBadJSON(t *testing.T) {
	for old, with := range map[string]string{
		`"type": "BPE"`:                         `"type": "WordPiece"`,
		`"a": 6`:                                `"a": -6`,
		`"b": 7`:                                `"b": 7000000`,
		`"ab": 9`:                               `"ab": 8`,
		`"▁": 5`:                                `"▁": "5"`,
		`["▁", "a"]`:                            `["▁", "a", "b"]`,
		`["▁a", "b"]`:                           `"▁a b c"`,
		`["a", "b"]`:                            `["a", "zz"]`,
		`"merges": [`:                           `"merges": [1, `,
		`"type": "Prepend"`:                     `"type": "Nmt"`,
		`"type": "ByteFallback"`:                `"type": "WordPiece"`,
		`"type": "TemplateProcessing"`:          `"type": "Other"`,
		`"ids": [1], "tokens"`:                  `"ids": [1` + strings.Repeat(", 1", 1024) + `], "tokens"`,
		`"ids": [1]`:                            `"ids": [100]`,
		`"unk_token": "<unk>"`:                  `"unk_token": "<nope>"`,
		`"pre_tokenizer": null`:                 `"pre_tokenizer": 5`,
		`{"id": 2, "content": "</s>"`:           `{"id": 99999999, "content": "</s>"`,
		`"byte_fallback": true`:                 `"end_of_word_suffix": "</w>"`,
		`"fuse_unk": true`:                      `"fuse_unk": 1`,
		`"content": "<tool>", "special": false`: `"content": 7, "special": false`,
		`"vocab": {"<unk>": 0,`:                 `"vocab": {"<unk>": 0, "<unk>": 0,`,
		`{"String": " "}`:                       `{"Other": " "}`,
		`"start": 1`:                            `"start": -1`,
		`"single": [`:                           `"single": [{"What": 1}, `,
		`"model": {`:                            `"Model": {`,
		`"added_tokens": [`:                     `"added_tokens": [4, `,
		"\"content\": \"▁\"}]}":                 "\"content\": \"\xff\"}]}",
		`"merges": [["▁", "a"], ["▁a", "b"], ["a", "b"]]}}`: `"merges": []}} x`,
	} {
		bad := strings.Replace(llamaJSON, old, with, 1)
		if bad == llamaJSON {
			t.Fatalf("%s is not in the file", old)
		}
		_, err := openTokenizer(writeFolder(t, map[string]string{"tokenizer.json": bad}))
		if !errors.Is(err, tokenizer.ErrVocab) && !errors.Is(err, tokenizer.ErrUnsupported) {
			t.Errorf("%s → %s: got %v", old, with, err)
		}
	}
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	for name, files := range map[string]map[string]string{
		"deep":         {"tokenizer.json": `{"model": ` + deep + `}`},
		"not object":   {"tokenizer.json": `[]`},
		"empty":        {"tokenizer.json": ``},
		"config":       {"tokenizer.json": llamaJSON, "tokenizer_config.json": `{"bos_token": 5}`},
		"no such BOS":  {"tokenizer.json": llamaJSON, "tokenizer_config.json": `{"bos_token": "<bos>"}`},
		"template":     {"tokenizer.json": llamaJSON, "tokenizer_config.json": `{"chat_template": 5}`},
		"jinja":        {"tokenizer.json": llamaJSON, "chat_template.jinja": "\xff"},
		"generation":   {"tokenizer.json": llamaJSON, "generation_config.json": `{"eos_token_id": "x"}`},
		"add_bos":      {"tokenizer.json": llamaJSON, "tokenizer_config.json": `{"tokenizer_class": "LlamaTokenizer", "add_bos_token": true}`},
		"no tokenizer": {"config.json": `{}`},
		"tiktoken":     {"qwen.tiktoken": "IQ== 1\n"},
		"tiktoken 2":   {"qwen.tiktoken": "IQ==\n"},
		"tiktoken 3":   {"qwen.tiktoken": "IQ== 0\n"},
		"protobuf":     {"tokenizer.model": "\x0a\xff\xff\xff\xff\x0f"},
		"protobuf 2":   {"tokenizer.model": "\x0b"},
	} {
		_, err := openTokenizer(writeFolder(t, files))
		if !errors.Is(err, tokenizer.ErrVocab) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	dir := writeFolder(t, nil)
	if err := os.Mkdir(filepath.Join(dir, "tokenizer.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := openTokenizer(dir); !errors.Is(err, tokenizer.ErrVocab) {
		t.Errorf("a folder as tokenizer.json: %v", err)
	}
}

func TestComponents(t *testing.T) {
	base := `{"added_tokens": [], "normalizer": %s, "pre_tokenizer": %s, "post_processor": %s, "decoder": %s,
	 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "1": 3, ",": 4, "▁": 5, "é": 6, "Ã": 7, "©": 8, "A": 9}, "merges": []}}`
	for _, c := range []struct {
		normalizer, pre, post, decoder, text string
		want                                 []string
	}{
		{`{"type": "NFC"}`, `{"type": "ByteLevel", "add_prefix_space": true, "use_regex": true}`, `{"type": "ByteLevel"}`, `{"type": "ByteLevel"}`, "a é", []string{"Ġ", "a", "Ġ", "Ã", "©"}},
		{`{"type": "Lowercase"}`, `{"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, {"type": "WhitespaceSplit"}]}`, `null`, `null`, "A1 b", []string{"a", "1", "b"}},
		{`{"type": "Strip", "strip_left": true, "strip_right": true}`, `{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}`, `{"type": "RobertaProcessing", "cls": ["a", 0], "sep": ["b", 1]}`, `{"type": "Metaspace", "replacement": "▁", "add_prefix_space": true}`, " a b ", []string{"a", "a", "▁", "b", "b"}},
		{`{"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "NFKC"}, {"type": "NFD"}]}`, `{"type": "Whitespace"}`, `null`, `{"type": "Fuse"}`, "a, b", []string{"a", ",", "b"}},
		{`{"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": "a"}`, `{"type": "Punctuation", "behavior": "Isolated"}`, `null`, `null`, "b \n,", []string{"b", "a", ","}},
		{`null`, `{"type": "Split", "pattern": {"String": "1"}, "behavior": "Removed", "invert": false}`, `null`, `null`, "a1b", []string{"a", "b"}},
		{`null`, `{"type": "Split", "pattern": {"Regex": "[^1]+"}, "behavior": "Removed", "invert": true}`, `null`, `null`, "a1b", []string{"a", "b"}},
		{`null`, `{"type": "Metaspace", "add_prefix_space": false}`, `null`, `null`, "a b", []string{"a", "▁", "b"}},
	} {
		tok := fileTokenizer(t, writeFolder(t, map[string]string{"tokenizer.json": fmt.Sprintf(base, c.normalizer, c.pre, c.post, c.decoder)}))
		check(t, tok, c.text, true, c.want...)
	}
	for _, c := range [][4]string{
		{`{"type": "BertNormalizer"}`, `null`, `null`, `null`},
		{`{"type": "Precompiled", "precompiled_charsmap": "!"}`, `null`, `null`, `null`},
		{`{"type": "Precompiled", "precompiled_charsmap": "AAAA"}`, `null`, `null`, `null`},
		{`{"type": "Replace", "pattern": {"Regex": "(?=a)"}, "content": "a"}`, `null`, `null`, `null`},
		{`null`, `{"type": "BertPreTokenizer"}`, `null`, `null`},
		{`null`, `{"type": "Split", "pattern": {"Regex": "("}, "behavior": "Removed"}`, `null`, `null`},
		{`null`, `{"type": "Split", "behavior": "Removed"}`, `null`, `null`},
		{`null`, `null`, `{"type": "BertProcessing", "cls": ["a", 99], "sep": ["b", 1]}`, `null`},
		{`null`, `null`, `null`, `{"type": "CTC"}`},
		{`null`, `null`, `null`, `{"type": "Metaspace", "replacement": "_"}`},
		{`{"type": "Sequence", "normalizers": [` + strings.Repeat(`{"type": "NFC"},`, 100) + `{"type": "NFC"}]}`, `null`, `null`, `null`},
	} {
		_, err := openTokenizer(writeFolder(t, map[string]string{"tokenizer.json": fmt.Sprintf(base, c[0], c[1], c[2], c[3])}))
		if !errors.Is(err, tokenizer.ErrVocab) && !errors.Is(err, tokenizer.ErrUnsupported) {
			t.Errorf("%v: got %v", c, err)
		}
	}
}

func TestUnigramJSON(t *testing.T) {
	const file = `{"added_tokens": [{"id": 4, "content": "<x>", "special": true}],
	 "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}, "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
	 "model": {"unk_id": 0, "vocab": [["<unk>", 0], ["▁", -2], ["▁a", -2.5], ["a", -3.5]]}}`
	tok := fileTokenizer(t, writeFolder(t, map[string]string{"tokenizer.json": file}))
	check(t, tok, "a a<x>aqq", false, "▁a", "▁a", "<x>", "▁a", "<unk>")
	ids, _ := tok.Encode("a a", false, false)
	if back := tok.Decode(ids, false); back != "a a" {
		t.Errorf("decoded %q", back)
	}
	for old, with := range map[string]string{`["a", -3.5]`: `["a"]`, `"unk_id": 0`: `"unk_id": 99`, `["▁", -2]`: `["a", -2]`, `["▁a", -2.5]`: `["▁a", "x"]`} {
		if _, err := openTokenizer(writeFolder(t, map[string]string{"tokenizer.json": strings.Replace(file, old, with, 1)})); !errors.Is(err, tokenizer.ErrVocab) {
			t.Errorf("%s: got %v", with, err)
		}
	}
}

// TestGemmaAsMerges writes Gemma's vocabulary as the tokenizer.json of the same
// model is written, with merges in the order of their results' scores, and
// compares the two ways of merging on the golden texts.
func TestGemmaAsMerges(t *testing.T) {
	if testing.Short() {
		t.Skip("builds 262,144 tokens")
	}
	m := models[1]
	spm := modelTokenizer(t, m.env, m.file)
	v := vocabOf(t, os.Getenv(m.env), m.file)
	ids := map[string]int{}
	for id, text := range v.Tokens {
		ids[text] = id
	}
	type merge struct {
		left, right string
		score       float64
	}
	var merges []merge
	for id, text := range v.Tokens {
		if v.Types[id] != tokenizer.TypeNormal {
			continue
		}
		for cut := range text {
			if _, ok := ids[text[:cut]]; !ok || cut == 0 {
				continue
			}
			if _, ok := ids[text[cut:]]; ok {
				merges = append(merges, merge{text[:cut], text[cut:], v.Scores[id]})
			}
		}
	}
	sort.SliceStable(merges, func(i, j int) bool { return merges[i].score > merges[j].score })
	v.Model, v.RawText, v.Scores = tokenizer.ModelBPE, true, nil
	v.Normalize, v.Split = []tokenizer.Normalizer{tokenizer.Replace(" ", "▁")}, []tokenizer.PreTokenizer{}
	for _, m := range merges {
		v.Merges = append(v.Merges, m.left+" "+m.right)
	}
	bpe, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range goldenRows(t, m.rows) {
		if r.Text == nil {
			continue
		}
		want, _ := spm.Encode(*r.Text, r.AddSpecial, r.ParseSpecial)
		got, err := bpe.Encode(*r.Text, r.AddSpecial, r.ParseSpecial)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", r.Name, head(got), err, head(want))
		}
	}
}

// FuzzTokenizerJSON opens any bytes as tokenizer.json and uses what opens.
func FuzzTokenizerJSON(f *testing.F) {
	f.Add([]byte(llamaJSON))
	f.Add([]byte(`{"model": {"vocab": [["a", 0]], "unk_id": 0}}`))
	f.Add([]byte(`{"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}`))
	f.Add([]byte(`{"model": {"type": "BPE", "vocab": {"a": 5000}, "merges": ["a a"]}}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := vocab.FromModel(nil, dir)
		if err == nil {
			_, err = tokenizer.New(v)
		}
		if err != nil {
			if !errors.Is(err, tokenizer.ErrVocab) && !errors.Is(err, tokenizer.ErrUnsupported) {
				t.Fatalf("%v", err)
			}
			return
		}
		tok, _ := tokenizer.New(v)
		ids, err := tok.Encode("ab é <s>", true, true)
		if err != nil && !errors.Is(err, tokenizer.ErrEncode) {
			t.Fatalf("%v", err)
		}
		tok.Decode(ids, true)
	})
}

// TestJSONNumbers keeps the reading of ids strict.
func TestJSONNumbers(t *testing.T) {
	var v map[string]any
	if err := json.Unmarshal([]byte(llamaJSON), &v); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"1.5", "1e3", "99999999999", "true", `"6"`, "null"} {
		bad := strings.Replace(llamaJSON, `"a": 6`, `"a": `+id, 1)
		if _, err := openTokenizer(writeFolder(t, map[string]string{"tokenizer.json": bad})); !errors.Is(err, tokenizer.ErrVocab) {
			t.Errorf("id %s: got %v", id, err)
		}
	}
}

func TestVocabAndMerges(t *testing.T) {
	const vocabJSON = `{"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "Ġ": 6, "Ġa": 7, "Ġab": 8, "e": 9}`
	files := map[string]string{
		"vocab.json":            vocabJSON,
		"merges.txt":            "#version: 0.2\nĠ a\nĠa b\n",
		"tokenizer_config.json": `{"tokenizer_class": "GPT2Tokenizer", "bos_token": {"content": "</s>"}, "eos_token": {"content": "</s>"}, "pad_token": "<pad>", "unk_token": "</s>", "add_bos_token": true, "add_prefix_space": false}`,
		"added_tokens.json":     `{"<mask>": 10}`,
	}
	tok := fileTokenizer(t, writeFolder(t, files))
	check(t, tok, "a ab<pad><mask>", true, "</s>", "a", "Ġab", "<pad>", "<mask>")
	files["tokenizer_config.json"] = `{"tokenizer_class": "Qwen2TokenizerFast", "eos_token": "</s>"}`
	check(t, fileTokenizer(t, writeFolder(t, files)), "a ab", true, "a", "Ġab")
	for name, change := range map[string][2]string{
		"merge":  {"merges.txt", "a b c\n"},
		"utf8":   {"merges.txt", "\xff b\n"},
		"id":     {"vocab.json", `{"a": "x"}`},
		"json":   {"vocab.json", `{`},
		"class":  {"tokenizer_config.json", `{"tokenizer_class": "BertTokenizer"}`},
		"added":  {"added_tokens.json", `{"<mask>": "x"}`},
		"prefix": {"tokenizer_config.json", `{"add_prefix_space": 5}`},
	} {
		broken := map[string]string{}
		for k, v := range files {
			broken[k] = v
		}
		broken[change[0]] = change[1]
		_, err := openTokenizer(writeFolder(t, broken))
		if !errors.Is(err, tokenizer.ErrVocab) && !errors.Is(err, tokenizer.ErrUnsupported) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	delete(files, "merges.txt")
	if _, err := openTokenizer(writeFolder(t, files)); !errors.Is(err, tokenizer.ErrVocab) {
		t.Errorf("without merges: %v", err)
	}
}
