package convert

import (
	"fmt"

	"terrace/tokenizer"
	"terrace/weights/gguf"
)

// byteVocabulary stores the tokenizer of a random model: byte-level BPE with one token a byte, <s> and </s>, as many merges
// of two lower-case letters as fit, and unused tokens up to n.
func byteVocabulary(m *gguf.Meta, n int) {
	tokens := make([]string, 0, n)
	types := make([]int32, 0, n)
	add := func(text string, kind int32) {
		tokens, types = append(tokens, text), append(types, kind)
	}
	for b := range 256 {
		add(tokenizer.ToByteAlphabet(string([]byte{byte(b)})), tokenizer.TypeNormal)
	}
	add("<s>", tokenizer.TypeControl)
	add("</s>", tokenizer.TypeControl)
	var merges []string
	for pair := 0; pair < 26*26 && len(tokens) < n; pair++ {
		a, b := string(rune('a'+pair/26)), string(rune('a'+pair%26))
		merges = append(merges, a+" "+b)
		add(a+b, tokenizer.TypeNormal)
	}
	for len(tokens) < n {
		add(fmt.Sprintf("[PAD%d]", len(tokens)), tokenizer.TypeUnused)
	}
	m.Set("tokenizer.ggml.model", "gpt2")
	m.Set("tokenizer.ggml.pre", "gpt-2")
	m.Set("tokenizer.ggml.tokens", tokens)
	m.Set("tokenizer.ggml.token_type", types)
	m.Set("tokenizer.ggml.merges", merges)
	m.Set("tokenizer.ggml.bos_token_id", uint32(256))
	m.Set("tokenizer.ggml.eos_token_id", uint32(257))
	m.Set("tokenizer.ggml.add_bos_token", true)
}
