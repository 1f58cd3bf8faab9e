package tokenizer

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzEncode encodes any bytes with all three models: ids are in range, text
// that is UTF-8 and needs no unknown token comes back, and nothing panics.
func FuzzEncode(f *testing.F) {
	for _, seed := range []string{"", "hello world", "<b><s><|im_end|>", "\xff\xc0\xaf\xed\xa0\x80", "  \n\t x ", "\u2581 a\u2581b", "é😀你\u0301", "''''s", "1234567"} {
		f.Add(seed, true, true)
	}
	r := rand.New(rand.NewPCG(15, 16))
	spm, _ := spmVocab(r, ModelSPM, "abé\u2581")
	unigram, _ := spmVocab(r, ModelUnigram, "abé\u2581")
	toks := map[string]*Tokenizer{"bpe": mustNew(f, small()), "spm": mustNew(f, spm), "unigram": mustNew(f, unigram)}
	for _, pre := range []string{"llama-bpe", "qwen2", "smollm", "default", "gpt-4o", "deepseek-v3"} {
		v := small()
		v.Pre, v.IgnoreMerges = pre, false
		toks[pre] = mustNew(f, v)
	}
	f.Fuzz(func(t *testing.T, text string, add, parse bool) {
		if len(text) > 1<<12 {
			t.Skip()
		}
		for name, tok := range toks {
			ids, err := tok.Encode(text, add, parse)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			d := &Detokenizer{start: tok.newStart(), withSpecial: true}
			for _, id := range ids {
				if id < 0 || id >= tok.Size() {
					t.Fatalf("%s: id %d", name, id)
				}
				if !utf8.ValidString(d.Push(id)) {
					t.Fatalf("%s: half a character", name)
				}
			}
			d.Flush()
			// U+2581 and a space are one token for SentencePiece.
			if name != "spm" && name != "unigram" && utf8.ValidString(text) && !add {
				if back := tok.Decode(ids, true); back != text {
					t.Fatalf("%s: %q came back as %q", name, text, back)
				}
			}
		}
	})
}

// FuzzTemplate renders any source: it ends in time, with text or an error that
// wraps ErrTemplate.
func FuzzTemplate(f *testing.F) {
	seeds, _ := filepath.Glob("testdata/chat/*.jinja")
	for _, path := range seeds {
		source, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(source))
	}
	for _, source := range []string{`{% for i in range(1000000000000) %}x{% endfor %}`, `{% for m in messages %}{{ m.content }`, `{{ 'x' * 99999999999 }}`, `{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}`, `{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns|tojson }}`} {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		v := small()
		v.ChatTemplate = source
		start := time.Now()
		_, err := mustNew(t, v).RenderChat([]Message{{"system", "s"}, {"user", "hi"}, {"assistant", "yes"}, {"user", "é"}}, true)
		if err != nil && !errors.Is(err, ErrTemplate) && !errors.Is(err, ErrNoTemplate) {
			t.Fatalf("%v", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Fatalf("took %v", took)
		}
	})
}
