package vocab

import (
	"encoding/base64"
	"fmt"

	"terrace/tokenizer"
)

// components reads the parts of tokenizer.json around the model.
type components struct {
	root      object
	byteLevel bool // a ByteLevel pre-tokenizer: tokens are in GPT-2's byte alphabet
}

// maxParts bounds the members of all sequences together.
const maxParts = 64

// each calls read for a component, or for the members of a Sequence, whose list
// is named parts.
func each(o object, parts string, left *int, read func(kind string, o object) error) error {
	kind, err := o.text("type")
	if err != nil {
		return err
	}
	if *left--; *left < 0 {
		return bad("%s: more than %d parts", o.where, maxParts)
	}
	if kind != "Sequence" {
		return read(kind, object{o.where + " " + kind, o.values})
	}
	list, err := o.list(parts)
	if err != nil {
		return err
	}
	for i, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			return bad("%s: part %d is not an object", o.where, i)
		}
		if err := each(object{o.where, m}, parts, left, read); err != nil {
			return err
		}
	}
	return nil
}

func (c *components) walk(name, parts string, read func(kind string, o object) error) error {
	o, ok, err := c.root.sub(name)
	if err != nil || !ok {
		return err
	}
	left := maxParts
	return each(o, parts, &left, read)
}

func unsupported(o object, kind string) error {
	return fmt.Errorf("%s: type %q is not supported: %w", o.where, kind, tokenizer.ErrUnsupported)
}

func (c *components) normalizers() (list []tokenizer.Normalizer, err error) {
	err = c.walk("normalizer", "normalizers", func(kind string, o object) error {
		n, err := normalizer(kind, o)
		if err == nil {
			list = append(list, n)
		}
		return err
	})
	return list, err
}

func normalizer(kind string, o object) (n tokenizer.Normalizer, err error) {
	switch kind {
	case "NFC":
		return tokenizer.NFC(), nil
	case "NFD":
		return tokenizer.NFD(), nil
	case "NFKC":
		return tokenizer.NFKC(), nil
	case "NFKD":
		return tokenizer.NFKD(), nil
	case "Lowercase":
		return tokenizer.Lowercase(), nil
	case "StripAccents":
		return tokenizer.StripAccents(), nil
	case "Strip":
		left, err := o.is("strip_left", true)
		if err != nil {
			return n, err
		}
		right, err := o.is("strip_right", true)
		return tokenizer.Strip(left, right), err
	case "Prepend":
		text, err := o.text("prepend")
		return tokenizer.Prepend(text), err
	case "Precompiled":
		text, err := o.text("precompiled_charsmap")
		if err != nil {
			return n, err
		}
		blob, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return n, bad("%s: precompiled_charsmap is not base64", o.where)
		}
		return tokenizer.Precompiled(blob)
	case "Replace":
		literal, regex, err := o.pattern()
		if err != nil {
			return n, err
		}
		with, err := o.text("content")
		if err != nil {
			return n, err
		}
		if regex != "" {
			return tokenizer.ReplaceRegex(regex, with)
		}
		return tokenizer.Replace(literal, with), nil
	}
	return n, unsupported(o, kind)
}

// pattern reads {"String": …} or {"Regex": …}.
func (o object) pattern() (literal, regex string, err error) {
	p, ok, err := o.sub("pattern")
	if err != nil {
		return "", "", err
	}
	if !ok {
		return "", "", bad("%s: no pattern", o.where)
	}
	if literal, err = p.text("String"); err == nil {
		regex, err = p.text("Regex")
	}
	if err == nil && (literal == "") == (regex == "") {
		err = bad("%s: the pattern is neither a String nor a Regex", o.where)
	}
	return literal, regex, err
}

func (c *components) preTokenizers() ([]tokenizer.PreTokenizer, error) {
	list := []tokenizer.PreTokenizer{} // not nil: the model's own splitting, even when it is none
	err := c.walk("pre_tokenizer", "pretokenizers", func(kind string, o object) error {
		p, err := preTokenizer(kind, o)
		if err == nil {
			list = append(list, p)
			c.byteLevel = c.byteLevel || kind == "ByteLevel"
		}
		return err
	})
	return list, err
}

func preTokenizer(kind string, o object) (p tokenizer.PreTokenizer, err error) {
	switch kind {
	case "ByteLevel":
		prefix, err := o.is("add_prefix_space", true)
		if err != nil {
			return p, err
		}
		regex, err := o.is("use_regex", true)
		return tokenizer.ByteLevel(prefix, regex), err
	case "Digits":
		individual, err := o.is("individual_digits", false)
		return tokenizer.Digits(individual), err
	case "Whitespace":
		return tokenizer.Whitespace(), nil
	case "WhitespaceSplit":
		return tokenizer.WhitespaceSplit(), nil
	case "Punctuation":
		then, err := o.text("behavior")
		if err != nil {
			return p, err
		}
		if then == "" {
			then = "Isolated"
		}
		return tokenizer.Punctuation(then)
	case "Metaspace":
		return metaspace(o)
	case "Split":
		return split(o)
	}
	return p, unsupported(o, kind)
}

