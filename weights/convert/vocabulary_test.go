package convert

import (
	"errors"
	"slices"
	"testing"

	"terrace/tokenizer"
	"terrace/weights/gguf"
	"terrace/weights/vocab"
)

// TestVocabularyKeys: SentencePiece and byte-fallback vocabularies get GGUF's keys, padded to the rows of the embedding.
func TestVocabularyKeys(t *testing.T) {
	v := tokenizer.Vocab{
		Model: tokenizer.ModelSPM, Tokens: []string{"<unk>", "<s>", "</s>", "a"}, Scores: []float64{0, 0, 0, -1},
		Types: []int32{2, 3, 3, 1}, BOS: 1, EOS: 2, UNK: 0, PAD: -1, EOG: []int{3}, AddBOS: true, AddSpacePrefix: true, ChatTemplate: "{{x}}",
	}
	m := &gguf.Meta{}
	if err := setVocabulary(m, v, 6, Options{}); err != nil {
		t.Fatal(err)
	}
	tokens, err := m.Strings("tokenizer.ggml.tokens")
	if err != nil || !slices.Equal(tokens, []string{"<unk>", "<s>", "</s>", "a", "[PAD4]", "[PAD5]"}) {
		t.Errorf("tokens %q, %v", tokens, err)
	}
	types, err := m.Int32s("tokenizer.ggml.token_type")
	if err != nil || !slices.Equal(types, []int32{2, 3, 3, 1, 5, 5}) || m.Len("tokenizer.ggml.scores") != 6 {
		t.Errorf("types %v, %v, %d scores", types, err, m.Len("tokenizer.ggml.scores"))
	}
	if model, _ := m.String("tokenizer.ggml.model"); model != "llama" || m.Has("tokenizer.ggml.padding_token_id") || !m.Has("tokenizer.chat_template") {
		t.Errorf("model %q, keys %v", model, m.Keys())
	}
	if err := setVocabulary(m, v, 3, Options{}); !errors.Is(err, gguf.ErrFormat) {
		t.Errorf("more tokens than rows: %v", err)
	}
}

// TestUserDefinedSpaces: in a GGUF file a user-defined token stands as it stands in text.
func TestUserDefinedSpaces(t *testing.T) {
	v := tokenizer.Vocab{
		Model: tokenizer.ModelBPE, RawText: true, Tokens: []string{"a", "▁", "▁▁", "▁▁▁▁", "▁a"},
		Types: []int32{1, 1, 4, 4, 1}, Merges: []string{"▁ a"}, BOS: -1, EOS: -1, UNK: -1, PAD: -1,
	}
	m := &gguf.Meta{}
	if err := setVocabulary(m, v, 5, Options{}); err != nil {
		t.Fatal(err)
	}
	m.Set("tokenizer.ggml.add_bos_token", false)
	got, err := vocab.FromModel(m, "")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "▁", "  ", "    ", "▁a"}; !slices.Equal(got.Tokens, want) || v.Tokens[2] != "▁▁" {
		t.Errorf("tokens %q, want %q", got.Tokens, want)
	}
	tok, err := tokenizer.New(got)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode("a       a", false, true)
	if err != nil || !slices.Equal(ids, []int{0, 3, 2, 4}) || tok.Decode(ids, true) != "a       a" {
		t.Errorf("ids %v, %v, text %q", ids, err, tok.Decode(ids, true))
	}
}

// TestScoresOfMerges: earlier merges get higher scores, so that SentencePiece's order of merging is that of the ranks.
func TestScoresOfMerges(t *testing.T) {
	v := tokenizer.Vocab{Tokens: []string{"a", "b", "ab", "abb", "bb"}, Merges: []string{"b b", "a b", "ab b", "a bb"}}
	if got := scoresOfMerges(v); !slices.Equal(got, []float32{-5, -5, -1, -2, 0}) {
		t.Errorf("scores %v", got)
	}
}

// TestPreName finds the named pre-tokenizer that cuts as a tokenizer.json's own expression does.
func TestPreName(t *testing.T) {
	tokens := make([]string, 0, 300)
	for b := range 256 {
		tokens = append(tokens, tokenizer.ToByteAlphabet(string([]byte{byte(b)})))
	}
	tokens = append(tokens, "33", "333", "3333", "Ġ3", "'t", "'T", "he", "\u010a\u010a", "!!", "..")
	base := tokenizer.Vocab{Model: tokenizer.ModelBPE, Tokens: tokens, BOS: -1, EOS: -1, UNK: -1, PAD: -1,
		Merges: []string{"3 3", "33 3", "33 33", "333 3", "Ġ 3", "' t", "' T", "h e", "\u010a \u010a", "! !", ". ."}}
	const llama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	split, err := tokenizer.SplitRegex(llama3, "Isolated", false)
	if err != nil {
		t.Fatal(err)
	}
	v := base
	v.Split = []tokenizer.PreTokenizer{split}
	if name := preName(v, Options{}); name != "llama-bpe" {
		t.Errorf("Llama 3's expression is named %q", name)
	}
	v = base
	v.Pre = "smollm"
	if name := preName(v, Options{}); name != "smollm" {
		t.Errorf("a named one became %q", name)
	}
	odd, err := tokenizer.SplitRegex(`3`, "Removed", false)
	if err != nil {
		t.Fatal(err)
	}
	v = base
	v.Split = []tokenizer.PreTokenizer{odd}
	said := 0
	if name := preName(v, Options{Notice: func(string) { said++ }}); name != "default" || said != 1 {
		t.Errorf("an odd one is named %q, %d notices", name, said)
	}
	v.Types = []int32{1}
	if name := preName(v, Options{Notice: func(string) { said++ }}); name != "default" || said != 2 {
		t.Errorf("a vocabulary that cannot be used is named %q, %d notices", name, said)
	}
}
