package tokenizer

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Slow and plain versions of the three models, written from their definitions,
// to compare the fast ones with.

// slowBPE merges the leftmost pair of lowest rank until none is left.
func slowBPE(merges []string, symbols []string) []string {
	rank := map[string]int{}
	for i, m := range merges {
		if _, dup := rank[m]; !dup {
			rank[m] = i
		}
	}
	for {
		best, at := math.MaxInt, -1
		for i := 0; i+1 < len(symbols); i++ {
			if r, ok := rank[symbols[i]+" "+symbols[i+1]]; ok && r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			return symbols
		}
		symbols = slices.Concat(symbols[:at], []string{symbols[at] + symbols[at+1]}, symbols[at+2:])
	}
}

// slowSPM merges the leftmost pair whose joined text has the highest score.
func slowSPM(scores map[string]float64, symbols []string) []string {
	for {
		best, at := float64(math.Inf(-1)), -1
		for i := 0; i+1 < len(symbols); i++ {
			if s, ok := scores[symbols[i]+symbols[i+1]]; ok && (at < 0 || s > best) {
				best, at = s, i
			}
		}
		if at < 0 {
			return symbols
		}
		symbols = slices.Concat(symbols[:at], []string{symbols[at] + symbols[at+1]}, symbols[at+2:])
	}
}

// slowUnigram scores every segmentation by recursion with memory; unknown
// characters cost unknown each. Ties go to the path whose last token starts
// first, as Viterbi with a strict comparison finds it.
func slowUnigram(scores map[string]float64, unknown float64, text string) []string {
	type path struct {
		score float64
		parts []string
		ok    bool
	}
	best := make([]path, len(text)+1)
	best[0] = path{ok: true}
	for end := 1; end <= len(text); end++ {
		if end < len(text) && !utf8.RuneStart(text[end]) {
			continue
		}
		for start := 0; start < end; start++ {
			if !best[start].ok {
				continue
			}
			piece := text[start:end]
			score, known := scores[piece]
			if !known && utf8.RuneCountInString(piece) == 1 {
				score, known = unknown, true
			}
			if known && (!best[end].ok || best[start].score+score > best[end].score) {
				best[end] = path{best[start].score + score, append(slices.Clone(best[start].parts), piece), true}
			}
		}
	}
	return best[len(text)].parts
}

// randomText draws runes from an alphabet small enough for merges to matter.
func randomText(r *rand.Rand, alphabet string, most int) string {
	runes := []rune(alphabet)
	var b strings.Builder
	for range r.IntN(most) {
		b.WriteRune(runes[r.IntN(len(runes))])
	}
	return b.String()
}

// randomMerges trains nothing: it joins random known tokens.
func randomMerges(r *rand.Rand, tokens []string, n int) (all, merges []string) {
	known := map[string]bool{}
	for _, t := range tokens {
		known[t] = true
	}
	for range n {
		a, b := tokens[r.IntN(len(tokens))], tokens[r.IntN(len(tokens))]
		if utf8.RuneCountInString(a+b) > 12 || slices.Contains(merges, a+" "+b) {
			continue
		}
		merges = append(merges, a+" "+b)
		if !known[a+b] {
			known[a+b] = true
			tokens = append(tokens, a+b)
		}
	}
	return tokens, merges
}

func byteTokens() []string {
	var tokens []string
	for b := range 256 {
		tokens = append(tokens, ToByteAlphabet(string([]byte{byte(b)})))
	}
	return tokens
}

// none is a Vocab without special tokens.
func none(model string) Vocab { return Vocab{Model: model, BOS: -1, EOS: -1, UNK: -1, PAD: -1} }

func mustNew(tb testing.TB, v Vocab) *Tokenizer {
	tb.Helper()
	tok, err := New(v)
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

func texts(tok *Tokenizer, ids []int) []string {
	out := []string{}
	for _, id := range ids {
		out = append(out, tok.TokenText(id))
	}
	return out
}

func TestBPEAgainstReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 20 {
		v := none(ModelBPE)
		v.Split = []PreTokenizer{}
		// Only letters of the text's alphabet merge, so that long chains form.
		var some []string
		for _, c := range "ab c\u00e9" {
			for _, b := range []byte(string(c)) {
				some = append(some, ToByteAlphabet(string([]byte{b})))
			}
		}
		_, merges := randomMerges(r, some, 40)
		v.Tokens, v.Merges = byteTokens(), merges
		for _, m := range merges {
			if joined := strings.ReplaceAll(m, " ", ""); !slices.Contains(v.Tokens, joined) {
				v.Tokens = append(v.Tokens, joined)
			}
		}
		tok := mustNew(t, v)
		for range 100 {
			text := randomText(r, "ab cé", 90)
			ids, err := tok.Encode(text, false, false)
			if err != nil {
				t.Fatal(err)
			}
			symbols := []string{}
			for _, b := range []byte(text) {
				symbols = append(symbols, ToByteAlphabet(string([]byte{b})))
			}
			if want := slowBPE(merges, symbols); !slices.Equal(texts(tok, ids), want) {
				t.Fatalf("round %d, %q: got %q, want %q", round, text, texts(tok, ids), want)
			}
			if back := tok.Decode(ids, true); back != text {
				t.Fatalf("decoded %q, want %q", back, text)
			}
		}
	}
}

