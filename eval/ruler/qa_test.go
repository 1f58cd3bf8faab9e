package ruler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"terrace/eval"
	"terrace/eval/fakes"
)

// documents are the texts that an input shows, sorted, and what is around them.
func documents(t *testing.T, input string) (docs []string, head, tail string) {
	t.Helper()
	head, rest, ok := strings.Cut(input, "Document 1:\n")
	at := strings.LastIndex(rest, "\n\nAnswer the question")
	if !ok || at < 0 {
		t.Fatalf("no documents in %q", input)
	}
	docs, tail = regexp.MustCompile(`\n\nDocument \d+:\n`).Split(rest[:at], -1), rest[at:]
	for i := range docs {
		if i > 0 && !strings.Contains(input, "\n\nDocument "+strconv.Itoa(i+1)+":\n") {
			t.Errorf("document %d is not numbered", i+1)
		}
	}
	slices.Sort(docs)
	return docs, head, tail
}

// TestQAReference: questions, documents and prompts are those that NVIDIA/RULER's own functions make of the same files
// (testdata/qa/generate.py), but for the order of the documents and which are drawn.
func TestQAReference(t *testing.T) {
	type dataset struct {
		Docs []string
		QAs  []struct {
			Query   string
			Outputs []string
			Context []int
			More    []int `json:"more_context"`
		}
		Inputs []map[string]string
	}
	var golden struct {
		Tokens          int
		Prefix          string
		Squad, HotpotQA dataset
	}
	raw, err := os.ReadFile("testdata/qa/golden.json")
	if err == nil {
		err = json.Unmarshal(raw, &golden)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]dataset{"qa_1": golden.Squad, "qa_2": golden.HotpotQA} {
		c, err := readCorpus("testdata/qa", name)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.docs, want.Docs) || len(c.questions) != len(want.QAs) || len(c.questions) < 8 {
			t.Fatalf("%s: %d documents, %d questions; want %d and %d", name, len(c.docs), len(c.questions), len(want.Docs), len(want.QAs))
		}
		for i, q := range want.QAs {
			got := c.questions[i]
			if got.query != q.Query || !slices.Equal(got.answers, q.Outputs) || !slices.Equal(got.own, q.Context) || !slices.Equal(got.more, q.More) {
				t.Errorf("%s, question %d: %+v, want %+v", name, i, got, q)
			}
		}
		for i, sizes := range want.Inputs {
			for n, input := range sizes {
				size, err := strconv.Atoi(n)
				if err != nil {
					t.Fatal(err)
				}
				p := c.build(rng(uint64(i)), i, size)
				wantDocs, head, tail := documents(t, input)
				gotDocs, gotHead, gotTail := documents(t, p.input)
				if !slices.Equal(gotDocs, wantDocs) || gotHead != head || gotTail != tail || p.prefix != golden.Prefix {
					t.Errorf("%s, question %d, %d documents:\n%q\nwant\n%q", name, i, size, p.input, input)
				}
			}
		}
	}
	for _, task := range tasks {
		if task.isQA() && task.tokens != golden.Tokens {
			t.Errorf("%s: %d tokens, want %d", task.name, task.tokens, golden.Tokens)
		}
	}
}

// TestQAIsStable: the same seed gives the same bytes on every machine, fewer documents are the first of more, and those of a
// question are always there.
func TestQAIsStable(t *testing.T) {
	h := sha256.New()
	for _, name := range []string{"qa_1", "qa_2"} {
		c, err := readCorpus("testdata/qa", name)
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range c.questions {
			var before []string
			for size := len(q.own); size < len(c.docs); size++ {
				p := c.build(rng(7), i, size)
				h.Write([]byte(p.input))
				docs, _, _ := documents(t, p.input)
				for _, d := range before {
					if !slices.Contains(docs, d) {
						t.Errorf("%s, question %d: %d documents lack one of those before", name, i, size)
					}
				}
				for _, d := range q.own {
					if !slices.Contains(docs, c.docs[d]) {
						t.Errorf("%s, question %d: %d documents lack its own", name, i, size)
					}
				}
				if before = docs; len(slices.Compact(slices.Clone(docs))) != size {
					t.Errorf("%s, question %d: not %d different documents", name, i, size)
				}
			}
		}
	}
	if got, want := hex.EncodeToString(h.Sum(nil)[:8]), "5f06bf48fa5044ca"; got != want {
		t.Errorf("texts of seed 7 are %s, want %s: samples of runs made before would be others", got, want)
	}
}

