package tokenizer

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// small is a byte-level vocabulary with a few merges and special tokens.
func small() Vocab {
	v := none(ModelBPE)
	v.Pre = "gpt-2"
	v.Tokens = byteTokens()
	v.Merges = []string{"h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld"}
	for _, m := range v.Merges {
		v.Tokens = append(v.Tokens, strings.ReplaceAll(m, " ", ""))
	}
	v.Types = make([]TokenType, len(v.Tokens))
	for i := range v.Types {
		v.Types[i] = TypeNormal
	}
	add := func(text string, kind TokenType) int {
		v.Tokens, v.Types = append(v.Tokens, text), append(v.Types, kind)
		return len(v.Tokens) - 1
	}
	v.BOS = add("<s>", TypeControl)
	v.EOS = add("</s>", TypeControl)
	add("<|im_end|>", TypeControl)
	add("<b>", TypeUserDefined)
	add("<b><i>", TypeUserDefined)
	return v
}

func TestEncodeSpecials(t *testing.T) {
	v := small()
	v.AddBOS, v.AddEOS = true, true
	tok := mustNew(t, v)
	for _, c := range []struct {
		text       string
		add, parse bool
		want       []string
	}{
		{"hello world", false, false, []string{"hello", "Ġworld"}},
		{"hello world", true, false, []string{"<s>", "hello", "Ġworld", "</s>"}},
		{"", true, false, []string{"<s>", "</s>"}},
		{"", false, true, []string{}},
		{"<s>he", false, true, []string{"<s>", "he"}},
		{"<s>he", false, false, []string{"<", "s", ">", "he"}},
		{"<b>he<b><i>", false, false, []string{"<b>", "he", "<b><i>"}},
		{"<b><s><b><i", false, true, []string{"<b>", "<s>", "<b>", "<", "i"}},
	} {
		ids, err := tok.Encode(c.text, c.add, c.parse)
		if err != nil || !slices.Equal(texts(tok, ids), c.want) {
			t.Errorf("%q add=%v parse=%v: got %q, %v; want %q", c.text, c.add, c.parse, texts(tok, ids), err, c.want)
		}
	}
	bos, ok := tok.BOS()
	eos := v.EOS
	if !ok || tok.TokenText(bos) != "<s>" || !tok.IsEOG(eos) || tok.IsEOG(bos) || !tok.AddsBOS() {
		t.Error("special ids")
	}
	if id, ok := tok.TokenID("<|im_end|>"); !ok || !tok.IsEOG(id) {
		t.Error("<|im_end|> does not end a generation")
	}
	if got := tok.Decode([]int{bos, 'h' - '!' + 33, eos}, false); strings.Contains(got, "<s>") {
		t.Errorf("control tokens in %q", got)
	}
	if got := tok.Decode([]int{bos, -1, 1 << 30}, true); got != "<s>" {
		t.Errorf("got %q", got)
	}
	if tok.TokenText(-1) != "" || tok.Size() != len(v.Tokens) {
		t.Error("ids out of range")
	}
}

func TestEncodeChat(t *testing.T) {
	v := small()
	v.AddBOS, v.AddEOS = true, true
	tok := mustNew(t, v)
	for _, text := range []string{"<s>hello", "hello"} {
		ids, err := tok.EncodeChat(text)
		if want := []string{"<s>", "hello"}; err != nil || !slices.Equal(texts(tok, ids), want) {
			t.Errorf("%q: got %q, %v", text, texts(tok, ids), err)
		}
	}
}

func TestMatchHabits(t *testing.T) {
	v := small()
	id := func(text string) int { return slices.Index(v.Tokens, text) }
	v.Normalize = []Normalizer{Lowercase()}
	v.Match = map[int]Match{
		id("<b>"):        {LStrip: true, RStrip: true},
		id("<|im_end|>"): {SingleWord: true},
		id("<s>"):        {Normalized: true},
	}
	tok := mustNew(t, v)
	for text, want := range map[string][]string{
		"hello \t<b>\n HELLO": {"hello", "<b>", "hello"},
		"a<|im_end|>":         {"a", "<", "|", "i", "m", "_", "e", "n", "d", "|", ">"},
		"! <|im_end|> !":      {"!", "Ġ", "<|im_end|>", "Ġ", "!"},
		"HE<S>he":             {"he", "<s>", "he"},
	} {
		ids, err := tok.Encode(text, false, true)
		if err != nil || !slices.Equal(texts(tok, ids), want) {
			t.Errorf("%q: got %q, %v; want %q", text, texts(tok, ids), err, want)
		}
	}
}

