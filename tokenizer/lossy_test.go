package tokenizer

import (
	"strings"
	"testing"
)

// The examples of Unicode 15, tables 3-8 to 3-11, and cuts within characters. Go's own conversion to runes would give one
// U+FFFD a byte, strings.ToValidUTF8 one a run.
func TestReplaceInvalid(t *testing.T) {
	const r = "\uFFFD"
	for in, want := range map[string]string{
		"":                                         "",
		"plain é 吕":                                "plain é 吕",
		"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41":     strings.Repeat(r, 8) + "A",
		"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41":     strings.Repeat(r, 8) + "A",
		"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42":     strings.Repeat(r, 5) + "A" + r + r + "B",
		"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41":     r + r + r + r + "A",
		"ab\xE5\x90":                               "ab" + r,
		"\x90\x95x":                                r + r + "x",
		"\xF0\x9F\x98":                             r,
		"\xEF\xBF\xBD\xE5":                         r + r, // a U+FFFD of the text stays itself
		"\xF0\x9F\x98\xF0\x9F\x98\x80\xC3\xE5\x90": r + "\U0001F600" + r + r,
	} {
		if got := replaceInvalid(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// A run of byte tokens is one text or one U+FFFD a byte, as tokenizers' ByteFallback has it; control tokens do not break it.
func TestDecodeTextOfByteTokens(t *testing.T) {
	v := Vocab{Model: ModelSPM, Tokens: []string{"<unk>", "<s>", "\u2581a", "<0xE5>", "<0x90>", "<0x95>", "b"},
		Types: []TokenType{TypeUnknown, TypeControl, TypeNormal, TypeByte, TypeByte, TypeByte, TypeNormal}, Scores: make([]float64, 7)}
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	for want, ids := range map[string][]int{
		" a吕b":                        {2, 3, 4, 5, 6},
		" a\uFFFD\uFFFDb":             {2, 3, 4, 6},
		" a\uFFFD\uFFFD\uFFFD\uFFFDb": {2, 3, 4, 5, 4, 6},
		" a吕":                         {2, 3, 1, 4, 5},
	} {
		if got := tok.DecodeText(ids, false); got != want {
			t.Errorf("%v: %q, want %q", ids, got, want)
		}
	}
}
