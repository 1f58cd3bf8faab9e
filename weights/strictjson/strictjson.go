// Package strictjson reads JSON that came with a model: RFC 8259 and no more,
// valid UTF-8 without half surrogates, no name twice in an object, a bounded
// depth. The reading itself is jsontext's, the strict half of Go's next
// encoding/json; this package adds the depth and the tree. It knows no file.
// All functions are pure.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds nesting; published tokenizer.json files nest eight deep,
// configurations three.
const maxDepth = 64

// Decoder is a stream of tokens that refuses what is not strict.
type Decoder = jsontext.Decoder

// NewDecoder reads data in place.
func NewDecoder(data []byte) *Decoder { return jsontext.NewDecoder(bytes.NewBuffer(data)) }

// Object reads one object and nothing after it. A value is nil, bool, string,
// []any, map[string]any, or json.Number: no number is rounded before its range
// is known.
func Object(data []byte) (map[string]any, error) {
	d := NewDecoder(data)
	v, err := value(d)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("JSON: want an object at the top")
	}
	return m, End(d)
}

// End fails unless nothing but white space is left.
func End(d *Decoder) error {
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("JSON: something follows the object")
	}
	return nil
}

// Members reads the object that comes next and calls member at each value; name
// is valid until the next read.
func Members(d *Decoder, member func(name []byte) error) error {
	t, err := d.ReadToken()
	if err != nil {
		return fmt.Errorf("JSON: %w", err)
	}
	if t.Kind() != '{' {
		return fmt.Errorf("JSON: invalid %s, want an object", t.Kind())
	}
	for d.PeekKind() != '}' {
		name, err := Text(d)
		if err != nil {
			return fmt.Errorf("JSON: %w", err)
		}
		if err := member(name); err != nil {
			return err
		}
	}
	return end(d)
}

// Items reads the array that comes next and calls item at each value.
func Items(d *Decoder, item func() error) error {
	t, err := d.ReadToken()
	if err != nil {
		return fmt.Errorf("JSON: %w", err)
	}
	if t.Kind() != '[' {
		return fmt.Errorf("JSON: invalid %s, want an array", t.Kind())
	}
	for d.PeekKind() != ']' {
		if err := item(); err != nil {
			return err
		}
	}
	return end(d)
}

// Text reads the string that comes next; it is valid until the next read.
func Text(d *Decoder) ([]byte, error) {
	raw, err := d.ReadValue()
	switch {
	case err != nil:
		return nil, err
	case raw[0] != '"':
		return nil, fmt.Errorf("invalid %.20s, want a string", raw)
	case bytes.IndexByte(raw, '\\') >= 0:
		return jsontext.AppendUnquote(nil, raw)
	}
	return raw[1 : len(raw)-1], nil
}

// Skip reads a value that nobody asked for, at most depth deep.
func Skip(d *Decoder, depth int) error {
	for top := d.StackDepth(); ; {
		if _, err := d.ReadToken(); err != nil {
			return fmt.Errorf("JSON: %w", err)
		}
		switch at := d.StackDepth(); {
		case at == top:
			return nil
		case at > top+depth:
			return fmt.Errorf("JSON: nested deeper than %d", depth)
		}
	}
}

func end(d *Decoder) error {
	if _, err := d.ReadToken(); err != nil {
		return fmt.Errorf("JSON: %w", err)
	}
	return nil
}

func value(d *Decoder) (any, error) {
	if d.StackDepth() > maxDepth {
		return nil, fmt.Errorf("JSON: nested deeper than %d", maxDepth)
	}
	switch d.PeekKind() {
	case '{':
		m := map[string]any{}
		return m, Members(d, func(name []byte) (err error) {
			key := string(name)
			m[key], err = value(d)
			return err
		})
	case '[':
		list := []any{}
		err := Items(d, func() error {
			v, err := value(d)
			list = append(list, v)
			return err
		})
		return list, err
	}
	t, err := d.ReadToken()
	if err != nil {
		return nil, fmt.Errorf("JSON: %w", err)
	}
	switch t.Kind() {
	case '"':
		return t.String(), nil
	case '0':
		return json.Number(t.String()), nil
	case 't', 'f':
		return t.Bool(), nil
	}
	return nil, nil
}
