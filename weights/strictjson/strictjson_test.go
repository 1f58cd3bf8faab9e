package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// values are put into an object: {"v":…}.
var values = []string{
	``, ` `, `null`, `true`, `false`, `tru`, `nul`, `0`, `-0`, `01`, `-`, `1.`, `1.5`, `.5`, `1e5`, `1e`, `1E+9`, `-1.25e-3`, `1 2`, `+1`,
	`""`, `"a`, `"a\"b"`, `"\u00e9\n\t\\\/"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00x"`, `"\ud83dx"`, `"\u12"`, `"\x"`, "\"a\nb\"", `"é😀"`, "\"\xff\"", `"\`,
	`[]`, `[1]`, `[1,]`, `[,1]`, `[1 2]`, `[`, `]`, `[[[]]]`, `{}`, `{"a":1}`, `{"a":1,}`, `{"a"}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":{"b":[1,{"c":null}]}}`, `{`, `{"a":`,
	` { "a" : [ 1 , "x" ] , "b" : { } } `, `{"a":1}x`, `["a", 1.0, true, null, {"k": "v"}]`, `[1e400]`, "\ufeff1", `1}x{"a":1`, `NaN`, `1,"V":2`,
}

// sameAsStandard compares with encoding/json, which takes the same grammar but
// replaces broken text and keeps the last of equal names.
func sameAsStandard(t *testing.T, data []byte) {
	t.Helper()
	got, err := Object(data)
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var want map[string]any
	standard := dec.Decode(&want)
	if standard == nil && (!json.Valid(data) || want == nil) {
		standard = errors.New("something follows, or no object")
	}
	switch {
	case err == nil && standard != nil:
		t.Fatalf("%q: read as %v, but %v", data, got, standard)
	case err == nil && !reflect.DeepEqual(got, want):
		t.Fatalf("%q: got %v, want %v", data, got, want)
	case err != nil && standard == nil && !stricter(string(data)):
		t.Fatalf("%q: refused (%v), but it is %v", data, err, want)
	}
}

// stricter tells the inputs that only this package may refuse: not UTF-8, half
// a surrogate pair, a name twice, too deep.
func stricter(text string) bool {
	return strings.ToValidUTF8(text, "") != text || strings.Contains(text, `\u`) || strings.Count(text, "[")+strings.Count(text, "{") > maxDepth || strings.Count(text, ":") > 1
}

func TestAgainstStandard(t *testing.T) {
	for _, v := range values {
		sameAsStandard(t, []byte(`{"v":`+v+`}`))
		sameAsStandard(t, []byte(v))
	}
}

func TestRefusals(t *testing.T) {
	for text, mention := range map[string]string{
		`{"a":1,"a":2}`:          "duplicate",
		`{"a":1,"\u0061":2}`:     "duplicate",
		`{"a":{"b":1,"b":1}}`:    "duplicate",
		"{\"a\":\"\xff\"}":       "UTF-8",
		`{"a":"\ud83d"}`:         "surrogate",
		`{} {}`:                  "follows",
		`[]`:                     "object at the top",
		`{"a":` + deep(65) + `}`: "nested deeper than 64",
	} {
		if _, err := Object([]byte(text)); err == nil || !strings.Contains(err.Error(), mention) {
			t.Errorf("%.60q: %v, want an error with %q", text, err, mention)
		}
	}
	if m, err := Object([]byte(`{"A":1,"a":` + deep(64) + `}`)); err != nil || len(m) != 2 {
		t.Errorf("%v, %d members", err, len(m))
	}
}

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestSkip(t *testing.T) {
	d := NewDecoder([]byte(`[{"a":[1,{"b":2}]},7,"x"]`))
	var left []string
	err := Items(d, func() error {
		if d.PeekKind() == '{' {
			return Skip(d, 3)
		}
		v, err := d.ReadValue()
		left = append(left, string(v))
		return err
	})
	if err == nil {
		err = End(d)
	}
	if err != nil || strings.Join(left, " ") != `7 "x"` {
		t.Errorf("left %q, %v", left, err)
	}
	if err := Skip(NewDecoder([]byte(deep(4))), 3); err == nil || !strings.Contains(err.Error(), "nested deeper than 3") {
		t.Errorf("4 deep: %v", err)
	}
	if _, err := Text(NewDecoder([]byte(`7`))); err == nil {
		t.Error("a number read as a string")
	}
	if got, err := Text(NewDecoder([]byte(`"a\u00e9"`))); err != nil || string(got) != "aé" {
		t.Errorf("%q, %v", got, err)
	}
	if err := Members(NewDecoder([]byte(`[]`)), nil); err == nil {
		t.Error("an array read as an object")
	}
	if err := Items(NewDecoder([]byte(`{}`)), nil); err == nil {
		t.Error("an object read as an array")
	}
}

func FuzzObject(f *testing.F) {
	for _, v := range values {
		f.Add([]byte(`{"v":` + v + `}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameAsStandard(t, data) })
}
