package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"terrace/grammar"
)

// cases are schemas with documents; which of these are valid the oracle says, a validator of other people's.
var cases = []struct {
	schema string
	docs   []string
}{
	{`{}`, []string{`{}`, `[1,{"a":null}]`, `"x"`, `-0.5e+10`, `true`}},
	{`{"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":12},"age":{"type":"integer","minimum":0,"maximum":130}},"required":["name","age"],"additionalProperties":false}`,
		[]string{`{"name":"x","age":0}`, `{"name":"é日本","age":130}`, `{"name":"","age":1}`, `{"name":"x","age":131}`, `{"name":"x"}`, `{"name":"x","age":1,"b":2}`, `{"name":"1234567890123","age":3}`, `{"name":"\u0041\n","age":3}`}},
	{`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["b"],"additionalProperties":false}`, []string{`{"b":"x"}`, `{"a":"","b":"x"}`, `{"a":"x"}`, `{}`}},
	{`{"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":{"type":"boolean"}}`, []string{`{}`, `{"a":null}`, `{"a":true}`, `{"b":true,"c":false}`, `{"b":null}`, `{"aa":true}`, `{"a":null,"ab":true}`, `{"\u0061":true}`}},
	{`{"enum":["red","green",7,null,true,1.5,[1,"x"],{"k":[]}]}`, []string{`"red"`, `"re"`, `7`, `8`, `null`, `true`, `false`, `1.5`, `[1,"x"]`, `[1]`, `{"k":[]}`, `{}`}},
	{`{"type":"array","items":{"type":"integer","minimum":-5,"maximum":5},"minItems":3,"maxItems":4}`, []string{`[1,2,3]`, `[-5,5,0,1]`, `[1,2]`, `[1,2,6]`, `[1,2,3,4,5]`}},
	{`{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"items":{"type":"null"},"minItems":1}`, []string{`["a"]`, `["a",1,null,null]`, `[]`, `["a",1,2]`, `[1]`}},
	{`{"type":"array","contains":{"type":"integer"},"minContains":2,"maxContains":3,"maxItems":5,"items":{"type":["integer","string"]}}`, []string{`[1,2]`, `["a",1,"b",2]`, `[1]`, `[1,2,3,4]`, `["a","b"]`}},
	{`{"type":"array","contains":{"const":"x"}}`, []string{`["x"]`, `[1,"x",2]`, `[]`, `[1]`}},
	{`{"type":"array","allOf":[{"contains":{"type":"integer"}},{"contains":{"type":"string"}}],"maxItems":4}`, []string{`[1,"a"]`, `[1]`, `["a","b"]`, `["a",null,2]`, `[]`, `[1,"a",2,"b",3]`}},
	{`{"type":"array","contains":{"type":"integer","minimum":5},"maxContains":1,"allOf":[{"contains":{"type":"string"},"minContains":2}],"items":{"type":["integer","string"]}}`, []string{`["a","b",7]`, `["a","b",7,8]`, `["a",7]`, `[7,"a",1,"b","c"]`}},
	{`{"type":"object","properties":{"a":{},"b":{}},"not":{"properties":{"a":{},"b":{}},"additionalProperties":{"type":"string"}},"additionalProperties":{"type":"integer"},"minProperties":2,"maxProperties":3}`, []string{`{"x":1}`, `{"a":1,"x":1}`, `{"a":1,"b":1}`, `{"a":1,"b":1,"x":2}`, `{"a":1,"b":1,"x":2,"y":3}`, `{"b":1,"x":2,"y":3}`}},
	{`{"type":"object","not":{"allOf":[{"not":{"properties":{"a":{"type":"string"}},"additionalProperties":{"type":"integer"}}}]}}`, []string{`{}`, `{"x":1}`, `{"x":"s"}`, `{"a":"s","x":1}`, `{"a":1}`, `{"x":1,"y":"s"}`}},
	{`{"type":"object","not":{"propertyNames":{"not":{"pattern":"a"}}},"allOf":[{"not":{"propertyNames":{"not":{"pattern":"b"}}}}],"propertyNames":{"maxLength":2},"properties":{"ca":{}},"maxProperties":2}`, []string{`{"ab":1}`, `{"a":1,"b":2}`, `{"ca":0,"b":2}`, `{"ca":0,"c":2}`, `{"x":1,"ba":2}`, `{"x":1,"a":2,"b":3}`, `{"b":1,"a":1}`}},
	{`{"type":"string","pattern":"^[a-z]{1,200}@[a-z]{1,200}$","minLength":2,"maxLength":300}`, []string{`"a@b"`, `"a"`, `"@b"`, `"` + strings.Repeat("q", 200) + "@" + strings.Repeat("q", 99) + `"`, `"` + strings.Repeat("q", 200) + "@" + strings.Repeat("q", 100) + `"`, `"` + strings.Repeat("q", 201) + `@b"`}},
	{`{"oneOf":[{"type":"object","properties":{"kind":{"const":"circle"},"r":{"type":"integer","minimum":1}},"required":["kind","r"],"additionalProperties":false},{"type":"object","properties":{"kind":{"const":"square"},"side":{"type":"integer"}},"required":["kind","side"],"additionalProperties":false}]}`,
		[]string{`{"kind":"circle","r":1}`, `{"kind":"square","side":2}`, `{"kind":"circle","side":2}`, `{"kind":"circle"}`}},
	{`{"oneOf":[{"type":"integer","maximum":20},{"type":"integer","minimum":10}]}`, []string{`9`, `10`, `20`, `21`, `15`}},
	{`{"oneOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"string"}},"required":["b"]}],"type":"object"}`, []string{`{"a":"x"}`, `{"b":"x"}`, `{"a":"x","b":"y"}`, `{"a":"x","b":1}`, `{}`}},
	{`{"type":"object","properties":{"t":{"type":"number","minimum":0,"maximum":1},"n":{"type":"integer","exclusiveMinimum":99,"exclusiveMaximum":110}},"required":["t","n"]}`, []string{`{"t":0.25,"n":100}`, `{"t":1.01,"n":100}`, `{"t":1.0,"n":109}`, `{"t":0,"n":110}`}},
	{`{"type":"string","pattern":"^[A-Z]{3}-[0-9]{2,4}$"}`, []string{`"ABC-12"`, `"ABC-1"`, `"ABC-12345"`, `"xABC-12"`}},
	{`{"type":"string","pattern":"^\\S+$","minLength":2,"maxLength":700}`, []string{`"ab"`, `"a"`, `"a b"`, `"` + strings.Repeat("q", 700) + `"`, `"` + strings.Repeat("q", 701) + `"`}},
	{`{"type":"string","pattern":"b","maxLength":3}`, []string{`"b"`, `"aab"`, `"aaa"`, `"aaab"`, `"\"b\\"`}},
	{`{"$id":"https://example.com/s.json","properties":{"a":{"$ref":"#/$defs/i"},"b":{"$id":"inner.json","$defs":{"i":{"type":"string"}},"$ref":"#/$defs/i"}},"$defs":{"i":{"type":"integer"}},"type":"object"}`, []string{`{"a":1}`, `{"a":"x"}`, `{"b":"x"}`, `{"b":1}`}},
	{`{"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/node"}]}},"required":["v","next"],"additionalProperties":false}},"$ref":"#/$defs/node"}`, []string{`{"v":1,"next":null}`, `{"v":1,"next":{"v":2,"next":null}}`, `{"v":1,"next":1}`}},
	{`{"type":"number","multipleOf":0.25,"minimum":-1,"maximum":2}`, []string{`0.25`, `-1`, `1.75`, `0.3`, `2.25`, `0`, `1.50`}},
	{`{"type":"integer","multipleOf":7}`, []string{`0`, `7`, `-14`, `49`, `8`, `70`, `71`}},
	{`{"type":"number","exclusiveMinimum":-2.5,"maximum":12.75}`, []string{`-2.5`, `-2.49`, `12.75`, `12.76`, `0`, `12.7`, `13`, `-3`}},
	{`{"not":{"type":"string"}}`, []string{`1`, `"a"`, `{}`}},
	{`{"type":"object","not":{"required":["x"]},"properties":{"x":{},"y":{}}}`, []string{`{}`, `{"y":1}`, `{"x":1}`}},
	{`{"type":"string","not":{"enum":["a","bb"]}}`, []string{`"a"`, `"b"`, `"bb"`, `""`}},
	{`{"type":"object","properties":{"a":{"type":"integer"},"b":{}},"required":["a"],"if":{"properties":{"a":{"const":1}}},"then":{"required":["b"]}}`, []string{`{"a":1,"b":2}`, `{"a":1}`, `{"a":2}`}},
	{`{"type":"object","properties":{"a":{},"b":{},"c":{}},"additionalProperties":false,"dependentRequired":{"a":["b"]},"minProperties":2}`, []string{`{"a":1,"b":2}`, `{"a":1,"c":2}`, `{"b":1,"c":1}`, `{"b":1}`}},
	{`{"type":"object","minProperties":1}`, []string{`{}`, `{"x":1}`, `{"x":1,"y":2}`}},
	{`{"type":"object","properties":{"a":{},"b":{},"c":{}},"required":["a"],"minProperties":3}`, []string{`{"a":1,"b":2}`, `{"a":1,"b":2,"c":3}`, `{"a":1,"b":2,"x":3}`, `{"a":1,"c":2,"x":3,"y":4}`, `{"a":1,"x":2}`}},
	{`{"type":"object","properties":{"a":{},"b":{}},"patternProperties":{"^[ab]$":{"type":"integer"}},"additionalProperties":false,"minProperties":2}`, []string{`{"a":1,"b":2}`, `{"a":1}`, `{"b":2}`}},
	{`{"type":"object","not":{"properties":{"a":{}},"additionalProperties":{"type":"string"}},"additionalProperties":{"type":"integer"},"properties":{"a":{}}}`, []string{`{"a":1}`, `{"a":1,"b":2}`, `{"b":2,"c":3}`, `{"b":"x"}`, `{}`}},
	{`{"type":"object","not":{"properties":{"a":{}},"additionalProperties":false}}`, []string{`{"a":1}`, `{"b":1}`, `{"b":1,"c":2}`, `{}`}},
	{`{"type":"object","patternProperties":{"^s_":{"type":"string"},"_i$":{"type":"integer"}},"additionalProperties":false}`, []string{`{"s_a":"x"}`, `{"n_i":1}`, `{"s_i":1}`, `{"q":1}`, `{}`}},
	{`{"type":"object","properties":{"s_x":{"maxLength":1}},"patternProperties":{"^s_":{"type":"string"}},"propertyNames":{"maxLength":4},"maxProperties":2}`, []string{`{"s_x":"a"}`, `{"s_x":"ab"}`, `{"s_y":1}`, `{"abcde":1}`, `{"a":1,"b":2}`, `{"a":1,"b":2,"c":3}`}},
	{`{"allOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"a":{"maxLength":2},"b":{"type":"boolean"}},"additionalProperties":false}],"type":"object"}`, []string{`{"a":"xy"}`, `{"a":"xyz"}`, `{"a":"x","b":true}`, `{"b":true}`}},
	{`{"type":"string","format":"date"}`, []string{`"2024-02-29"`, `"2023-02-29"`, `"2023-13-01"`, `"2023-11-30"`}},
	{`{"type":"string","format":"ipv4"}`, []string{`"192.168.0.1"`, `"256.1.1.1"`, `"1.2.3"`}},
	{`{"type":"string","format":"ipv6"}`, []string{`"::1"`, `"1:2:3:4:5:6:7:8"`, `"1::2::3"`, `"::ffff:1.2.3.4"`, `"1:2"`}},
	{`{"type":"string","format":"uuid"}`, []string{`"123e4567-e89b-12d3-a456-426614174000"`, `"123"`}},
	{`{"type":"string","format":"date-time"}`, []string{`"2024-01-02T03:04:05Z"`, `"2024-01-02T03:04:05.25+01:30"`, `"2024-01-02 03:04:05Z"`, `"2024-01-02T25:04:05Z"`}},
	{`{"type":"string","pattern":"^(?!foo)[a-z]+$"}`, nil}, // look-ahead: the oracle's engine has none
	{`{"$schema":"http://json-schema.org/draft-04/schema#","type":"integer","minimum":3,"exclusiveMinimum":true}`, []string{`3`, `4`}},
	{`{"type":"array","minItems":1000000,"items":{"enum":[1]}}`, nil},
	{`{"type":"string","maxLength":100000000}`, []string{`"abc"`}},
	{`{"type":"object","properties":{"a/b\"é":{"type":"integer"}},"additionalProperties":false}`, []string{`{"a/b\"é":1}`, `{"a":1}`}},
}

