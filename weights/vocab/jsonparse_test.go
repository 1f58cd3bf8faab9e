package vocab

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"terrace/tokenizer"
)

var jsonCases = []string{
	``, ` `, `null`, `true`, `false`, `tru`, `nul`, `0`, `-0`, `01`, `-`, `1.`, `1.5`, `.5`, `1e5`, `1e`, `1E+9`, `-1.25e-3`, `1 2`, `+1`,
	`""`, `"a`, `"a\"b"`, `"\u00e9\n\t\\\/"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00x"`, `"\ud83dx"`, `"\u12"`, `"\x"`, "\"a\nb\"", `"é😀"`, "\"\xff\"", `"\`,
	`[]`, `[1]`, `[1,]`, `[,1]`, `[1 2]`, `[`, `]`, `[[[]]]`, `{}`, `{"a":1}`, `{"a":1,}`, `{"a"}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":{"b":[1,{"c":null}]}}`, `{`, `{"a":`,
	` { "a" : [ 1 , "x" ] , "b" : { } } `, `{"a":1}x`, `["a", 1.0, true, null, {"k": "v"}]`, `[1e400]`,
}

// sameAsStandard compares with encoding/json, which takes the same grammar but
// replaces broken text and keeps the last of equal names; it reports whether
// the standard reads data.
func sameAsStandard(t *testing.T, data []byte) {
	t.Helper()
	got, err := parseJSON(data)
	if err != nil && !errors.Is(err, tokenizer.ErrVocab) {
		t.Fatalf("%q: %v", data, err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var want any
	standard := dec.Decode(&want)
	if standard == nil && !json.Valid(data) {
		standard = errors.New("something follows")
	}
	switch {
	case err == nil && standard != nil:
		t.Fatalf("%q: read as %v, but %v", data, got, standard)
	case err == nil && !reflect.DeepEqual(got, want):
		t.Fatalf("%q: got %v, want %v", data, got, want)
	case err != nil && standard == nil && !stricter(data, want):
		t.Fatalf("%q: refused (%v), but it is %v", data, err, want)
	}
}

// stricter tells the inputs that only this package refuses: not UTF-8, half a
// surrogate pair, a name twice, too deep.
func stricter(data []byte, v any) bool {
	text := string(data)
	return !json.Valid(data) || strings.ToValidUTF8(text, "") != text || strings.Contains(text, `\u`) || strings.Count(text, "[")+strings.Count(text, "{") > maxJSONDepth || strings.Contains(text, ":")
}

func TestJSONAgainstStandard(t *testing.T) {
	for _, c := range jsonCases {
		sameAsStandard(t, []byte(c))
	}
	for _, c := range []string{`{"a":1,"a":2}`, `{"a":{"b":1,"b":1}}`, "\"\xff\"", `"\ud83d"`, strings.Repeat("[", 70) + strings.Repeat("]", 70)} {
		if _, err := parseJSON([]byte(c)); !errors.Is(err, tokenizer.ErrVocab) {
			t.Errorf("%q: got %v", c, err)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, c := range jsonCases {
		f.Add([]byte(c))
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameAsStandard(t, data) })
}
