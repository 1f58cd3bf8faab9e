package vocab

import (
	"fmt"
	"slices"

	"terrace/tokenizer"
)

// wordPieceJSON reads BERT's vocabulary from tokenizer.json alone, as transformers 5 saves it; the names of special tokens are those of
// tokenizer_config.json. What NewWordPiece cannot do as the file says is refused by name.
func wordPieceJSON(v *tokenizer.WordPieceVocab, data []byte, config object) error {
	top, err := parseObject("tokenizer.json", data)
	if err != nil {
		return err
	}
	model, ok, err := top.sub("model")
	if err != nil || !ok {
		return bad("%s: model is missing", top.where)
	}
	if err := wordPieceModel(v, model); err != nil {
		return err
	}
	added, err := top.list("added_tokens")
	if err != nil {
		return err
	}
	for i, item := range added {
		m, _ := item.(map[string]any)
		if err := addWordPiece(v, object{fmt.Sprintf("%s added_tokens %d", top.where, i), m}); err != nil {
			return err
		}
	}
	if i := slices.Index(v.Tokens, ""); i >= 0 {
		return bad("%s: no token has the id %d", top.where, i)
	}
	if err := bertNormalizer(v, top); err != nil {
		return err
	}
	if err := kindOf(top, "pre_tokenizer", "BertPreTokenizer"); err != nil {
		return err
	}
	if v.Unknown, err = model.text("unk_token"); err != nil {
		return err
	}
	return bertAround(v, top, config)
}

// wordPieceModel fills the tokens.
func wordPieceModel(v *tokenizer.WordPieceVocab, model object) error {
	kind, err := model.text("type")
	if err != nil {
		return err
	}
	if kind != "WordPiece" {
		return fmt.Errorf("%s: type %q: want WordPiece: %w", model.where, kind, tokenizer.ErrUnsupported)
	}
	prefix, err := model.text("continuing_subword_prefix")
	if err != nil {
		return err
	}
	if prefix != "##" {
		return fmt.Errorf("%s: continuing_subword_prefix %q: want ##: %w", model.where, prefix, tokenizer.ErrUnsupported)
	}
	if most, given := model.values["max_input_chars_per_word"]; given {
		if n, err := model.integer("max_input_chars_per_word", most); err != nil || n != tokenizer.MaxWordRunes {
			return fmt.Errorf("%s: max_input_chars_per_word %v: want %d: %w", model.where, most, tokenizer.MaxWordRunes, tokenizer.ErrUnsupported)
		}
	}
	vocab, ok, err := model.sub("vocab")
	if err != nil || !ok {
		return bad("%s: vocab is missing", model.where)
	}
	v.Tokens = make([]string, len(vocab.values))
	for text, value := range vocab.values {
		if err := putWordPiece(v, vocab, text, value); err != nil {
			return err
		}
	}
	return nil
}

// putWordPiece gives a token its id, at most one behind those that there are.
func putWordPiece(v *tokenizer.WordPieceVocab, o object, text string, value any) error {
	id, err := o.integer("id", value)
	switch {
	case err != nil:
		return err
	case text == "":
		return bad("%s: token %d has no text", o.where, id)
	case id < 0 || id > len(v.Tokens):
		return bad("%s: id %d of %.40q: ids want to be 0 to %d", o.where, id, text, len(v.Tokens)-1)
	case id == len(v.Tokens):
		v.Tokens = append(v.Tokens, text)
	case v.Tokens[id] != "" && v.Tokens[id] != text:
		return bad("%s: id %d is %.40q and %.40q", o.where, id, v.Tokens[id], text)
	}
	v.Tokens[id] = text
	return nil
}

// addWordPiece takes in a token that is found in text as it stands.
func addWordPiece(v *tokenizer.WordPieceVocab, o object) error {
	text, err := o.text("content")
	if err != nil {
		return err
	}
	if err := putWordPiece(v, o, text, o.values["id"]); err != nil {
		return err
	}
	for _, name := range []string{"single_word", "lstrip", "rstrip", "normalized"} {
		if on, err := o.is(name, false); err != nil || on {
			return fmt.Errorf("%s: %s of %.40q: want false: %w", o.where, name, text, tokenizer.ErrUnsupported)
		}
	}
	v.Special = append(v.Special, text)
	return nil
}

// kindOf checks the type of a part.
func kindOf(top object, part, want string) error {
	o, _, err := top.sub(part)
	if err != nil {
		return err
	}
	if kind, err := o.text("type"); err != nil || kind != want {
		return fmt.Errorf("%s: %s is %q: want %s: %w", top.where, part, kind, want, tokenizer.ErrUnsupported)
	}
	return nil
}

// bertNormalizer reads what becomes of letters.
func bertNormalizer(v *tokenizer.WordPieceVocab, top object) error {
	if err := kindOf(top, "normalizer", "BertNormalizer"); err != nil {
		return err
	}
	o, _, err := top.sub("normalizer")
	if err != nil {
		return err
	}
	if clean, err := o.is("clean_text", true); err != nil || !clean {
		return fmt.Errorf("%s: clean_text: want true: %w", o.where, tokenizer.ErrUnsupported)
	}
	lower, err := o.is("lowercase", true)
	if err != nil {
		return err
	}
	strip, err := o.is("strip_accents", lower)
	if err != nil {
		return err
	}
	chinese, err := o.is("handle_chinese_chars", true)
	v.Cased, v.KeepAccents, v.JoinCJK = !lower, !strip, !chinese
	return err
}

// bertAround reads what stands around a text: one token before and one behind.
func bertAround(v *tokenizer.WordPieceVocab, top, config object) error {
	o, given, err := top.sub("post_processor")
	if err != nil {
		return err
	}
	if !given { // then the tokenizer's class says so
		for name, to := range map[string]*string{"cls_token": &v.Start, "sep_token": &v.End} {
			if *to, _, err = config.tokenText(name); err != nil {
				return err
			}
		}
		return nil
	}
	around := tokenizer.Vocab{Tokens: v.Tokens}
	c := components{root: top}
	if err := c.postProcessor(&around); err != nil {
		return err
	}
	if len(around.Prefix) != 1 || len(around.Suffix) != 1 {
		return fmt.Errorf("%s: %d tokens before a text and %d behind it: want one each: %w", o.where, len(around.Prefix), len(around.Suffix), tokenizer.ErrUnsupported)
	}
	v.Start, v.End = v.Tokens[around.Prefix[0]], v.Tokens[around.Suffix[0]]
	return nil
}
