package vocab

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"terrace/tokenizer"
)

// parseTokenizerJSON reads Hugging Face's tokenizer.json.
func parseTokenizerJSON(data []byte, s *settings) (v tokenizer.Vocab, err error) {
	root, err := parseObject("tokenizer", data)
	if err != nil {
		return v, err
	}
	model, ok, err := root.sub("model")
	if err != nil {
		return v, err
	}
	if !ok {
		return v, bad("tokenizer: no model")
	}
	v = tokenizer.Vocab{BOS: -1, EOS: -1, UNK: -1, PAD: -1}
	added, err := root.addedList()
	if err != nil {
		return v, err
	}
	for _, a := range s.added { // tokens that only tokenizer_config.json lists
		if !slices.ContainsFunc(added, func(b addedToken) bool { return b.id == a.id }) {
			added = append(added, a)
		}
	}
	if err := readModel(&v, model, added); err != nil {
		return v, err
	}
	c := components{root: root}
	if v.Normalize, err = c.normalizers(); err != nil {
		return v, err
	}
	if v.Split, err = c.preTokenizers(); err != nil {
		return v, err
	}
	if v.Decode, err = c.decoding(); err != nil {
		return v, err
	}
	v.RawText = v.Model == tokenizer.ModelBPE && !c.byteLevel
	return v, c.postProcessor(&v)
}

// modelKind tells the model of a file, of an old one without a type by what it
// holds.
func modelKind(model object) (string, error) {
	kind, err := model.text("type")
	if err != nil || kind != "" {
		return kind, err
	}
	if _, list := model.values["vocab"].([]any); list {
		return "Unigram", nil
	}
	if _, merges := model.values["merges"]; merges {
		return "BPE", nil
	}
	return "", nil
}

func readModel(v *tokenizer.Vocab, model object, added []addedToken) error {
	kind, err := modelKind(model)
	if err != nil {
		return err
	}
	switch kind {
	case "BPE":
		return readBPE(v, model, added)
	case "Unigram":
		return readUnigram(v, model, added)
	}
	return fmt.Errorf("tokenizer model %q is unknown; known are BPE and Unigram: %w", kind, tokenizer.ErrUnsupported)
}

func readBPE(v *tokenizer.Vocab, model object, added []addedToken) error {
	v.Model = tokenizer.ModelBPE
	vocab, ok, err := model.sub("vocab")
	if err != nil || !ok {
		return bad("tokenizer model BPE: vocab is not an object of ids")
	}
	ids := make(map[string]int, len(vocab.values))
	for text, value := range vocab.values {
		if ids[text], err = vocab.integer(fmt.Sprintf("id of token %.40q:", text), value); err != nil {
			return err
		}
	}
	if err := placeTokens(v, ids, added); err != nil {
		return err
	}
	for _, part := range []string{"continuing_subword_prefix", "end_of_word_suffix"} {
		if text, err := model.text(part); err != nil || text != "" {
			return fmt.Errorf("tokenizer model BPE: %s %q is not supported: %w", part, text, tokenizer.ErrUnsupported)
		}
	}
	if v.IgnoreMerges, err = model.is("ignore_merges", false); err != nil {
		return err
	}
	if v.FuseUnknown, err = model.is("fuse_unk", false); err != nil {
		return err
	}
	fallback, err := model.is("byte_fallback", false)
	if err != nil {
		return err
	}
	v.NoByteFallback = !fallback
	if err := readUnknown(v, model, ids); err != nil {
		return err
	}
	return readMerges(v, model)
}

func readUnknown(v *tokenizer.Vocab, model object, ids map[string]int) error {
	unk, err := model.text("unk_token")
	if err != nil || unk == "" {
		return err
	}
	id, ok := ids[unk]
	if !ok {
		for i, text := range v.Tokens {
			if text == unk {
				id, ok = i, true
			}
		}
	}
	if !ok {
		return bad("tokenizer model: unk_token %.40q is not in the vocabulary", unk)
	}
	v.UNK, v.EmitUnknown = id, true
	return nil
}