// spmVocab has byte tokens, characters and random longer tokens with scores.
func spmVocab(r *rand.Rand, model, alphabet string) (Vocab, map[string]float64) {
	v := none(model)
	add := func(token string, score float64, kind TokenType) {
		v.Tokens, v.Scores, v.Types = append(v.Tokens, token), append(v.Scores, score), append(v.Types, kind)
	}
	add("<unk>", 0, TypeUnknown)
	v.UNK = 0
	for b := range 256 {
		add("<0x"+strings.ToUpper(hex2(byte(b)))+">", 0, TypeByte)
	}
	scores := map[string]float64{}
	var tokens []string
	for _, c := range alphabet {
		tokens = append(tokens, string(c))
	}
	tokens, _ = randomMerges(r, tokens, 60)
	for _, token := range tokens {
		score := float64(-r.IntN(30)) / 2 // halves: equal scores happen
		scores[token] = score
		add(token, score, TypeNormal)
	}
	return v, scores
}

func hex2(b byte) string { return string("0123456789abcdef"[b>>4]) + string("0123456789abcdef"[b&15]) }

func TestSPMAgainstReference(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		v, scores := spmVocab(r, ModelSPM, "abc\u2581é")
		tok := mustNew(t, v)
		for range 100 {
			text := randomText(r, "abc éz", 80)
			ids, err := tok.Encode(text, false, false)
			if err != nil {
				t.Fatal(err)
			}
			var symbols []string
			for _, c := range strings.ReplaceAll(text, " ", "\u2581") {
				symbols = append(symbols, string(c))
			}
			want := []string{}
			for _, s := range slowSPM(scores, symbols) {
				if _, ok := scores[s]; ok {
					want = append(want, s)
					continue
				}
				for _, b := range []byte(s) {
					want = append(want, "<0x"+strings.ToUpper(hex2(b))+">")
				}
			}
			if !slices.Equal(texts(tok, ids), want) {
				t.Fatalf("%q:\n got %q\nwant %q", text, texts(tok, ids), want)
			}
			if back := tok.Decode(ids, true); back != text {
				t.Fatalf("decoded %q, want %q", back, text)
			}
		}
	}
}

func TestUnigramAgainstReference(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for round := range 40 {
		v, small := spmVocab(r, ModelUnigram, "abc\u2581é")
		withBytes := round%2 == 0
		if !withBytes { // without byte tokens unknown characters are <unk>
			v.Tokens, v.Scores, v.Types = slices.Concat(v.Tokens[:1], v.Tokens[257:]), slices.Concat(v.Scores[:1], v.Scores[257:]), slices.Concat(v.Types[:1], v.Types[257:])
		}
		scores, lowest := map[string]float64{}, math.Inf(1)
		for token, s := range small {
			scores[token] = float64(s)
			lowest = min(lowest, float64(s))
		}
		tok := mustNew(t, v)
		for range 60 {
			text := randomText(r, "abc éz", 60)
			ids, err := tok.Encode(text, false, false)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{}
			for _, s := range slowUnigram(scores, lowest-unknownPenalty, strings.ReplaceAll(text, " ", "\u2581")) {
				if _, ok := scores[s]; ok {
					want = append(want, s)
				} else if withBytes {
					for _, b := range []byte(s) {
						want = append(want, "<0x"+strings.ToUpper(hex2(b))+">")
					}
				} else if len(want) == 0 || want[len(want)-1] != "<unk>" {
					want = append(want, "<unk>")
				}
			}
			if !slices.Equal(texts(tok, ids), want) {
				t.Fatalf("%q:\n got %q\nwant %q", text, texts(tok, ids), want)
			}
		}
	}
}

// TestSPMCutsAreSafe compares a vocabulary that lets text be cut before spaces
// with the same text merged as one piece.
func TestSPMCutsAreSafe(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 50 {
		v, _ := spmVocab(r, ModelSPM, "ab\u2581")
		tok := mustNew(t, v)
		whole := mustNew(t, v)
		for _, c := range "abcdefghijklmnopqrstuvwxyzé" {
			whole.spm.cuts[c] = true
		}
		text := randomText(r, "ab  c", 200)
		a, _ := tok.Encode(text, false, false)
		b, _ := whole.Encode(text, false, false)
		if !slices.Equal(a, b) {
			t.Fatalf("%q: cut %q, whole %q", text, texts(tok, a), texts(tok, b))
		}
	}
}

// TestRawCutsAreSafe does the same for BPE over characters.
func TestRawCutsAreSafe(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	for range 50 {
		v := none(ModelBPE)
		v.RawText, v.Split = true, []PreTokenizer{}
		v.Normalize = []Normalizer{Replace(" ", "\u2581")}
		v.Tokens, v.Merges = randomMerges(r, []string{"a", "b", "\u2581"}, 40)
		tok := mustNew(t, v)
		text := randomText(r, "ab  ", 400)
		ids, err := tok.Encode(text, false, false)
		if err != nil {
			t.Fatal(err)
		}
		var symbols []string
		for _, c := range strings.ReplaceAll(text, " ", "\u2581") {
			symbols = append(symbols, string(c))
		}
		if want := slowBPE(v.Merges, symbols); !slices.Equal(texts(tok, ids), want) {
			t.Fatalf("%q:\n got %q\nwant %q", text, texts(tok, ids), want)
		}
	}
}
