package tokenizer

import (
	"fmt"
	"slices"
)

// validate checks that every list has the vocabulary's length and every id is
// inside it.
func (v *Vocab) validate() error {
	n := len(v.Tokens)
	bad := func(format string, args ...any) error {
		return fmt.Errorf("tokenizer: %s: %w", fmt.Sprintf(format, args...), ErrVocab)
	}
	switch v.Model {
	case ModelBPE, ModelSPM, ModelUnigram:
	default:
		return fmt.Errorf("tokenizer: model %q is none of bpe, spm, unigram: %w", v.Model, ErrUnsupported)
	}
	switch {
	case n == 0:
		return bad("the vocabulary has no tokens")
	case n > maxTokens:
		return bad("%d tokens, at most %d", n, maxTokens)
	case v.Types != nil && len(v.Types) != n:
		return bad("%d token types for %d tokens", len(v.Types), n)
	case v.Scores != nil && len(v.Scores) != n:
		return bad("%d token scores for %d tokens", len(v.Scores), n)
	case v.Scores == nil && v.Model != ModelBPE:
		return bad("a %s vocabulary without token scores", v.Model)
	}
	for _, special := range []struct {
		name string
		id   int
	}{{"BOS", v.BOS}, {"EOS", v.EOS}, {"UNK", v.UNK}, {"PAD", v.PAD}} {
		if special.id < -1 || special.id >= n {
			return bad("%s token id %d is out of range: the vocabulary has %d tokens", special.name, special.id, n)
		}
	}
	for name, list := range map[string][]int{"end-of-generation": v.EOG, "prefix": v.Prefix, "suffix": v.Suffix} {
		for _, id := range list {
			if id < 0 || id >= n {
				return bad("%s token id %d is out of range: the vocabulary has %d tokens", name, id, n)
			}
		}
	}
	for id := range v.Match {
		if id < 0 || id >= n {
			return bad("added token id %d is out of range: the vocabulary has %d tokens", id, n)
		}
	}
	if v.AddBOS && v.BOS < 0 {
		return bad("it adds BOS and has none")
	}
	if v.AddEOS && v.EOS < 0 {
		return bad("it adds EOS and has none")
	}
	return nil
}

// maxTokens bounds a vocabulary: the largest known ones have 262,144 tokens.
const maxTokens = 1 << 24

func (v *Vocab) typeOf(id int) TokenType {
	if v.Types == nil {
		return TypeNormal
	}
	return v.Types[id]
}

// ownText reports whether a token may repeat another's text: padding to a
// round size repeats placeholders, and an added token may shadow a normal one.
func (v *Vocab) ownText(id int) bool {
	return v.Tokens[id] == "" || v.typeOf(id) != TypeNormal
}

// endTexts are tokens that end a turn or a text wherever a vocabulary has
// them (llama.cpp's list, less those of models that use them otherwise).
var endTexts = []string{
	"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>",
	"<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>",
	"<turn|>", "<｜end▁of▁sentence｜>", "[e~[",
}

// controlTexts are tokens that llama.cpp treats as control tokens whatever type
// the file gives them, beside endTexts.
var controlTexts = []string{
	"</s>", "<|flush|>", "<|calls|>", "<|tool_response>",
	"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
	"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
	"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
	"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]",
	"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>",
}

// markControl gives the tokens of endTexts and controlTexts the type control,
// on a copy of the types.
func (v *Vocab) markControl(ids *tokenTable) {
	types := slices.Clone(v.Types)
	for _, list := range [][]string{endTexts, controlTexts} {
		for _, text := range list {
			if id := ids.find(text); id >= 0 {
				if types == nil {
					types = slices.Repeat([]int32{TypeNormal}, len(v.Tokens))
				}
				types[id] = TypeControl
			}
		}
	}
	v.Types = types
}

// endIDs gathers the ids that end a generation.
func (v *Vocab) endIDs(ids *tokenTable) map[int]bool {
	end := map[int]bool{}
	for _, text := range endTexts {
		if id := ids.find(text); id >= 0 {
			end[int(id)] = true
		}
	}
	// With the Harmony tokens, <|end|> only closes a message.
	ret, call := ids.find("<|return|>"), ids.find("<|call|>")
	if id := ids.find("<|end|>"); id >= 0 && ret >= 0 && call >= 0 {
		delete(end, int(id))
	}
	for _, id := range v.EOG {
		end[id] = true
	}
	if v.EOS >= 0 {
		end[v.EOS] = true
	}
	return end
}
