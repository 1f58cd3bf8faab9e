package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// maxJSONDepth bounds nesting; config files nest three deep.
const maxJSONDepth = 64

// decodeObject decodes one JSON object strictly: valid UTF-8, no name twice in an object, at most maxJSONDepth deep, nothing
// after it. Numbers stay json.Number, so that none is rounded or overflows before its range is known.
func decodeObject(data []byte) (map[string]any, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("invalid UTF-8 in JSON: %w", ErrConfig)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := decodeValue(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("JSON: something follows the object: %w", ErrConfig)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("JSON: want an object at the top: %w", ErrConfig)
	}
	return m, nil
}

func decodeValue(dec *json.Decoder, depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("JSON: nested deeper than %d: %w", maxJSONDepth, ErrConfig)
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("JSON: %w: %w", err, ErrConfig)
	}
	switch tok {
	case json.Delim('{'):
		return decodeMembers(dec, depth)
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := decodeValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, closing(dec)
	}
	return tok, nil
}

func decodeMembers(dec *json.Decoder, depth int) (any, error) {
	m := map[string]any{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("JSON: %w: %w", err, ErrConfig)
		}
		name, ok := tok.(string)
		if !ok {
			return nil, fmt.Errorf("JSON: name %v is no string: %w", tok, ErrConfig)
		}
		if _, dup := m[name]; dup {
			return nil, fmt.Errorf("JSON: duplicate key %q: %w", name, ErrConfig)
		}
		if m[name], err = decodeValue(dec, depth+1); err != nil {
			return nil, err
		}
	}
	return m, closing(dec)
}

// closing reads the bracket that ends an object or array.
func closing(dec *json.Decoder) error {
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("JSON: %w: %w", err, ErrConfig)
	}
	return nil
}