// TestQALongBench: passages of LongBench's rows are documents.
func TestQALongBench(t *testing.T) {
	dir := t.TempDir()
	row := `{"input":"Who?","context":"Passage 1:\nA\nAnn is old.\n\nShe rests.\n\nPassage 2:\nB\nBob.\n","answers":["Ann"]}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "hotpotqa.jsonl"), []byte(row+strings.Replace(row, "Who?", "When?", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := readCorpus(dir, "qa_2")
	if err != nil || !slices.Equal(c.docs, []string{"A\nAnn is old.\n\nShe rests.", "B\nBob."}) || len(c.questions) != 2 || !slices.Equal(c.questions[1].own, []int{0, 1}) {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestQAData: what is there is run, what is asked for must be there, and damage is named.
func TestQAData(t *testing.T) {
	s, err := New(Options{Data: essayFolder(t)})
	if err != nil || len(s.tasks) != len(tasks)-2 {
		t.Errorf("essays alone: %d tasks, %v", len(s.tasks), err)
	}
	if _, err := New(Options{Data: t.TempDir(), Tasks: []string{"qa_1"}}); !errors.Is(err, eval.ErrData) || !strings.Contains(err.Error(), "dev-v2.0.json") {
		t.Errorf("no file: %v", err)
	}
	if _, err := New(Options{Data: "testdata", Tasks: []string{"qa_2"}, Samples: 9}); !errors.Is(err, eval.ErrOption) || !strings.Contains(err.Error(), "8 questions") {
		t.Errorf("more samples than questions: %v", err)
	}
	for file, bad := range map[string]map[string]string{
		"squad.json":     {"qa_1": `{"data":[{"paragraphs":[{"context":"c","qas":[{"question":"q","answers":[]}]}]}]}`},
		"dev-v1.1.json":  {"qa_1": `{"data":[]}`},
		"hotpotqa.json":  {"qa_2": `[{"question":"q","answer":"a","context":[["t","no list"]]}]`},
		"hotpotqa.jsonl": {"qa_2": `{"input":"q","context":"c","answers":[""]}`},
	} {
		for task, text := range bad {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := New(Options{Data: dir, Tasks: []string{task}}); !errors.Is(err, eval.ErrData) || !strings.Contains(err.Error(), file) {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// TestQAScores: one of the answers will do, and a question whose own documents do not fit fails alone.
func TestQAScores(t *testing.T) {
	s, err := New(Options{Data: "testdata", Tasks: []string{"qa_1", "qa_2"}, Lengths: []int{600, 2000}, Samples: 4, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	if m := s.Metric("qa_2"); m.Name != "string_match_part" || s.Metric("vt").Name != "string_match_all" {
		t.Errorf("%+v", m)
	}
	if raw, _ := json.Marshal(s.Options()); strings.Count(string(raw), "_sha256") != 2 {
		t.Errorf("options %s", raw)
	}
	r := &fakes.Runner{}
	samples, err := s.Samples(context.Background(), r)
	if err != nil || len(samples) != 16 {
		t.Fatalf("%d samples, %v", len(samples), err)
	}
	for _, x := range samples {
		p := s.make(x.Data.(*spec))
		r.Answer = func(_, policy string) string {
			return map[string]string{"full": "it is " + p.answers[0], "few": "no"}[policy]
		}
		var got []eval.Outcome
		if err := s.Evaluate(context.Background(), r, x, []string{"full", "few"}, func(o eval.Outcome) error { got = append(got, o); return nil }); err != nil {
			t.Fatal(err)
		}
		if *got[0].Score != 1 || *got[1].Score != 0 {
			t.Errorf("%s/%s: scores %v and %v", x.Task, x.ID, *got[0].Score, *got[1].Score)
		}
		if length := x.Data.(*spec).length; got[0].Prompt+32 > length || got[0].Prompt+32 < length-150 {
			t.Errorf("%s/%s: %d of %d tokens", x.Task, x.ID, got[0].Prompt+32, length)
		}
	}
	x := samples[0]
	x.Data = &spec{task: s.tasks[0], length: 300, size: 4}
	if err := s.Evaluate(context.Background(), r, x, []string{"full"}, nil); !errors.Is(err, eval.ErrTooLong) {
		t.Errorf("a question too long for its length: %v", err)
	}
}