func TestTemplateProcessor(t *testing.T) {
	v := small()
	v.Prefix, v.Suffix = []int{v.BOS, v.BOS}, []int{v.EOS}
	tok := mustNew(t, v)
	ids, _ := tok.Encode("he", true, false)
	if want := []string{"<s>", "<s>", "he", "</s>"}; !slices.Equal(texts(tok, ids), want) {
		t.Errorf("got %q", texts(tok, ids))
	}
}

func TestIgnoreMerges(t *testing.T) {
	v := small()
	v.Tokens, v.Types = append(v.Tokens, "Ġunmerged"), append(v.Types, TypeNormal)
	v.Pre = "llama-bpe"
	tok := mustNew(t, v)
	ids, _ := tok.Encode(" unmerged", false, false)
	if want := []string{"Ġunmerged"}; !slices.Equal(texts(tok, ids), want) {
		t.Errorf("got %q", texts(tok, ids))
	}
}

func TestUnknownCharacters(t *testing.T) {
	v := none(ModelBPE)
	v.Tokens = []string{"<unk>", "a", "b", "ab"}
	v.Types = []TokenType{TypeControl, 1, 1, 1}
	v.Merges = []string{"a b"}
	v.Split = []PreTokenizer{}
	for _, c := range []struct {
		unk, fuse bool
		want      []string
	}{{false, false, []string{"ab", "a"}}, {true, false, []string{"ab", "<unk>", "<unk>", "a"}}, {true, true, []string{"ab", "<unk>", "a"}}} {
		v.UNK, v.EmitUnknown, v.FuseUnknown = 0, c.unk, c.fuse
		tok := mustNew(t, v)
		ids, err := tok.Encode("abxya", false, false)
		if err != nil || !slices.Equal(texts(tok, ids), c.want) {
			t.Errorf("%+v: got %q, %v", c, texts(tok, ids), err)
		}
	}
}

func TestRawTextBPE(t *testing.T) {
	v := none(ModelBPE)
	v.Tokens = []string{"\u2581", "a", "b", "\u2581a", "<0xC3>", "<0xA9>"}
	v.Merges = []string{"\u2581 a"}
	v.RawText, v.Split = true, []PreTokenizer{}
	v.Normalize = []Normalizer{Prepend("\u2581"), Replace(" ", "\u2581")}
	v.Decode = &Decoding{Spaces: true, Bytes: true, StripLeft: 1}
	tok := mustNew(t, v)
	ids, err := tok.Encode("a aé", false, false)
	if want := []string{"\u2581a", "\u2581a", "<0xC3>", "<0xA9>"}; err != nil || !slices.Equal(texts(tok, ids), want) {
		t.Fatalf("got %q, %v", texts(tok, ids), err)
	}
	if back := tok.Decode(ids, false); back != "a aé" {
		t.Errorf("decoded %q", back)
	}
	v.Normalize, v.Split, v.Pre = nil, nil, "gemma4"
	tok = mustNew(t, v)
	ids, _ = tok.Encode(" a b", false, false)
	if want := []string{"\u2581a", "\u2581", "b"}; !slices.Equal(texts(tok, ids), want) {
		t.Errorf("gemma4: got %q", texts(tok, ids))
	}
}

func TestSpacePrefix(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, model := range []string{ModelSPM, ModelUnigram} {
		v, _ := spmVocab(r, model, "ab\u2581")
		v.AddSpacePrefix = true
		v.Tokens, v.Scores, v.Types = append(v.Tokens, "<s>"), append(v.Scores, 0), append(v.Types, TypeControl)
		tok := mustNew(t, v)
		for text, spaced := range map[string]string{"ab": "\u2581ab", " a": "\u2581\u2581a", "a<s>b": "\u2581a<s>\u2581b"} {
			ids, err := tok.Encode(text, false, true)
			if got := strings.Join(texts(tok, ids), ""); err != nil || got != spaced {
				t.Errorf("%s %q: got %q, %v; want %q", model, text, got, err, spaced)
			}
		}
		ids, _ := tok.Encode("ab a", false, true)
		if back := tok.Decode(ids, true); back != "ab a" {
			t.Errorf("%s: decoded %q", model, back)
		}
	}
}

