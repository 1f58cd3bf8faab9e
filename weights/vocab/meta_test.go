package vocab_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"terrace/tokenizer"
	"terrace/weights/gguf"
	"terrace/weights/vocab"
)

const ggml = "tokenizer.ggml."

// meta is the metadata of a small tokenizer of a kind, with changes.
func meta(kind string, changes map[string]any) *gguf.Meta {
	m := &gguf.Meta{}
	m.Set("general.name", "tiny")
	m.Set(ggml+"model", kind)
	m.Set(ggml+"tokens", []string{"<unk>", "<s>", "</s>", "a", "b", "ab", "\u2581", "\u2581a", "<|im_end|>", "Ġ", "<0x0A>"})
	m.Set(ggml+"token_type", []int32{2, 3, 3, 1, 1, 1, 1, 1, 3, 1, 6})
	m.Set(ggml+"bos_token_id", uint32(1))
	m.Set(ggml+"eos_token_id", uint32(2))
	m.Set(ggml+"unknown_token_id", uint32(0))
	if kind == "gpt2" || kind == "gemma4" {
		m.Set(ggml+"merges", []string{"a b"})
		m.Set(ggml+"pre", "gpt-2")
	} else {
		m.Set(ggml+"scores", []float32{0, 0, 0, -1, -1, -2, -1, -1, 0, -9, 0})
	}
	for key, value := range changes {
		if value == nil {
			m.Delete(key)
		} else {
			m.Set(key, value)
		}
	}
	return m
}

