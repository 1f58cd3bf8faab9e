package vocab

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"terrace/tokenizer"
)

// parseVocabJSON reads the older pair of files, vocab.json (token → id) and
// merges.txt, that OPT and others come with: byte-level BPE, cut as the
// tokenizer's class cuts. There is no list of added tokens; those that the
// settings name are special.
func parseVocabJSON(data, merges []byte, s *settings) (v tokenizer.Vocab, err error) {
	v = tokenizer.Vocab{Model: tokenizer.ModelBPE, BOS: -1, EOS: -1, UNK: -1, PAD: -1}
	root, err := parseObject("vocab.json", data)
	if err != nil {
		return v, err
	}
	ids := make(map[string]int, len(root.values))
	for text, value := range root.values {
		if ids[text], err = root.integer(fmt.Sprintf("id of token %.40q:", text), value); err != nil {
			return v, err
		}
	}
	added := s.added
	for _, name := range specialNames {
		text := s.names[name]
		if id, ok := ids[text]; ok && text != "" {
			added = append(added, addedToken{id: id, text: text, special: true})
		}
	}
	for text, value := range s.addedJSON.values {
		id, err := s.addedJSON.integer("id of "+text, value)
		if err != nil {
			return v, err
		}
		added = append(added, addedToken{id: id, text: text})
	}
	if err := placeTokens(&v, ids, added); err != nil {
		return v, err
	}
	if v.Merges, err = parseMergesText(merges); err != nil {
		return v, err
	}
	return v, classPattern(&v, s)
}

// classPattern sets how a tokenizer class without a tokenizer.json cuts text.
func classPattern(v *tokenizer.Vocab, s *settings) error {
	switch strings.TrimSuffix(s.className, "Fast") {
	case "Qwen2Tokenizer":
		v.Pre, v.Normalize = "qwen2", []tokenizer.Normalizer{tokenizer.NFC()}
		return nil
	case "", "GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "PreTrainedTokenizer":
	default:
		return fmt.Errorf("tokenizer_class %q with vocab.json is not supported: %w", s.className, tokenizer.ErrUnsupported)
	}
	prefix, err := s.config.is("add_prefix_space", false)
	v.Split = []tokenizer.PreTokenizer{tokenizer.ByteLevel(prefix, true)}
	return err
}

// parseMergesText reads merges.txt: a pair a line after an optional line with
// the version.
func parseMergesText(data []byte) ([]string, error) {
	if !utf8.Valid(data) {
		return nil, bad("merges.txt is not valid UTF-8")
	}
	merges := []string{}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || n == 1 && strings.HasPrefix(line, "#version") {
			continue
		}
		if parts := strings.Split(line, " "); len(parts) != 2 || parts[0] == "" || parts[1] == "" {
			return nil, bad("merges.txt line %d: merge %.80q is not two tokens", n, line)
		}
		merges = append(merges, line)
	}
	return merges, nil
}