func TestInvalidUTF8(t *testing.T) {
	tok := mustNew(t, small())
	for text, want := range map[string]string{
		"he\xff":           "he\uFFFD",
		"\xc0\xaf":         "/", // an overlong form, as llama.cpp decodes it
		"\xc3":             "\uFFFD",
		"\xf7\xbf\xbf\xbf": "\uFFFD\uFFFD\uFFFD\uFFFD", // beyond U+10FFFF, where llama.cpp aborts
		"\xed\xa0\x80":     "\xed\xa0\x80",             // a surrogate stays
	} {
		ids, err := tok.Encode(text, false, false)
		if got := tok.Decode(ids, true); err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestDetokenizer(t *testing.T) {
	tok := mustNew(t, small())
	text := "hello 😀 wörld 你好\u200d!"
	ids, _ := tok.Encode(text, false, false)
	d := tok.NewDetokenizer()
	var got strings.Builder
	for _, id := range ids {
		part := d.Push(id)
		if !utf8.ValidString(part) {
			t.Fatalf("half a character: %q", part)
		}
		got.WriteString(part)
	}
	got.WriteString(d.Flush())
	if got.String() != text {
		t.Errorf("got %q, want %q", got.String(), text)
	}
	d = &Detokenizer{start: tok.newStart(), withSpecial: true}
	bad := []int{}
	for _, b := range []byte("\xe4\xbd") { // two bytes of three
		id, _ := tok.TokenID(ToByteAlphabet(string([]byte{b})))
		bad = append(bad, id)
	}
	if s := d.Push(bad[0]) + d.Push(bad[1]); s != "" {
		t.Errorf("early %q", s)
	}
	if s := d.Flush(); s != "\uFFFD" {
		t.Errorf("flushed %q", s)
	}
}

// TestDetokenizerRandom pushes random ids: what comes out is always UTF-8 and
// equals the whole text with what is not UTF-8 replaced.
func TestDetokenizerRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	v, _ := spmVocab(r, ModelSPM, "abé\u2581")
	v.AddSpacePrefix = true
	for _, tok := range []*Tokenizer{mustNew(t, small()), mustNew(t, v)} {
		for range 500 {
			d := &Detokenizer{start: tok.newStart(), withSpecial: true}
			var ids []int
			var got strings.Builder
			for range r.IntN(30) {
				id := r.IntN(tok.Size())
				ids = append(ids, id)
				part := d.Push(id)
				if !utf8.ValidString(part) {
					t.Fatalf("half a character: %q", part)
				}
				got.WriteString(part)
			}
			got.WriteString(d.Flush())
			want := strings.ToValidUTF8(tok.Decode(ids, true), "\uFFFD")
			if squeeze(got.String()) != squeeze(want) {
				t.Fatalf("got %q, want %q", got.String(), want)
			}
		}
	}
}

// squeeze joins runs of U+FFFD: how many stand for a broken run depends on
// where it was cut.
func squeeze(s string) string {
	for strings.Contains(s, "\uFFFD\uFFFD") {
		s = strings.ReplaceAll(s, "\uFFFD\uFFFD", "\uFFFD")
	}
	return s
}

// TestAdversarialTime feeds texts that are quadratic for a naive tokenizer.
func TestAdversarialTime(t *testing.T) {
	const size = 1 << 18
	v := small()
	for n := 2; n <= 64; n *= 2 { // "aa" … 64 letters merge
		half := strings.Repeat("a", n/2)
		v.Merges = append(v.Merges, half+" "+half)
		v.Tokens, v.Types = append(v.Tokens, half+half), append(v.Types, TypeNormal)
	}
	r := rand.New(rand.NewPCG(1, 1))
	s, _ := spmVocab(r, ModelSPM, "ab\u2581")
	u, _ := spmVocab(r, ModelUnigram, "ab\u2581")
	d := v
	d.Pre = "deepseek-v3" // runs on a backtracking engine
	for name, tok := range map[string]*Tokenizer{"bpe": mustNew(t, v), "spm": mustNew(t, s), "unigram": mustNew(t, u), "regex": mustNew(t, d)} {
		for kind, text := range map[string]string{
			"letter":  strings.Repeat("a", 1<<20),
			"letters": strings.Repeat("ab", size/2),
			"spaces":  strings.Repeat(" ", size),
			"lines":   strings.Repeat("\n", size),
			"digits":  strings.Repeat("1", size),
			"quotes":  strings.Repeat("'", size),
			"almost":  strings.Repeat("<b><i", size/5),
			"marks":   strings.Repeat("\u0301", size/2),
			"bytes":   strings.Repeat("\xff", size),
		} {
			start := time.Now()
			if _, err := tok.Encode(text, false, true); err != nil {
				t.Errorf("%s %s: %v", name, kind, err)
			}
			// A second a MiB is the goal; the rest is for busy machines. Quadratic
			// work would take hours.
			if took := time.Since(start); took > time.Minute {
				t.Errorf("%s %s: %d bytes took %v", name, kind, len(text), took)
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := mustNew(t, small())
	want, _ := tok.Encode("hello world <b> hello hello", true, true)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if ids, err := tok.Encode("hello world <b> hello hello", true, true); err != nil || !slices.Equal(ids, want) {
					t.Errorf("got %v, %v", ids, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestVocabErrors(t *testing.T) {
	for name, change := range map[string]func(v *Vocab){
		"no tokens":        func(v *Vocab) { v.Tokens = nil },
		"types":            func(v *Vocab) { v.Types = v.Types[1:] },
		"scores":           func(v *Vocab) { v.Scores = make([]float64, 3) },
		"no scores":        func(v *Vocab) { v.Model = ModelSPM },
		"BOS":              func(v *Vocab) { v.BOS = 9999 },
		"EOS":              func(v *Vocab) { v.EOS = -2 },
		"end":              func(v *Vocab) { v.EOG = []int{9999} },
		"prefix":           func(v *Vocab) { v.Prefix = []int{-1} },
		"suffix":           func(v *Vocab) { v.Suffix = []int{9999} },
		"added":            func(v *Vocab) { v.Match = map[int]Match{9999: {}} },
		"adds BOS":         func(v *Vocab) { v.AddBOS, v.BOS = true, -1 },
		"adds EOS":         func(v *Vocab) { v.AddEOS, v.EOS = true, -1 },
		"twice":            func(v *Vocab) { v.Tokens[5] = v.Tokens[6] },
		"merge \"\"":       func(v *Vocab) { v.Merges = append(v.Merges, "") },
		"merge one":        func(v *Vocab) { v.Merges = append(v.Merges, "hello") },
		"merge space":      func(v *Vocab) { v.Merges = append(v.Merges, "h ") },
		"merge left":       func(v *Vocab) { v.Merges = append(v.Merges, "nope e") },
		"merge right":      func(v *Vocab) { v.Merges = append(v.Merges, "h nope") },
		"merge result":     func(v *Vocab) { v.Merges = append(v.Merges, "h o") },
		"score NaN":        func(v *Vocab) { v.Model, v.Scores = ModelSPM, nan(len(v.Tokens)) },
		"score NaN 2":      func(v *Vocab) { v.Model, v.Scores = ModelUnigram, nan(len(v.Tokens)) },
		"unigram no UNK":   func(v *Vocab) { v.Model, v.Scores = ModelUnigram, make([]float64, len(v.Tokens)) },
		"charsmap short":   func(v *Vocab) { unigramWith(v, []byte{1}) },
		"charsmap too big": func(v *Vocab) { unigramWith(v, []byte{255, 0, 0, 0, 1}) },
	} {
		v := small()
		change(&v)
		if _, err := New(v); !errors.Is(err, ErrVocab) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	v := small()
	v.Model = "abacus"
	if _, err := New(v); !errors.Is(err, ErrUnsupported) {
		t.Errorf("model: got %v", err)
	}
}

func nan(n int) []float64 {
	scores := make([]float64, n)
	scores[n/2] = float64(0) / func() float64 { return 0 }()
	return scores
}

func unigramWith(v *Vocab, charsmap []byte) {
	v.Model, v.Scores, v.UNK, v.Charsmap = ModelUnigram, make([]float64, len(v.Tokens)), 0, charsmap
}

// BenchmarkOneLetter is the worst text for a merge loop: 1 MiB of one letter.
func BenchmarkOneLetter(b *testing.B) {
	v := small()
	for n := 2; n <= 64; n *= 2 {
		half := strings.Repeat("a", n/2)
		v.Merges = append(v.Merges, half+" "+half)
		v.Tokens, v.Types = append(v.Tokens, half+half), append(v.Types, TypeNormal)
	}
	s, _ := spmVocab(rand.New(rand.NewPCG(1, 1)), ModelSPM, "ab\u2581")
	text := strings.Repeat("a", 1<<20)
	for name, tok := range map[string]*Tokenizer{"bpe": mustNew(b, v), "spm": mustNew(b, s)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := tok.Encode(text, false, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
