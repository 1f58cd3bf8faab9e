package tokenizer

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// maxToolDepth bounds the JSON of tools.
const maxToolDepth = 200

// templateJSON turns JSON into values of a template; members stay in their order.
func templateJSON(data []byte) (any, error) {
	return readTemplateJSON(jsontext.NewDecoder(bytes.NewBuffer(data)), 0)
}

func readTemplateJSON(d *jsontext.Decoder, depth int) (any, error) {
	if depth > maxToolDepth {
		return nil, fmt.Errorf("JSON nested deeper than %d", maxToolDepth)
	}
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case '"':
		return t.String(), nil
	case '0':
		if n, err := strconv.Atoi(t.String()); err == nil {
			return n, nil
		}
		return strconv.ParseFloat(t.String(), 64)
	case 't', 'f':
		return t.Bool(), nil
	case '[':
		list := []any{}
		for d.PeekKind() != ']' {
			v, err := readTemplateJSON(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.ReadToken()
		return list, err
	case '{':
		dict := &exec.Dict{}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String()
			v, err := readTemplateJSON(d, depth+1)
			if err != nil {
				return nil, err
			}
			dict.Pairs = append(dict.Pairs, &exec.Pair{Key: exec.AsValue(key), Value: exec.AsValue(v)})
		}
		_, err = d.ReadToken()
		return dict, err
	}
	return nil, nil
}