func metaspace(o object) (p tokenizer.PreTokenizer, err error) {
	replacement, scheme, err := o.metaspace()
	if err != nil {
		return p, err
	}
	cut, err := o.is("split", true)
	return tokenizer.Metaspace(replacement, scheme, cut), err
}

// metaspace reads what the pre-tokenizer and the decoder of that name share.
func (o object) metaspace() (replacement, scheme string, err error) {
	if replacement, err = o.text("replacement"); err != nil {
		return "", "", err
	}
	if replacement == "" {
		replacement = "\u2581"
	}
	if scheme, err = o.text("prepend_scheme"); err != nil {
		return "", "", err
	}
	if scheme == "" {
		always, err := o.is("add_prefix_space", true)
		if err != nil {
			return "", "", err
		}
		if scheme = "never"; always {
			scheme = "always"
		}
	}
	return replacement, scheme, nil
}

func split(o object) (p tokenizer.PreTokenizer, err error) {
	literal, regex, err := o.pattern()
	if err != nil {
		return p, err
	}
	then, err := o.text("behavior")
	if err != nil {
		return p, err
	}
	invert, err := o.is("invert", false)
	if err != nil {
		return p, err
	}
	if regex != "" {
		return tokenizer.SplitRegex(regex, then, invert)
	}
	return tokenizer.SplitString(literal, then, invert)
}

// decoding reads the decoder; nil when there is none.
func (c *components) decoding() (*tokenizer.Decoding, error) {
	if _, ok, err := c.root.sub("decoder"); err != nil || !ok {
		return nil, err
	}
	d := &tokenizer.Decoding{Added: true}
	err := c.walk("decoder", "decoders", func(kind string, o object) error {
		switch kind {
		case "ByteLevel":
			d.ByteLevel = true
		case "ByteFallback":
			d.Bytes = true
		case "Fuse":
		case "Replace":
			literal, _, err := o.pattern()
			if with, _ := o.text("content"); err == nil && literal == "\u2581" && with == " " {
				d.Spaces = true
				return nil
			}
			return unsupported(o, "Replace other than of U+2581 by a space")
		case "Metaspace":
			replacement, scheme, err := o.metaspace()
			if err != nil {
				return err
			}
			if replacement != "\u2581" {
				return unsupported(o, "Metaspace of "+replacement)
			}
			d.Spaces, d.DropFirst = true, scheme != "never"
		case "Strip":
			content, err := o.text("content")
			if err != nil {
				return err
			}
			start, err := o.integer("start", o.values["start"])
			if err != nil {
				return err
			}
			if content != " " || start < 0 {
				return unsupported(o, "Strip of "+content)
			}
			d.StripLeft = start
		default:
			return unsupported(o, kind)
		}
		return nil
	})
	return d, err
}

// postProcessor reads which ids stand around a text.
func (c *components) postProcessor(v *tokenizer.Vocab) error {
	return c.walk("post_processor", "processors", func(kind string, o object) error {
		switch kind {
		case "ByteLevel":
			return nil
		case "TemplateProcessing":
			return templateProcessing(v, o)
		case "BertProcessing", "RobertaProcessing":
			cls, err := o.pairID("cls", v)
			if err != nil {
				return err
			}
			sep, err := o.pairID("sep", v)
			v.Prefix, v.Suffix = []int{cls}, []int{sep}
			return err
		}
		return unsupported(o, kind)
	})
}

// pairID reads ["<s>", 0].
func (o object) pairID(name string, v *tokenizer.Vocab) (int, error) {
	pair, err := o.list(name)
	if err != nil || len(pair) != 2 {
		return 0, bad("%s: %s is not a token with its id", o.where, name)
	}
	id, err := o.integer(name, pair[1])
	if err == nil && (id < 0 || id >= len(v.Tokens)) {
		err = bad("%s: %s id %d is out of range", o.where, name, id)
	}
	return id, err
}

// aroundMost is how many tokens may stand before a text, and behind it.
const aroundMost = 1024

func templateProcessing(v *tokenizer.Vocab, o object) error {
	single, err := o.list("single")
	if err != nil {
		return err
	}
	special, _, err := o.sub("special_tokens")
	if err != nil {
		return err
	}
	v.Prefix, v.Suffix = []int{}, []int{}
	dst := &v.Prefix
	for i, item := range single {
		m, _ := item.(map[string]any)
		entry := object{fmt.Sprintf("%s part %d", o.where, i), m}
		if _, ok := m["Sequence"]; ok {
			dst = &v.Suffix
			continue
		}
		token, ok, err := entry.sub("SpecialToken")
		if err != nil || !ok {
			return bad("%s: neither a SpecialToken nor a Sequence", entry.where)
		}
		name, err := token.text("id")
		if err != nil {
			return err
		}
		known, ok, err := special.sub(name)
		if err != nil || !ok {
			return bad("%s: special token %.40q is not listed", o.where, name)
		}
		ids, err := known.idList("ids")
		if err != nil {
			return err
		}
		for _, id := range ids {
			if id >= len(v.Tokens) {
				return bad("%s: id %d of %.40q is out of range", o.where, id, name)
			}
		}
		if *dst = append(*dst, ids...); len(*dst) > aroundMost {
			return bad("%s: more than %d tokens stand beside the text", o.where, aroundMost)
		}
	}
	return nil
}
