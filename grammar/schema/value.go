package schema

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
)

// Bounds of a schema document.
const (
	maxBytes = 4 << 20
	maxDepth = 200
)

// value is a JSON value that keeps the order of members. kind is as in jsontext: { [ " 0 t f n.
type value struct {
	kind    byte
	text    string // of a string; a number as it is written
	items   []*value
	members []member
	path    string // JSON pointer from the top
}

type member struct {
	name  string
	value *value
}

// get is a member of an object; nil where there is none.
func (v *value) get(name string) *value {
	for i := range v.members {
		if v.members[i].name == name {
			return v.members[i].value
		}
	}
	return nil
}

func parse(data []byte) (*value, error) {
	if len(data) > maxBytes {
		return nil, fmt.Errorf("schema: %d bytes, at most %d: %w", len(data), maxBytes, grammar.ErrTooLarge)
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(data))
	v, err := read(d, "", 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("schema: something follows the value: %w", grammar.ErrSyntax)
	}
	return v, nil
}

func read(d *jsontext.Decoder, path string, depth int) (*value, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("schema: nested deeper than %d: %w", maxDepth, grammar.ErrTooLarge)
	}
	t, err := d.ReadToken()
	if err != nil {
		return nil, fmt.Errorf("schema: no JSON: %v: %w", err, grammar.ErrSyntax)
	}
	v := &value{kind: byte(t.Kind()), path: path}
	switch v.kind {
	case '"', '0':
		v.text = t.String()
	case '[':
		for i := 0; d.PeekKind() != ']'; i++ {
			item, err := read(d, fmt.Sprintf("%s/%d", path, i), depth+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
		_, err = d.ReadToken()
	case '{':
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, fmt.Errorf("schema: no JSON: %v: %w", err, grammar.ErrSyntax)
			}
			key := name.String()
			item, err := read(d, path+"/"+escapePointer(key), depth+1)
			if err != nil {
				return nil, err
			}
			v.members = append(v.members, member{key, item})
		}
		_, err = d.ReadToken()
	}
	if err != nil {
		return nil, fmt.Errorf("schema: no JSON: %v: %w", err, grammar.ErrSyntax)
	}
	return v, nil
}
