package answer

import (
	"slices"
	"testing"
)

// TestTyped: a text is what the schema asks for.
func TestTyped(t *testing.T) {
	for _, c := range []struct{ schema, text, want string }{
		{`{"type":"integer"}`, "3", `3`}, {`{"type":"integer"}`, " 3\n", `3`}, {`{"type":"integer"}`, "3.0", `3`}, {`{"type":"integer"}`, "three", `"three"`},
		{`{"type":"integer"}`, "+3", `3`}, {`{"type":"number"}`, "3", `3`}, {`{"type":"number"}`, ".5", `0.5`}, {`{"type":"number"}`, "1e3", `1e3`}, {`{"type":"number"}`, "inf", `"inf"`},
		{`{"type":"boolean"}`, "True", `true`}, {`{"type":"boolean"}`, "false", `false`}, {`{"type":"null"}`, "None", `null`},
		{`{"type":"string"}`, "3", `"3"`}, {`{"type":"string"}`, `"a"`, `"\"a\""`}, {`{"type":"string"}`, "a\n\"b\"", `"a\n\"b\""`},
		{`{"type":["string","null"]}`, "null", `null`}, {`{"type":["string","null"]}`, "None", `"None"`}, {`{"type":"string","nullable":true}`, "null", `null`},
		{`{"anyOf":[{"type":"string"},{"type":"integer"}]}`, "3", `3`}, {`{"anyOf":[{"type":"integer"},{"type":"null"}]}`, "null", `null`},
		{`{"oneOf":[{"type":"object"},{"type":"string"}]}`, `{"a": 1}`, `{"a": 1}`}, {`{"allOf":[{"type":["string","integer"]},{"type":"integer"}]}`, "4", `4`},
		{`{"enum":["1","2"]}`, "1", `"1"`}, {`{"enum":[1,2]}`, "1", `1`}, {`{"enum":["a","b"]}`, "a\n", `"a"`}, {`{"const":"x"}`, "x", `"x"`}, {`{"enum":[1,"1"]}`, "1", `1`},
		{`{"type":"array"}`, `['a', "b", 1, None]`, `["a", "b", 1, null]`}, {`{"type":"array"}`, `("a",)`, `["a"]`}, {`{"type":"object"}`, `{'a': {'b': True}}`, `{"a": {"b": true}}`},
		{`{"type":"object"}`, `{'it''s'}`, `"{'it''s'}"`}, {`{"$ref":"#/$defs/n"}`, "3", `3`}, {`{}`, "3", `3`}, {`{}`, "(1, 2)", `"(1, 2)"`}, {`true`, "a", `"a"`},
		{`{"items":{"type":"integer"}}`, "[1]", `[1]`}, {`{"properties":{"a":{}}}`, "{'a': 1}", `{"a": 1}`}, {`{"$ref":"#/$defs/loop"}`, "3", `3`},
	} {
		tool := &Tool{"f", []byte(`{"$defs":{"n":{"type":"integer"},"loop":{"$ref":"#/$defs/loop"}},"properties":{"x":` + c.schema + `}}`)}
		s, ok := tool.property(tool.Schema, "x", 0)
		if got := string(tool.typed(s, c.text)); got != c.want || !ok {
			t.Errorf("%s: %q is %s, want %s", c.schema, c.text, got, c.want)
		}
	}
}

// TestProperty: an argument is one that the schema names, or says that it allows.
func TestProperty(t *testing.T) {
	for schema, want := range map[string][]bool{ // a, b, x-c
		``:                        {true, true, true},
		`{"type":"object"}`:       {true, true, true},
		`{"properties":{"a":{}}}`: {true, false, false},
		`{"properties":{"a":{}},"additionalProperties":true}`:               {true, true, true},
		`{"properties":{"a":{}},"additionalProperties":{"type":"integer"}}`: {true, true, true},
		`{"properties":{},"additionalProperties":false}`:                    {false, false, false},
		`{"additionalProperties":false}`:                                    {false, false, false},
		`{"properties":{"a":{}},"patternProperties":{"^x-":{}}}`:            {true, false, true},
		`{"allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}`:       {true, true, false},
		`{"$ref":"#/$defs/d","$defs":{"d":{"properties":{"b":{}}}}}`:        {false, true, false},
	} {
		tool := &Tool{"f", []byte(schema)}
		var got []bool
		for _, name := range []string{"a", "b", "x-c"} {
			_, ok := tool.property(tool.Schema, name, 0)
			got = append(got, ok)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: a, b, x-c are taken: %v, want %v", schema, got, want)
		}
	}
}
