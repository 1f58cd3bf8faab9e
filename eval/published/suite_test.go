package published

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace/eval"
	"terrace/eval/fakes"
)

// file writes rows as JSON Lines.
func file(t *testing.T, name string, rows ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// answered runs a sample whose answer is pred.
func answered(t *testing.T, s *Suite, x eval.Sample, pred string) (out eval.Outcome, prompt string) {
	t.Helper()
	r := &fakes.Runner{Answer: func(p, _ string) string { prompt = p; return pred }, NoChat: true}
	err := s.Evaluate(t.Context(), r, x, []string{"full"}, func(o eval.Outcome) error { out = o; return nil })
	if err != nil || out.Error != "" {
		t.Fatalf("%s/%s: %v %s", x.Task, x.ID, err, out.Error)
	}
	return out, prompt
}

// TestPromptsAreOfficial: prompts and lengths of answers are those of the official code (testdata/make.py), right answers score 1.
func TestPromptsAreOfficial(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "prompts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Suite, Task, Prompt string
		Row                 json.RawMessage
		At, Tokens          int
		Label               []any
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) != 18 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		s, err := New(c.Suite, Options{Data: file(t, c.Task+".jsonl", string(c.Row)), Tasks: []string{c.Task}})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.answerTokens(s.tasks[c.Task]); got != c.Tokens {
			t.Errorf("%s: answers of %d tokens, want %d", c.Task, got, c.Tokens)
		}
		right := fmt.Sprint(c.Label[0])
		switch c.Task {
		case "longbench-v2":
			right = "The correct answer is (" + right + ")"
		case "code_debug", "longbook_choice_eng":
			right = fmt.Sprint(c.Label[1]) + "."
		case "shortdep_cloze":
			right = `{'<mask-0>': "Paris", '<mask-1>': "Ann's"}`
		case "math_calc":
			right = "1, 3, 11"
		}
		s.o.Tokens = len(right) // one a byte here
		o, prompt := answered(t, s, s.samples[c.At], right)
		if prompt != c.Prompt {
			t.Errorf("%s: prompt\n%s\nwant\n%s", c.Task, prompt, c.Prompt)
		}
		if *o.Score != 1 {
			t.Errorf("%s: %q scores %g", c.Task, right, *o.Score)
		}
		if o, _ := answered(t, s, s.samples[c.At], "?"); *o.Score != 0 {
			t.Errorf("%s: a wrong answer scores %g", c.Task, *o.Score)
		}
		if c.Task == "shortdep_cloze" && o.Weight != 2 {
			t.Errorf("two masks weigh %g", o.Weight)
		}
		if raw, _ := json.Marshal(o.Row); len(raw) < 10 {
			t.Errorf("%s: the answer is not kept: %s", c.Task, raw)
		}
	}
}

// TestMath: MATH in its forms, and AIME's whole numbers.
func TestMath(t *testing.T) {
	for _, c := range []struct {
		task, row, pred string
		score           float64
		label, value    string
	}{
		{"math", `{"problem": "p", "solution": "so \\boxed{\\frac12}.", "level": "Level 3", "type": "Algebra"}`, `thus \boxed{1/2}`, 1, "level=3 subject=Algebra", "answered=1"},
		{"math", `{"problem": "p", "answer": "3", "subject": "Algebra", "level": 5, "solution": "none"}`, `thus 3`, 0, "level=5 subject=Algebra", "answered=0"},
		{"aime", `{"problem": "p", "answer": "073"}`, `\boxed{2} then \boxed{73}`, 1, "", "answered=1 last_number=1"},
		{"aime", `{"Problem": "p", "Answer": 73}`, `it is 73`, 0, "", "answered=0 last_number=1"},
		{"aime", `{"question": "p", "answer": 73}`, `\boxed{74}`, 0, "", "answered=1 last_number=0"},
	} {
		s, err := New("math", Options{Data: file(t, "x.jsonl", c.row), Tasks: []string{c.task}})
		if err != nil {
			t.Fatal(err)
		}
		s.o.Tokens = len(c.pred)
		o, prompt := answered(t, s, s.samples[0], c.pred)
		var labels, values []string
		for _, k := range []string{"level", "subject"} {
			if v, ok := o.Labels[k]; ok {
				labels = append(labels, k+"="+v)
			}
		}
		for _, k := range []string{"answered", "last_number"} {
			if v, ok := o.Values[k]; ok {
				values = append(values, fmt.Sprintf("%s=%g", k, v))
			}
		}
		if *o.Score != c.score || strings.Join(labels, " ") != c.label || strings.Join(values, " ") != c.value {
			t.Errorf("%s, %q: score %g, %v, %v", c.task, c.pred, *o.Score, labels, values)
		}
		if prompt != "p\nPlease reason step by step, and put your final answer within \\boxed{}." {
			t.Errorf("prompt %q", prompt)
		}
	}
}

