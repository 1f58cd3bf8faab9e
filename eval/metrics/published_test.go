package metrics

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestPublished holds the scores of four benchmarks to their official code (testdata/published/make.py); where that raises, ours is 0.
func TestPublished(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "published", "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Kind, Task, Pred string
		Answer, Score    json.RawMessage
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) != 804 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		raised := string(c.Score) == "null"
		var answer string
		var many map[string]string
		_ = json.Unmarshal(c.Answer, &answer)
		_ = json.Unmarshal(c.Answer, &many)
		number := func(what string, got float64, want float64) {
			if math.Abs(got-want) > 1e-9 {
				t.Errorf("%s %s, %q beside %s: %s %g, want %s", c.Kind, c.Task, c.Pred, c.Answer, what, got, c.Score)
			}
		}
		var want float64
		var wants map[string]float64
		var text string
		_ = json.Unmarshal(c.Score, &want)
		_ = json.Unmarshal(c.Score, &wants)
		_ = json.Unmarshal(c.Score, &text)
		switch c.Kind {
		case "infinitebench":
			got, err := InfiniteBench(c.Task, c.Pred, c.Answer)
			if err != nil {
				t.Errorf("%s: %v", c.Task, err)
			}
			number("score", got, want)
		case "longbench2":
			if got := LongBench2(c.Pred); got != text {
				t.Errorf("%q: %q, want %q", c.Pred, got, text)
			}
		case "math":
			if got := MathEquivalent(c.Pred, answer); got != (string(c.Score) == "true") {
				t.Errorf("%q beside %q: %t, want %s", c.Pred, answer, got, c.Score)
			}
		case "boxed":
			if got, ok := LastBoxed(c.Pred); ok == raised || ok && got != text {
				t.Errorf("%q: %q, %t, want %s", c.Pred, got, ok, c.Score)
			}
		case "loogle":
			for what, got := range LooGLEText(c.Pred, answer) {
				if !raised { // rouge raises, bleu is there
					number(what, got, wants[what])
				}
			}
		case "cloze":
			exact, partial := LooGLECloze(c.Pred, many)
			number("exact", exact, wants["exact"])
			number("partial", partial, wants["partial"])
		default:
			t.Fatalf("kind %q", c.Kind)
		}
	}
}

// TestPublishedAnswers: answers that no score can be made of are refused.
func TestPublishedAnswers(t *testing.T) {
	for _, c := range []struct{ task, answer string }{{"passkey", "null"}, {"passkey", "[]"}, {"passkey", `{"a": 1}`}, {"code_debug", `["f"]`}, {"longbook_qa_eng", `["a", null]`}, {"math_find", "true"}} {
		if _, err := InfiniteBench(c.task, "1", json.RawMessage(c.answer)); !errors.Is(err, ErrRow) {
			t.Errorf("%s, %s: %v", c.task, c.answer, err)
		}
	}
	if got, err := InfiniteBench("longbook_choice_eng", "so AB C", json.RawMessage(`["Snow", "C"]`)); err != nil || got != 0 {
		t.Errorf("the first word of letters A to D decides: %g, %v", got, err)
	}
	if _, err := InfiniteBench("passkeys", "1", json.RawMessage(`"1"`)); !errors.Is(err, ErrTask) {
		t.Errorf("no task: %v", err)
	}
}

// TestMathSides: what stands before a sign of equality goes where it is a short name, as there.
func TestMathSides(t *testing.T) {
	for text, want := range map[string]bool{"k =5": true, "k=5": true, "=5": true, "é =5": true, "xyz=5": false, "x=y=5": false} {
		if MathEquivalent(text, "5") != want {
			t.Errorf("%q is 5: %t", text, !want)
		}
	}
}

// TestIntegers: an answer of AIME in the forms that models write it in.
func TestIntegers(t *testing.T) {
	for text, want := range map[string]int{"73": 73, "073": 73, " 73 ": 73, "$73$": 73, `73^\circ`: 73, "1,234": 1234, `\$73`: 73, "x=73": 73, "": -1, "73.5": -1, `\frac{1}{2}`: -1, "seventy": -1} {
		got, ok := Integer(text)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %d, %t, want %d", text, got, ok, want)
		}
	}
	if got, ok := LastInteger("So 12 and then 073."); !ok || got != 73 {
		t.Errorf("last: %d, %t", got, ok)
	}
	if _, ok := LastInteger("none"); ok {
		t.Error("a number in none")
	}
}

// FuzzPythonLiteral: whatever it is given, an error is one of ErrLiteral, and what JSON writes of texts is read as JSON reads it.
func FuzzPythonLiteral(f *testing.F) {
	for _, s := range []string{`{'a': ["b", 'c\'d', 1.5, None, True], "x": ()}`, `"a" 'b'`, `{'a':`, `[[[`, `'\x41é\101\q'`, `{1: 2}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := PythonLiteral(s); err != nil && !errors.Is(err, ErrLiteral) {
			t.Errorf("%q: %v", s, err)
		}
	})
}

// TestPythonLiteral: the forms that LooGLE's files have.
func TestPythonLiteral(t *testing.T) {
	v, err := PythonLiteral(`[{'Q': "Picardo's?", 'A': 'a\n"b"', 'S': ['x' 'y', "é\x41\101"], 'n': -1.5, 't': (True, None,)}]`)
	got, _ := json.Marshal(v)
	if want := `[{"A":"a\n\"b\"","Q":"Picardo's?","S":["xy","éAA"],"n":-1.5,"t":[true,null]}]`; err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{"", "{", "{'a'}", "{'a': }", "[1 2]", "'a", "'a\nb'", `'\x4'`, "nul", "{1: 2}", "'a' b", `'\N{DASH}'`, "f'a'"} {
		if v, err := PythonLiteral(bad); !errors.Is(err, ErrLiteral) {
			t.Errorf("%q: %v, %v", bad, v, err)
		}
	}
}