func vocabulary() (*grammar.Vocabulary, [][]byte) {
	var tokens [][]byte
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	for _, s := range []string{`{"`, `":`, `": `, `",`, `, "`, `"}`, `}}`, `]`, `],`, `[]`, `null`, `true`, `false`, "name", "age", "the", "日本", "12", "000", `\"`, `\n`, "\n  ", "20", "-01", "ab", "aaaa", `x"`} {
		tokens = append(tokens, []byte(s))
	}
	return grammar.NewVocabulary(append(tokens, nil), []int{len(tokens)}), tokens
}

func oracle(t *testing.T, text string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

func holds(t *testing.T, s *jsonschema.Schema, text string) bool {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s is no JSON: %v", text, err)
	}
	return s.Validate(v) == nil
}

// TestAgainstValidator: documents are taken where the validator takes them, with little white space and much; random texts
// under the masks are JSON that the validator takes.
func TestAgainstValidator(t *testing.T) {
	v, tokens := vocabulary()
	rng := rand.New(rand.NewPCG(3, 1))
	for _, c := range cases {
		g, err := Compile([]byte(c.schema))
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
		}
		if err != nil || c.docs == nil { // without documents: it only has to be small enough
			continue
		}
		m, valid := machineOf(t, g, v), oracle(t, c.schema)
		for _, doc := range c.docs {
			var wide bytes.Buffer
			if err := json.Indent(&wide, []byte(doc), "", "  "); err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{doc, wide.String()} {
				s := m.Start()
				if got, want := s.AcceptText([]byte(text)) == nil && s.CanEnd(), holds(t, valid, doc); got != want {
					t.Errorf("%s: %s: %v, want %v", c.schema, text, got, want)
				}
			}
		}
		for range 12 {
			text := walk(t, rng, m, tokens, c.schema)
			if text != "" && !holds(t, valid, text) {
				t.Errorf("%s: made %s, which is not valid", c.schema, text)
			}
		}
	}
}

