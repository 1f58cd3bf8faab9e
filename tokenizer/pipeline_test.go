package tokenizer

import (
	"math/rand/v2"
	"slices"
	"testing"

	sugarme "github.com/sugarme/tokenizer"
)

var (
	_ sugarme.Model        = pipelineModel{}
	_ sugarme.PreTokenizer = pipelineSplitter{}
	_ sugarme.Decoder      = pipelineDecoder{}
)

func TestPipelineEqualsEncode(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	spm, _ := spmVocab(r, ModelSPM, "abé\u2581")
	unigram, _ := spmVocab(r, ModelUnigram, "abé\u2581")
	for name, v := range map[string]Vocab{"bpe": small(), "spm": spm, "unigram": unigram} {
		tok := mustNew(t, v)
		p := tok.Pipeline()
		for _, text := range []string{"hello world", "a b  ab é z", "<b>he<s>l", "x", "hello's 12\n\n y"} {
			want, err := tok.Encode(text, false, true)
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.EncodeSingle(text)
			if err != nil {
				t.Fatalf("%s %q: %v", name, text, err)
			}
			if !slices.Equal(got.Ids, want) {
				t.Errorf("%s %q: got %q, want %q", name, text, texts(tok, got.Ids), texts(tok, want))
			}
			if name == "bpe" && text == "hello world" && !slices.Equal(got.Offsets[1], []int{5, 11}) {
				t.Errorf("offsets %v", got.Offsets)
			}
			if back := p.Decode(want, false); back != tok.Decode(want, true) {
				t.Errorf("%s: decoded %q, want %q", name, back, tok.Decode(want, true))
			}
		}
	}
	p := mustNew(t, small()).Pipeline()
	if p.GetVocabSize(false) != len(small().Tokens) || p.GetModel().Save("x") == nil {
		t.Error("the model behind the interfaces")
	}
}
