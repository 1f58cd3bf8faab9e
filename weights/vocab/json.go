package vocab

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"terrace/tokenizer"
	"terrace/weights/strictjson"
)

// object is a JSON object of settings and where it came from.
type object struct {
	where  string
	values map[string]any
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), tokenizer.ErrVocab)
}

// parseObject reads one JSON object and nothing after it.
func parseObject(where string, data []byte) (object, error) {
	m, err := strictjson.Object(data)
	if err != nil {
		return object{}, bad("%s: %v", where, err)
	}
	return object{where, m}, nil
}

// sub returns an object inside o; absent and null are ok = false.
func (o object) sub(name string) (object, bool, error) {
	switch v := o.values[name].(type) {
	case nil:
		return object{}, false, nil
	case map[string]any:
		return object{o.where + " " + name, v}, true, nil
	default:
		return object{}, false, bad("%s: %s is not an object", o.where, name)
	}
}

// list returns a list inside o, nil when absent or null.
func (o object) list(name string) ([]any, error) {
	switch v := o.values[name].(type) {
	case nil:
		return nil, nil
	case []any:
		return v, nil
	default:
		return nil, bad("%s: %s is not a list", o.where, name)
	}
}

// text returns a string inside o; absent and null are "".
func (o object) text(name string) (string, error) {
	switch v := o.values[name].(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	default:
		return "", bad("%s: %s is not a string", o.where, name)
	}
}

// flag returns a truth value, nil when absent or null.
func (o object) flag(name string) (*bool, error) {
	switch v := o.values[name].(type) {
	case nil:
		return nil, nil
	case bool:
		return &v, nil
	default:
		return nil, bad("%s: %s is not true or false", o.where, name)
	}
}

// is returns a truth value, otherwise when absent.
func (o object) is(name string, otherwise bool) (bool, error) {
	v, err := o.flag(name)
	if v == nil {
		return otherwise, err
	}
	return *v, err
}

// tokenText reads a special token: a string, or an object with its content.
func (o object) tokenText(name string) (text string, ok bool, err error) {
	switch v := o.values[name].(type) {
	case nil:
		return "", false, nil
	case string:
		return v, true, nil
	case map[string]any:
		text, ok = v["content"].(string)
	}
	if !ok {
		err = bad("%s: %s is neither a string nor an object with a content", o.where, name)
	}
	return text, ok, err
}

// idList reads an id or a list of ids; nil when absent or null.
func (o object) idList(name string) ([]int, error) {
	var items []any
	switch v := o.values[name].(type) {
	case nil:
		return nil, nil
	case []any:
		items = v
	default:
		items = []any{v}
	}
	ids := []int{}
	for _, item := range items {
		id, err := o.integer(name, item)
		if err != nil {
			return nil, err
		}
		if id < 0 {
			continue // -1 is written for "none"
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (o object) integer(name string, v any) (int, error) {
	number, ok := v.(json.Number)
	if !ok {
		return 0, bad("%s: %s is not an integer", o.where, name)
	}
	id, err := strconv.ParseInt(number.String(), 10, 32)
	if err != nil {
		return 0, bad("%s: %s %s is not an integer in range", o.where, name, number)
	}
	return int(id), nil
}

// addedToken is a token that is found in text before anything is split.
type addedToken struct {
	id      int
	text    string
	special bool
	match   tokenizer.Match
}

func (o object) addedToken(id int) (addedToken, error) {
	a := addedToken{id: id}
	var err error
	if a.text, err = o.text("content"); err != nil {
		return a, err
	}
	for _, f := range []struct {
		name string
		dst  *bool
	}{
		{"special", &a.special}, {"lstrip", &a.match.LStrip}, {"rstrip", &a.match.RStrip},
		{"single_word", &a.match.SingleWord}, {"normalized", &a.match.Normalized},
	} {
		if *f.dst, err = o.is(f.name, false); err != nil {
			return a, err
		}
	}
	return a, nil
}

// addedList reads tokenizer.json's added_tokens.
func (o object) addedList() ([]addedToken, error) {
	list, err := o.list("added_tokens")
	if err != nil {
		return nil, err
	}
	var added []addedToken
	for i, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, bad("%s: added token %d is not an object", o.where, i)
		}
		entry := object{fmt.Sprintf("%s added token %d", o.where, i), m}
		id, err := entry.integer("id", m["id"])
		if err != nil {
			return nil, err
		}
		a, err := entry.addedToken(id)
		if err != nil {
			return nil, err
		}
		added = append(added, a)
	}
	return added, nil
}

// addedDecoder reads tokenizer_config.json's added_tokens_decoder: id → token.
func (o object) addedDecoder() ([]addedToken, error) {
	decoder, ok, err := o.sub("added_tokens_decoder")
	if err != nil || !ok {
		return nil, err
	}
	var added []addedToken
	for key, item := range decoder.values {
		id, err := strconv.Atoi(key)
		m, ok := item.(map[string]any)
		if err != nil || !ok || id < 0 {
			return nil, bad("%s: entry %.40q is not an id with a token", decoder.where, key)
		}
		a, err := object{decoder.where + " " + key, m}.addedToken(id)
		if err != nil {
			return nil, err
		}
		added = append(added, a)
	}
	slices.SortFunc(added, func(a, b addedToken) int { return a.id - b.id })
	return added, nil
}