func metaTokenizer(t *testing.T, m *gguf.Meta) *tokenizer.Tokenizer {
	t.Helper()
	v, err := vocab.FromModel(m, "")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestMetaWithoutTypes: what ends a turn is a control token in a file without token types too.
func TestMetaWithoutTypes(t *testing.T) {
	tok := metaTokenizer(t, meta("gpt2", map[string]any{ggml + "token_type": nil}))
	ids, err := tok.Encode("ab<|im_end|>a", false, true)
	if err != nil || !slices.Equal(ids, []int{5, 8, 3}) {
		t.Errorf("ids %v (%v), want 5 8 3", ids, err)
	}
	if got := tok.Decode([]int{5, 8, 3}, false); got != "aba" {
		t.Errorf("text %q, want the control token hidden", got)
	}
	if got := tok.Decode([]int{5, 1, 3}, false); got != "ab<s>a" {
		t.Errorf("text %q, want others plain", got)
	}
}

func TestMetaKinds(t *testing.T) {
	check(t, metaTokenizer(t, meta("gpt2", nil)), "ab a", true, "ab", "Ġ", "a")
	check(t, metaTokenizer(t, meta("gpt2", map[string]any{ggml + "add_bos_token": true, ggml + "add_eos_token": true})), "ab", true, "<s>", "ab", "</s>")
	check(t, metaTokenizer(t, meta("gpt2", map[string]any{ggml + "pre": "llama-bpe"})), "ab", true, "<s>", "ab")
	check(t, metaTokenizer(t, meta("llama", nil)), "ab", true, "<s>", "\u2581a", "b")
	check(t, metaTokenizer(t, meta("llama", map[string]any{ggml + "add_space_prefix": false, ggml + "add_bos_token": false})), "ab", true, "ab")
	check(t, metaTokenizer(t, meta("t5", nil)), "ab", true, "\u2581a", "b", "</s>")
	check(t, metaTokenizer(t, meta("t5", map[string]any{ggml + "add_space_prefix": false, ggml + "remove_extra_whitespaces": true})), " ab  a", true, "ab", "\u2581a", "</s>")
	check(t, metaTokenizer(t, meta("gemma4", nil)), "ab a\n", true, "<s>", "ab", "\u2581", "a", "<0x0A>")
	check(t, metaTokenizer(t, meta("gpt2", map[string]any{"general.name": "Phi-3 mini"})), "<|im_end|>  a", true, "<|im_end|>", "a")
	tok := metaTokenizer(t, meta("gpt2", map[string]any{ggml + "eot_token_id": uint32(8), ggml + "eom_token_id": uint32(4), "tokenizer.chat_template": "x"}))
	if !tok.IsEOG(8) || !tok.IsEOG(4) || !tok.IsEOG(2) || !tok.HasTemplate() {
		t.Error("ends of a generation, template")
	}
	tok = metaTokenizer(t, meta("gpt2", map[string]any{ggml + "pre": nil, ggml + "bos_token_id": nil, ggml + "padding_token_id": ^uint32(0)}))
	if _, ok := tok.BOS(); ok {
		t.Error("BOS from nowhere: llama.cpp's default id is beyond this vocabulary")
	}
	if w := tok.Warnings(); len(w) != 1 || !strings.Contains(string(w[0]), `"default"`) {
		t.Errorf("a file without a pre-tokenizer: warnings %q", w)
	}
}

func TestMetaErrors(t *testing.T) {
	for name, c := range map[string]struct {
		kind    string
		changes map[string]any
		mention string
	}{
		"no model":       {"gpt2", map[string]any{ggml + "model": nil}, "tokenizer.ggml.model"},
		"model type":     {"gpt2", map[string]any{ggml + "model": uint32(1)}, "tokenizer.ggml.model"},
		"unknown":        {"abacus", nil, "abacus"},
		"no tokens":      {"gpt2", map[string]any{ggml + "tokens": nil}, "tokenizer.ggml.tokens"},
		"tokens type":    {"gpt2", map[string]any{ggml + "tokens": []int32{1}}, "tokenizer.ggml.tokens"},
		"no merges":      {"gpt2", map[string]any{ggml + "merges": nil}, "tokenizer.ggml.merges"},
		"merges type":    {"gpt2", map[string]any{ggml + "merges": "a b"}, "tokenizer.ggml.merges"},
		"type length":    {"gpt2", map[string]any{ggml + "token_type": []int32{1}}, "token_type"},
		"type width":     {"gpt2", map[string]any{ggml + "token_type": []uint8{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}, "token_type"},
		"type strings":   {"gpt2", map[string]any{ggml + "token_type": []string{"a"}}, "token_type"},
		"scores length":  {"llama", map[string]any{ggml + "scores": []float32{1}}, "scores"},
		"no scores":      {"llama", map[string]any{ggml + "scores": nil}, "scores"},
		"eos":            {"gpt2", map[string]any{ggml + "eos_token_id": uint32(9999)}, "eos_token_id"},
		"bos negative":   {"gpt2", map[string]any{ggml + "bos_token_id": int32(-7)}, "bos_token_id"},
		"eot":            {"gpt2", map[string]any{ggml + "eot_token_id": uint32(11)}, "eot_token_id"},
		"adds no BOS":    {"gpt2", map[string]any{ggml + "bos_token_id": nil, ggml + "add_bos_token": true}, "add_bos_token"},
		"flag type":      {"gpt2", map[string]any{ggml + "add_bos_token": "yes"}, "add_bos_token"},
		"template type":  {"gpt2", map[string]any{"tokenizer.chat_template": uint32(1)}, "chat_template"},
		"charsmap":       {"t5", map[string]any{ggml + "precompiled_charsmap": []uint8{1, 2}}, "charsmap"},
		"duplicate text": {"gpt2", map[string]any{ggml + "tokens": []string{"<unk>", "<s>", "</s>", "a", "b", "ab", "a", "x", "y", "z", "w"}}, "twice"},
	} {
		v, err := vocab.FromModel(meta(c.kind, c.changes), "")
		if err == nil {
			_, err = tokenizer.New(v)
		}
		if !errors.Is(err, tokenizer.ErrVocab) && !errors.Is(err, tokenizer.ErrUnsupported) {
			t.Errorf("%s: got %v", name, err)
		} else if !strings.Contains(err.Error(), c.mention) {
			t.Errorf("%s: %v does not mention %s", name, err, c.mention)
		}
	}
}