// TestCuts: what is too long loses its middle, in tokens; the context leaves room for the answer; the chat template comes last.
func TestCuts(t *testing.T) {
	row := `{"problem": "` + strings.Repeat("0123456789", 30) + `", "answer": "1"}`
	for _, c := range []struct {
		o       Options
		context int
		want    int // tokens of the prompt without the template
	}{{Options{MaxContext: 101}, 0, 100}, {Options{Tokens: 50}, 264, 150}, {Options{Tokens: 50, NoChat: true}, 264, 150}, {Options{MaxContext: 1000}, 0, 1000}} {
		c.o.Data, c.o.Tasks = file(t, "x.jsonl", row), []string{"math"}
		s, err := New("math", c.o)
		if err != nil {
			t.Fatal(err)
		}
		r := &fakes.Runner{Context: c.context}
		ids, cut, err := s.prompt(r, s.tasks["math"], s.samples[0].Data.(*question))
		text := r.Decode(ids)
		whole := s.samples[0].Data.(*question).prompt
		want := whole
		if c.want < len(whole) {
			want = whole[:c.want/2] + whole[len(whole)-c.want/2:]
		}
		if cut != len(whole)-len(want) {
			t.Errorf("%+v: %d tokens cut", c.o, cut)
		}
		if !c.o.NoChat {
			want = "<user>" + want + "<assistant>"
		}
		if err != nil || text != want {
			t.Errorf("%+v: %q, %v; want %q", c.o, text, err, want)
		}
	}
	s, err := New("math", Options{Data: file(t, "x.jsonl", row), Tasks: []string{"math"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.prompt(&fakes.Runner{Context: 2000}, s.tasks["math"], s.samples[0].Data.(*question)); !errors.Is(err, eval.ErrTooLong) {
		t.Errorf("no room: %v", err)
	}
}

// TestFiles: a folder's tasks are those whose files are there; lists and lines are the same questions; limits count questions.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("passkey.jsonl", `{"context": "c", "input": "i", "answer": ["1"]}`+"\n\n"+`{"content": "d", "input": "i", "answer": "2"}`+"\n")
	put("kv_retrieval.json", ` [{"context": "c", "input": "i", "answer": "1"}, {"context": "d", "input": "i", "answer": "2"}]`)
	ids := func(s *Suite) (out []string) {
		for _, x := range s.samples {
			out = append(out, x.Task+"/"+x.ID)
		}
		return out
	}
	s, err := New("infinitebench", Options{Data: dir})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(ids(s), " "); got != "passkey/0 kv_retrieval/0 passkey/1 kv_retrieval/1" {
		t.Error(got)
	}
	one, err := New("infinitebench", Options{Data: filepath.Join(dir, "passkey.jsonl"), Limit: 1})
	if err != nil || strings.Join(ids(one), " ") != "passkey/0" {
		t.Errorf("%v, %v", ids(one), err)
	}
	if a, b := s.Options().(map[string]any), one.Options().(map[string]any); a["data_sha256"] == b["data_sha256"] || s.Name() != "infinitebench" || s.Metric("passkey").Kind != eval.Percent || s.Metric("passkey").Group != "retrieval" {
		t.Errorf("%v, %v", a, b)
	}
	qa := file(t, "shortdep_qa.jsonl", `{"input": "t", "qa_pairs": "[{'Q': 'a', 'A': 'b'}, {'Q': 'c', 'A': 'd'}]"}`, `{"input": "t", "qa_pairs": "[{'Q': 'e', 'A': 'f'}]"}`)
	for limit, want := range map[int]string{0: "shortdep_qa/0.0 shortdep_qa/0.1 shortdep_qa/1", 1: "shortdep_qa/0.0"} {
		if s, err := New("loogle", Options{Data: qa, Limit: limit}); err != nil || strings.Join(ids(s), " ") != want {
			t.Errorf("limit %d: %v, %v", limit, ids(s), err)
		}
	}
}

// TestRefused: what is wrong with a file is one line, with its row.
func TestRefused(t *testing.T) {
	long := `{"context": "c", "question": "q", "choice_A": "a", "choice_B": "b", "choice_C": "c", "choice_D": "d", "answer": "A"}`
	for _, c := range []struct{ suite, task, row, says string }{
		{"longbench-v2", "", strings.Replace(long, `"A"}`, `"E"}`, 1), "row 1: answer \"E\""},
		{"longbench-v2", "", long + "\n" + `{"context": 3}`, "row 2: context is no text"},
		{"longbench-v2", "", `{"context": "c"}`, "no field question"},
		{"longbench-v2", "", `{"context": `, "row 1: "},
		{"longbench-v2", "", `[` + long, "row 2: "},
		{"longbench-v2", "", `[` + long + `, 3]`, "row 2: "},
		{"longbench-v2", "", `[` + long + `, {"a": `, "data: unexpected EOF"},
		{"longbench-v2", "", `null`, "null, want an object"},
		{"longbench-v2", "", "", "no rows"},
		{"infinitebench", "passkey", `{"context": "c", "input": "i"}`, "row 1: "},
		{"infinitebench", "code_run", `{"context": "c", "input": "i", "answer": 1}`, "calls no function"},
		{"infinitebench", "math_find", `{"context": "c", "input": "i", "answer": 1}`, "asks for no number"},
		{"infinitebench", "code_debug", `{"context": "c", "input": "i", "answer": ["f"], "options": ["a", "b", "c", "d"]}`, "is no option"},
		{"infinitebench", "code_debug", `{"context": "c", "input": "i", "answer": ["a"], "options": ["a"]}`, "four texts"},
		{"loogle", "shortdep_qa", `{"input": "t", "qa_pairs": "[{'Q': 'a', "}`, "qa_pairs"},
		{"loogle", "shortdep_qa", `{"input": "t", "qa_pairs": "none"}`, "qa_pairs"},
		{"loogle", "shortdep_qa", `{"input": "t", "qa_pairs": "[{'Q': 'a', 'A': 3}]"}`, "is no text"},
		{"loogle", "shortdep_qa", `{"input": "t", "qa_pairs": "[{'A': 'a'}]"}`, "with Q"},
		{"loogle", "shortdep_cloze", `{"input": "t", "qa_pairs": "[{'Q': 'a', 'A': 'x'}]"}`, "names no masks"},
		{"loogle", "longdep_summarization", `{"input": "t"}`, "no field output"},
		{"math", "math", `{"problem": "p", "solution": "3"}`, "none in a box"},
		{"math", "aime", `{"problem": "p", "answer": "1/2"}`, "no whole number"},
		{"math", "math", `{"answer": "1/2"}`, "problem, Problem, question"},
	} {
		o := Options{Data: file(t, "x.jsonl", c.row)}
		if c.task != "" {
			o.Tasks = []string{c.task}
		}
		_, err := New(c.suite, o)
		if !errors.Is(err, eval.ErrData) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "x.jsonl") {
			t.Errorf("%s %s: %v, want %q", c.suite, c.row, err, c.says)
		}
	}
	for says, c := range map[string]struct {
		suite string
		o     Options
		want  error
	}{
		"no benchmark":         {"longbench", Options{}, eval.ErrOption},
		"has no task":          {"math", Options{Tasks: []string{"gsm"}}, eval.ErrOption},
		"x.jsonl is the file":  {"math", Options{Data: file(t, "x.jsonl", "{}")}, eval.ErrData},
		"no such file":         {"math", Options{Data: "/none"}, eval.ErrData},
		"has no file of math":  {"math", Options{Data: t.TempDir()}, eval.ErrData},
		"no aime.jsonl, no ai": {"math", Options{Data: t.TempDir(), Tasks: []string{"aime"}}, eval.ErrData},
	} {
		if _, err := New(c.suite, c.o); !errors.Is(err, c.want) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", says, err)
		}
	}
}
