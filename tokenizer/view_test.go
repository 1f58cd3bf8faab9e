package tokenizer

import "testing"

// TestTokenView: tokens that differ have names that differ, with the blank that decoding takes from a text's start, and a character's
// parts have their bytes.
func TestTokenView(t *testing.T) {
	v := Vocab{Model: ModelSPM, AddSpacePrefix: true, BOS: -1, EOS: 2, UNK: 0, PAD: -1}
	for _, x := range []struct {
		token, name, own string
		kind             TokenType
	}{
		{"<unk>", "<unk>", "", TypeUnknown}, {"true", "true", "true", TypeNormal}, {"</s>", "</s>", "", TypeControl}, {"\u2581true", " true", " true", TypeNormal},
		{"<0xE2>", `bytes:\xe2`, "\xe2", TypeByte}, {"<0x41>", "A", "A", TypeByte}, {"<|call|>", "<|call|>", "", TypeControl}, {"\u2581", " ", " ", TypeNormal}, {"é", "é", "é", TypeNormal},
		{"<tool>", "<tool>", "<tool>", TypeUserDefined},
	} {
		v.Tokens, v.Types, v.Scores = append(v.Tokens, x.token), append(v.Types, x.kind), append(v.Scores, 0)
		tok, err := New(v)
		if len(v.Tokens) < 3 {
			continue // EOS is not there yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if name, own := tok.TokenView(len(v.Tokens) - 1); name != x.name || string(own) != x.own {
			t.Errorf("%q: %q %q, want %q %q", x.token, name, own, x.name, x.own)
		}
	}
}