func machineOf(t testing.TB, g *grammar.Grammar, v *grammar.Vocabulary) *grammar.Machine {
	t.Helper()
	m, err := grammar.NewMachine(g, v)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func maskOf(t testing.TB, s *grammar.State) []uint64 {
	t.Helper()
	mask, err := s.Mask()
	if err != nil {
		t.Fatal(err)
	}
	return mask
}

// walk draws tokens that the masks allow, mostly such as end things; "" where it did not end.
func walk(t *testing.T, rng *rand.Rand, m *grammar.Machine, tokens [][]byte, name string) string {
	s, text := m.Start(), ""
	for range 400 {
		if s.CanEnd() && (s.Ended() || rng.IntN(3) == 0) {
			return text
		}
		mask := maskOf(t, s)
		var can, ends []int
		for id, b := range tokens {
			ok := mask[id>>6]>>(id&63)&1 != 0
			if f := s.Fork(); rng.IntN(20) == 0 && (f.Accept(id) == nil) != ok {
				t.Fatalf("%s: %s: token %q: mask %v", name, text, b, ok)
			}
			if ok {
				can = append(can, id)
				if strings.Contains(`"]},:`, string(b)) {
					ends = append(ends, id)
				}
			}
		}
		if len(can) == 0 {
			t.Fatalf("%s: %s: a dead end", name, text)
		}
		id := can[rng.IntN(len(can))]
		if len(ends) > 0 && rng.IntN(4) > 0 {
			id = ends[rng.IntN(len(ends))]
		}
		if err := s.Accept(id); err != nil {
			t.Fatalf("%s: %s: %v", name, text, err)
		}
		text += string(tokens[id])
	}
	return ""
}

func TestCompileRefuses(t *testing.T) {
	deep := strings.Repeat(`{"items":`, 300) + "{}" + strings.Repeat("}", 300)
	for text, want := range map[string]error{`{"type":"hiccup"}`: grammar.ErrSyntax, `{"type":"string","pattern":"("}`: grammar.ErrSyntax, `[]`: grammar.ErrSyntax, `{"a":1,"a":2}`: grammar.ErrSyntax, `{"minimum":"x"}`: grammar.ErrSyntax, `{`: grammar.ErrSyntax, `{"$ref":"#/nope"}`: grammar.ErrSyntax,
		`{"$ref":"https://example.com/x.json"}`: grammar.ErrUnsupported, `{"$ref":"#"}`: grammar.ErrUnsupported, `{"uniqueItems":true}`: grammar.ErrUnsupported, `{"pattern":"(a)\\1"}`: grammar.ErrUnsupported, `{"format":"regex"}`: grammar.ErrUnsupported, `{"$dynamicRef":"#x"}`: grammar.ErrUnsupported, `{"oneOf":[{"type":"integer","multipleOf":3},{"type":"integer","minimum":10}]}`: grammar.ErrUnsupported,
		`{"type":"object","minProperties":2}`: grammar.ErrUnsupported, `{"properties":{"a":{}},"patternProperties":{"^x":{}},"minProperties":3}`: grammar.ErrUnsupported, `{"type":"object","not":{"maxProperties":1}}`: grammar.ErrUnsupported, `{"type":"object","not":{"additionalProperties":{"type":"string"}}}`: grammar.ErrUnsupported, `{"type":"array","allOf":[{"contains":{"const":1}},{"contains":{"const":2}},{"contains":{"const":3}},{"contains":{"const":4}},{"contains":{"const":5}}]}`: grammar.ErrTooLarge,
		`false`: grammar.ErrEmpty, `{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`: grammar.ErrEmpty, `{"type":"string","minLength":2,"maxLength":1}`: grammar.ErrEmpty, `{"enum":[]}`: grammar.ErrEmpty,
		deep: grammar.ErrTooLarge, `{"pattern":"(a|b)*a(a|b){20}$"}`: grammar.ErrTooLarge, `{"type":"number","minimum":1e9999}`: grammar.ErrTooLarge} {
		if _, err := Compile([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%.60s: %v, want %v", text, err, want)
		}
	}
}

// TestRepeatedNames: a name that the schema does not give may come twice, and a validator counts it once.
func TestRepeatedNames(t *testing.T) {
	v, _ := vocabulary()
	for text, docs := range map[string]map[string]bool{
		`{"type":"object","minProperties":1}`:                                                 {`{"x":1,"x":2}`: true},
		`{"properties":{"a":{},"b":{}},"type":"object","minProperties":2}`:                    {`{"x":1,"x":2}`: false, `{"a":0,"x":1,"x":2}`: true, `{"a":0,"b":1}`: true, `{"b":0,"b":1}`: false},
		`{"type":"object","required":["k"],"minProperties":2,"patternProperties":{"^x$":{}}}`: {`{"k":0,"x":1,"x":2}`: true, `{"k":0}`: false},
	} {
		g, err := Compile([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		m := machineOf(t, g, v)
		for doc, want := range docs {
			if s := m.Start(); (s.AcceptText([]byte(doc)) == nil && s.CanEnd()) != want {
				t.Errorf("%s: %s: want %v", text, doc, want)
			}
		}
	}
	if _, err := Compile([]byte(`{"type":"object","properties":{"a":{}},"minProperties":3}`)); err == nil || !strings.Contains(err.Error(), "minProperties 3") {
		t.Errorf("%v: want minProperties in it", err)
	}
}

// TestOrder: properties come in the schema's order, and required ones that it does not describe after them.
func TestOrder(t *testing.T) {
	v, _ := vocabulary()
	for schema, texts := range map[string]map[string]bool{
		`{"required":["z","b"],"type":"object","properties":{"b":{},"a":{}}}`:                                {`{"b":1,"a":2,"z":3,"more":4}`: true, `{"a":2,"b":1,"z":3}`: false, `{"z":1,"b":2}`: false},
		`{"required":["b","a"],"properties":{"a":{},"b":{}},"type":"object"}`:                                {`{"a":1,"b":2}`: true, `{"b":1,"a":2}`: false},
		`{"required":["d","c","b"],"properties":{"c":{}},"allOf":[{"properties":{"b":{}}}],"type":"object"}`: {`{"c":1,"b":2,"d":3}`: true, `{"b":1,"c":2,"d":3}`: false, `{"d":1,"c":2,"b":3}`: false},
	} {
		g, err := Compile([]byte(schema))
		if err != nil {
			t.Fatal(err)
		}
		m := machineOf(t, g, v)
		for text, want := range texts {
			if s := m.Start(); (s.AcceptText([]byte(text)) == nil && s.CanEnd()) != want {
				t.Errorf("%s: %s: want %v", schema, text, want)
			}
		}
	}
}
