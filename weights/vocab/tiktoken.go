package vocab

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"

	"terrace/tokenizer"
)

// qwenPattern splits text for the first generation of Qwen; it is Qwen 2's.
const qwenPre = "qwen2"

// maxTiktokenBytes is the longest token: the published file's longest has 128.
const maxTiktokenBytes = 512

// parseTiktoken reads qwen.tiktoken, the vocabulary of the first Qwen models:
// lines of a token's bytes in base64 and its rank, which is its id. Merges are
// not listed: a pair merges when its joined bytes are a token, lowest rank
// first, so each token's merge is the pair that merging it alone ends in.
func parseTiktoken(data []byte, s *settings) (v tokenizer.Vocab, err error) {
	ranks := map[string]int{}
	var tokens []string
	for n := 1; len(data) > 0; n++ {
		line := data
		if end := bytes.IndexByte(data, '\n'); end >= 0 {
			line, data = data[:end], data[end+1:]
		} else {
			data = nil
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		token, err := tiktokenLine(line, len(tokens))
		if err != nil {
			return v, fmt.Errorf("line %d: %w", n, err)
		}
		if _, dup := ranks[token]; dup {
			return v, bad("line %d: token %.40q a second time", n, token)
		}
		ranks[token] = len(tokens)
		tokens = append(tokens, token)
	}
	v = tokenizer.Vocab{Model: tokenizer.ModelBPE, Pre: qwenPre, BOS: -1, EOS: -1, UNK: -1, PAD: -1}
	v.Normalize = []tokenizer.Normalizer{tokenizer.NFC()}
	if v.Merges, err = tiktokenMerges(tokens, ranks); err != nil {
		return v, err
	}
	for _, token := range tokens {
		v.Tokens = append(v.Tokens, tokenizer.ToByteAlphabet(token))
		v.Types = append(v.Types, tokenizer.TypeNormal)
	}
	special := func(text string) int {
		v.Tokens = append(v.Tokens, text)
		v.Types = append(v.Types, tokenizer.TypeControl)
		return len(v.Tokens) - 1
	}
	v.EOS = special("<|endoftext|>")
	special("<|im_start|>")
	v.EOG = []int{special("<|im_end|>")}
	for i := range 205 {
		special(fmt.Sprintf("<|extra_%d|>", i))
	}
	return v, nil
}

// tiktokenLine decodes "IQ== 0"; ranks run from 0 without a gap.
func tiktokenLine(line []byte, want int) (string, error) {
	text, rank, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return "", bad("want a token in base64 and its rank")
	}
	token, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || len(token) == 0 || len(token) > maxTiktokenBytes {
		return "", bad("a token that is not base64 of 1 to %d bytes", maxTiktokenBytes)
	}
	if id, err := strconv.Atoi(string(rank)); err != nil || id != want {
		return "", bad("rank %.20q, want %d", rank, want)
	}
	return string(token), nil
}

// tiktokenMerges derives the merge of every token of more than one byte, in
// rank order. A token that merging cannot reach has none.
func tiktokenMerges(tokens []string, ranks map[string]int) ([]string, error) {
	var merges []string
	for b := range 256 {
		if _, ok := ranks[string([]byte{byte(b)})]; !ok {
			return nil, bad("byte 0x%02X has no token", b)
		}
	}
	for rank, token := range tokens {
		if len(token) == 1 {
			continue
		}
		if parts := mergeBelow(token, rank, ranks); len(parts) == 2 {
			merges = append(merges, tokenizer.ToByteAlphabet(parts[0])+" "+tokenizer.ToByteAlphabet(parts[1]))
		}
	}
	return merges, nil
}

// mergeBelow merges the bytes of token by ranks below limit.
func mergeBelow(token string, limit int, ranks map[string]int) []string {
	cuts := make([]int, len(token)+1) // boundaries of the parts
	for i := range cuts {
		cuts[i] = i
	}
	for len(cuts) > 3 {
		best, at := limit, -1
		for i := 0; i+2 < len(cuts); i++ {
			if rank, ok := ranks[token[cuts[i]:cuts[i+2]]]; ok && rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			break
		}
		cuts = append(cuts[:at+1], cuts[at+2:]...)
	}
	parts := make([]string, len(cuts)-1)
	for i := range parts {
		parts[i] = token[cuts[i]:cuts[i+1]]
	}
	return parts
}