func readMerges(v *tokenizer.Vocab, model object) error {
	list, err := model.list("merges")
	if err != nil {
		return err
	}
	v.Merges = make([]string, len(list))
	for i, item := range list {
		switch m := item.(type) {
		case string:
			if parts := strings.Split(m, " "); len(parts) != 2 || parts[0] == "" || parts[1] == "" {
				return bad("tokenizer model: merge %d %.80q is not two tokens", i, m)
			}
			v.Merges[i] = m
		case []any:
			left, right, ok := pairOf(m)
			if !ok {
				return bad("tokenizer model: merge %d is not a pair of tokens", i)
			}
			if strings.Contains(left+right, " ") {
				return fmt.Errorf("tokenizer model: merge %d %.40q %.40q: tokens with a space in them are not supported: %w", i, left, right, tokenizer.ErrUnsupported)
			}
			v.Merges[i] = left + " " + right
		default:
			return bad("tokenizer model: merge %d is neither a string nor a pair", i)
		}
	}
	return nil
}

func pairOf(m []any) (left, right string, ok bool) {
	if len(m) != 2 {
		return "", "", false
	}
	left, ok1 := m[0].(string)
	right, ok2 := m[1].(string)
	return left, right, ok1 && ok2 && left != "" && right != ""
}

func readUnigram(v *tokenizer.Vocab, model object, added []addedToken) error {
	v.Model = tokenizer.ModelUnigram
	list, err := model.list("vocab")
	if err != nil {
		return err
	}
	ids := make(map[string]int, len(list))
	scores := make([]float64, len(list))
	for i, item := range list {
		pair, _ := item.([]any)
		if len(pair) != 2 {
			return bad("tokenizer model Unigram: entry %d is not a token with a score", i)
		}
		text, ok1 := pair[0].(string)
		number, ok2 := pair[1].(json.Number)
		score, err := number.Float64()
		if !ok1 || !ok2 || err != nil {
			return bad("tokenizer model Unigram: entry %d is not a token with a score", i)
		}
		if _, dup := ids[text]; dup {
			return bad("tokenizer model Unigram: token %.40q is in the vocabulary twice", text)
		}
		ids[text], scores[i] = i, score
	}
	if err := placeTokens(v, ids, added); err != nil {
		return err
	}
	v.Scores = append(scores, make([]float64, len(v.Tokens)-len(scores))...)
	fallback, err := model.is("byte_fallback", false)
	if err != nil {
		return err
	}
	v.NoByteFallback = !fallback
	if value := model.values["unk_id"]; value != nil {
		if v.UNK, err = model.integer("unk_id", value); err != nil {
			return err
		}
		if v.UNK < 0 || v.UNK >= len(v.Tokens) {
			return bad("tokenizer model Unigram: unk_id %d is out of range, the vocabulary has %d tokens", v.UNK, len(v.Tokens))
		}
	}
	return nil
}

// placeTokens lays tokens out by id and marks the added ones. Ids may leave
// gaps, but not more of them than there are tokens: nothing is allocated by an
// id alone.
func placeTokens(v *tokenizer.Vocab, ids map[string]int, added []addedToken) error {
	size := 0
	limit := 2*(len(ids)+len(added)) + 1<<14
	note := func(text string, id int) error {
		if id < 0 || id >= limit {
			return bad("tokenizer vocab: id %d of token %.40q is out of range for %d tokens", id, text, len(ids)+len(added))
		}
		size = max(size, id+1)
		return nil
	}
	for text, id := range ids {
		if err := note(text, id); err != nil {
			return err
		}
	}
	for _, a := range added {
		if err := note(a.text, a.id); err != nil {
			return err
		}
	}
	v.Tokens = make([]string, size)
	v.Types = make([]tokenizer.TokenType, size)
	for i := range v.Types {
		v.Types[i] = tokenizer.TypeUnused
	}
	for text, id := range ids {
		if v.Types[id] != tokenizer.TypeUnused {
			return bad("tokenizer vocab: tokens %.40q and %.40q have the same id %d", v.Tokens[id], text, id)
		}
		v.Tokens[id], v.Types[id] = text, tokenizer.TypeNormal
	}
	v.Outside = map[int]bool{}
	for _, a := range added {
		if v.Types[a.id] == tokenizer.TypeUnused {
			v.Outside[a.id] = true
		}
		markAdded(v, a)
	}
	return nil
}

// markAdded places one added token over what the vocabulary has at its id.
func markAdded(v *tokenizer.Vocab, a addedToken) {
	v.Tokens[a.id] = a.text
	v.Types[a.id] = tokenizer.TypeUserDefined
	if a.special {
		v.Types[a.id] = tokenizer.TypeControl
		// Files of old converters say "normalized" of <s> and </s>; the classes
		// that load them find these in the text as it stands.
		a.match.Normalized = false
	}
	if a.match != (tokenizer.Match{}) {
		if v.Match == nil {
			v.Match = map[int]tokenizer.Match{}
		}
		v.Match[a.id] = a.match
	}
}
