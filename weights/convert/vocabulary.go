package convert

import (
	"fmt"
	"slices"
	"strings"

	"terrace/tokenizer"
	"terrace/weights/gguf"
)

// ggufModels are the names of tokenizer.ggml.model.
var ggufModels = map[string]string{
	tokenizer.ModelBPE: "gpt2", tokenizer.ModelSPM: "llama", tokenizer.ModelUnigram: "t5",
}

// setVocabulary stores a vocabulary under GGUF's keys, filled up with unused tokens to the rows of the embedding.
func setVocabulary(meta *gguf.Meta, v tokenizer.Vocab, rows int, o Options) error {
	const prefix = "tokenizer.ggml."
	n := len(v.Tokens)
	if n > rows {
		return fmt.Errorf("convert: the vocabulary has %d tokens, the embedding %d rows: %w", n, rows, gguf.ErrFormat)
	}
	model := ggufModels[v.Model]
	tokens, types := slices.Clone(v.Tokens), slices.Clone(v.Types)
	scores := make([]float32, len(v.Scores))
	for id, s := range v.Scores {
		scores[id] = float32(s)
	}
	if types == nil {
		types = slices.Repeat([]int32{tokenizer.TypeNormal}, n)
	}
	if v.RawText {
		model, scores = "llama", scoresOfMerges(v)
	}
	if v.Model == tokenizer.ModelUnigram && v.UNK >= 0 {
		types[v.UNK] = tokenizer.TypeUnknown
	}
	if model != "gpt2" {
		plainSpaces(tokens, types)
	}
	for id := n; id < rows; id++ {
		tokens = append(tokens, fmt.Sprintf("[PAD%d]", id))
		types = append(types, tokenizer.TypeUnused)
	}
	meta.Set(prefix+"model", model)
	meta.Set(prefix+"tokens", tokens)
	meta.Set(prefix+"token_type", types)
	if model == "gpt2" {
		meta.Set(prefix+"pre", preName(v, o))
		meta.Set(prefix+"merges", v.Merges)
	} else {
		meta.Set(prefix+"scores", append(scores, make([]float32, rows-len(scores))...))
		meta.Set(prefix+"add_space_prefix", v.AddSpacePrefix)
	}
	for _, special := range []struct {
		name string
		id   int
	}{{"bos", v.BOS}, {"eos", v.EOS}, {"unknown", v.UNK}, {"padding", v.PAD}} {
		if special.id >= 0 {
			meta.Set(prefix+special.name+"_token_id", uint32(special.id))
		}
	}
	addBOS, addEOS := v.AddBOS, v.AddEOS
	if v.Prefix != nil || v.Suffix != nil {
		addBOS, addEOS = slices.Contains(v.Prefix, v.BOS) && v.BOS >= 0, slices.Contains(v.Suffix, v.EOS) && v.EOS >= 0
	}
	meta.Set(prefix+"add_bos_token", addBOS)
	meta.Set(prefix+"add_eos_token", addEOS)
	if len(v.EOG) > 0 {
		meta.Set(prefix+"eot_token_id", uint32(v.EOG[0]))
	}
	if v.ChatTemplate != "" {
		meta.Set("tokenizer.chat_template", v.ChatTemplate)
	}
	return nil
}

// plainSpaces writes U+2581 in user-defined tokens as a space: in GGUF files these tokens stand in the file as they stand in
// text, and are found there and printed so, while normal tokens write their spaces as U+2581.
func plainSpaces(tokens []string, types []int32) {
	for id, kind := range types {
		if kind == tokenizer.TypeUserDefined {
			tokens[id] = strings.ReplaceAll(tokens[id], "\u2581", " ")
		}
	}
}

// scoresOfMerges turns the merge ranks of a BPE over plain text (Gemma's tokenizer.json) into the scores of SentencePiece
// BPE, which merges the pair whose result has the highest score first: the earlier the merge, the higher the score.
func scoresOfMerges(v tokenizer.Vocab) []float32 {
	rank := make(map[string]int, len(v.Merges))
	for i, m := range v.Merges {
		result := strings.Replace(m, " ", "", 1)
		if _, known := rank[result]; !known {
			rank[result] = i
		}
	}
	scores := make([]float32, len(v.Tokens))
	for id, token := range v.Tokens {
		if i, ok := rank[token]; ok {
			scores[id] = -float32(i)
		} else {
			scores[id] = -float32(len(v.Merges) + 1)
		}
	}
	return scores
}

// preNames are the pre-tokenizers that are tried for a tokenizer.json, which describes its own instead of naming one.
var preNames = []string{"gpt-2", "llama-bpe", "qwen2", "smollm", "default", "dbrx", "gpt-4o", "tekken", "qwen35", "deepseek-llm", "deepseek-v3", "falcon"}

// probe has what pre-tokenizers cut differently: runs of digits, contractions in both cases, punctuation after letters and
// blanks, line ends, marks, scripts without spaces.
const probe = "Hello, y'all! How are you?? \n\n \n\t I'VE 3 33 333 3333 33333333 3.3 apples'they'll ............ " +
	"!!!!!!?????? é è ñ 我想在apple工作1314151天~  ------======= нещо на Български ''''''```````\"\"\"\"......!!! \r\n" +
	"  if x==1:\n\t\treturn FooBar_baz(9,10)  // ok\u2028 🚀 (normal) 😶‍🌫️ ✅ កាន់តែ a\u0301b \u00a0x CamelCaseHTTPServer"

// preName returns the name under which llama.cpp and we have the pre-tokenizer of v: the first that gives the same ids on the
// probe, as llama.cpp's converter finds it. Without one it is "default", and said.
func preName(v tokenizer.Vocab, o Options) string {
	if v.Pre != "" && v.Split == nil {
		return v.Pre
	}
	own, err := tokenizer.New(v)
	if err != nil {
		o.notice("the tokenizer cannot be tried (%v): the file names the pre-tokenizer \"default\"", err)
		return "default"
	}
	want, err := own.Encode(probe, false, false)
	if err == nil {
		for _, name := range preNames {
			named := v
			named.Pre, named.Split, named.Normalize = name, nil, nil
			t, err := tokenizer.New(named)
			if err != nil {
				continue
			}
			if got, err := t.Encode(probe, false, false); err == nil && slices.Equal(got, want) {
				return name
			}
		}
	}
	o.notice("no named pre-tokenizer cuts text as this model's tokenizer.json does: the file names \"default\", token ids may differ")
	return "default"
}
