package choice

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"terrace/eval"
	"terrace/eval/fakes"
)

// letterModel gives each byte of a continuation the log-probability -(letter's place in the alphabet), 0 for blanks, so
// that scores can be worked out by hand: " abc" is -6.
type letterModel struct{ fakes.Runner }

func (m *letterModel) Prompt(ctx context.Context, ids []int, policies []string, use func(int, eval.Session, error) error) error {
	return m.Runner.Prompt(ctx, ids, policies, func(i int, s eval.Session, err error) error {
		return use(i, letterSession{s}, err)
	})
}

type letterSession struct{ eval.Session }

func (s letterSession) Continue(_ context.Context, ids []int) ([]eval.TokenScore, error) {
	var out []eval.TokenScore
	for _, id := range ids {
		p := 0.0
		if id >= 'a' && id <= 'z' {
			p = -float64(id - 'a' + 1)
		}
		out = append(out, eval.TokenScore{LogProb: p})
	}
	return out, nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func evaluate(t *testing.T, s *Suite) []eval.Outcome {
	t.Helper()
	var out []eval.Outcome
	r := &letterModel{}
	samples, _ := s.Samples(context.Background(), r)
	for _, x := range samples {
		if err := s.Evaluate(context.Background(), r, x, []string{"full"}, func(o eval.Outcome) error { out = append(out, o); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// By hand: choices "b" (-2, -2 a character) and "aaa" (-3, -1 a character): acc takes b, acc_norm takes aaa.
func TestHandComputedScores(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "piqa.jsonl"), `{"goal":"Go","sol1":"b","sol2":"aaa","label":0}
{"goal":"Go","sol1":"b","sol2":"aaa","label":1}
{"goal":"Go","sol1":"aa","sol2":"b","label":0}
`)
	s, err := New(Options{Data: dir, Tasks: []string{"piqa"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ acc, norm float64 }{{1, 0}, {0, 1}, {1, 1}} // the last: -2 = -2, the first of equals; -1 beats -2
	for i, o := range evaluate(t, s) {
		if *o.Score != want[i].acc || o.Values["acc_norm"] != want[i].norm {
			t.Errorf("row %d: acc %v norm %v, want %v (%s)", i, *o.Score, o.Values["acc_norm"], want[i], o.Row)
		}
	}
	if got := string(evaluate(t, s)[0].Row); got != `{"gold":0,"greedy":[false,false],"loglikelihoods":[-2,-3]}` {
		t.Errorf("row %s", got)
	}
}

// acc_norm divides by characters, not bytes: "éa" has 2.
func TestNormIsByCharacters(t *testing.T) {
	o := outcome(eval.Sample{}, "full", &question{choices: []string{"éa", "aa"}, gold: 0}, []float64{-2.7, -2}, []bool{false, false}, 1, letterSession{fakeSession(t)}, 0)
	if o.Values["acc_norm"] != 0 || *o.Score != 0 {
		t.Errorf("%+v", o)
	}
	o = outcome(eval.Sample{}, "full", &question{choices: []string{"éa", "a"}, gold: 0}, []float64{-1.9, -1}, []bool{false, false}, 1, letterSession{fakeSession(t)}, 0)
	if o.Values["acc_norm"] != 1 || *o.Score != 0 {
		t.Errorf("%+v", o)
	}
}

// TestSplitBlanks: blanks at a prompt's end belong to what follows.
func TestSplitBlanks(t *testing.T) {
	for prompt, want := range map[string][2]string{"Go": {"Go", " on"}, "Go ": {"Go", "  on"}, "Go\n\u00a0\x1f": {"Go", "\n\u00a0\x1f on"}, "Go\u200b": {"Go\u200b", " on"}} {
		a, b, err := split(&fakes.Runner{}, prompt, "on")
		if got := [2]string{(&fakes.Runner{}).Decode(a), (&fakes.Runner{}).Decode(b)}; err != nil || got != want {
			t.Errorf("%q: %q %v, want %q", prompt, got, err, want)
		}
	}
}

func fakeSession(t *testing.T) eval.Session {
	var s eval.Session
	if err := (&fakes.Runner{}).Prompt(context.Background(), []int{1}, []string{"full"}, func(_ int, x eval.Session, _ error) error { s = x; return nil }); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPrompts(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "openbookqa", "main", "test.jsonl"), `{"question_stem":"The sun is","choices":{"text":["hot","cold"],"label":["A","B"]},"answerKey":"B"}
{"id":"1","question":{"stem":"Ice is","choices":[{"text":"hot","label":"A"},{"text":"cold","label":"B"},{"text":"old","label":"C"}]},"answerKey":" C"}
`)
	write(t, filepath.Join(dir, "piqa", "valid.jsonl"), `{"goal":"Open a jar","sol1":"Twist","sol2":"Eat"}`)
	write(t, filepath.Join(dir, "piqa", "valid-labels.lst"), "1\n")
	write(t, filepath.Join(dir, "copa", "val.jsonl"), `{"premise":"The man fell. ","question":"cause","choice1":"He slipped.","choice2":"It rained.","label":0}
{"premise":"It rained.","question":"effect","choice1":"I got wet.","choice2":"Dry.","label":1}`)
	write(t, filepath.Join(dir, "rte", "val.jsonl"), `{"premise":"P.","hypothesis":"H.","label":"not_entailment"}
{"sentence1":"P.","sentence2":"H.","label":0}`)
	s, err := New(Options{Data: dir})
	if err != nil {
		t.Fatal(err)
	}
	want := []question{
		{prompt: "The sun is", choices: []string{"hot", "cold"}, gold: 1},
		{prompt: "Ice is", choices: []string{"hot", "cold", "old"}, gold: 2},
		{prompt: "Question: Open a jar\nAnswer:", choices: []string{"Twist", "Eat"}, gold: 1},
		{prompt: "The man fell because", choices: []string{"he slipped.", "it rained."}, gold: 0},
		{prompt: "It rained therefore", choices: []string{"i got wet.", "dry."}, gold: 1},
		{prompt: "P.\nQuestion: H. True or False?\nAnswer:", choices: []string{"True", "False"}, gold: 1},
		{prompt: "P.\nQuestion: H. True or False?\nAnswer:", choices: []string{"True", "False"}, gold: 0},
	}
	if len(s.samples) != len(want) {
		t.Fatalf("%d samples", len(s.samples))
	}
	for i, x := range s.samples {
		got := *x.Data.(*question)
		if got.prompt != want[i].prompt || strings.Join(got.choices, "|") != strings.Join(want[i].choices, "|") || got.gold != want[i].gold {
			t.Errorf("%s: %+v, want %+v", x.Task, got, want[i])
		}
	}
}

// pathModel notes how each context was read: what as a prompt, what token by token, and which continuations were scored there.
type pathModel struct {
	letterModel
	paths *[]string
}

func (m *pathModel) Prompt(ctx context.Context, ids []int, policies []string, use func(int, eval.Session, error) error) error {
	return m.letterModel.Prompt(ctx, ids, policies, func(i int, s eval.Session, err error) error {
		return use(i, &pathSession{Session: s, m: m, path: policies[i] + " [" + m.Decode(ids) + "]"}, err)
	})
}

type pathSession struct {
	eval.Session
	m    *pathModel
	path string
}

func (s *pathSession) Force(ctx context.Context, ids []int, each func(int, []float32) error) error {
	s.path += s.m.Decode(ids)
	return s.Session.Force(ctx, ids, each)
}

func (s *pathSession) Continue(ctx context.Context, ids []int) ([]eval.TokenScore, error) {
	*s.m.paths = append(*s.m.paths, s.path+"|"+s.m.Decode(ids))
	return s.Session.Continue(ctx, ids)
}

// TestDecodeQuestion: the examples are the prompt, the question is read token by token under each policy, and the scores are those of the
// same text; without examples, and where answers are generated, it is refused. It is another run than that without.
func TestDecodeQuestion(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "piqa", "validation.jsonl"), `{"goal":"tt","sol1":"b","sol2":"aaa","label":0}`)
	write(t, filepath.Join(dir, "piqa", "train.jsonl"), `{"goal":"Go","sol1":"b","sol2":"c","label":0}`)
	write(t, filepath.Join(dir, "gsm8k", "test.jsonl"), `{"question":"q","answer":"#### 1"}`)
	write(t, filepath.Join(dir, "gsm8k", "train.jsonl"), `{"question":"q","answer":"#### 1"}`)
	run := func(decode bool) (paths []string, outcomes []eval.Outcome, options string) {
		s, err := New(Options{Data: dir, Tasks: []string{"piqa"}, Shots: 1, DecodeQuestion: decode})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Evaluate(context.Background(), &pathModel{paths: &paths}, s.samples[0], []string{"full", "few"}, func(o eval.Outcome) error {
			outcomes = append(outcomes, o)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(s.Options())
		if err != nil {
			t.Fatal(err)
		}
		return paths, outcomes, string(raw)
	}
	paths, decoded, options := run(true)
	var want []string
	for _, policy := range []string{"full", "few"} {
		for _, answer := range []string{" b", " aaa"} {
			want = append(want, policy+" [Question: Go\nAnswer: b\n\n]Question: tt\nAnswer:|"+answer)
		}
	}
	if !slices.Equal(paths, want) {
		t.Errorf("read %q, want %q", paths, want)
	}
	paths, whole, before := run(false)
	if len(paths) != 4 || paths[3] != "few [Question: Go\nAnswer: b\n\nQuestion: tt\nAnswer:]|"+" aaa" {
		t.Errorf("without: read %q", paths)
	}
	for i := range whole {
		if string(whole[i].Row) != string(decoded[i].Row) || whole[i].Prompt != decoded[i].Prompt || whole[i].PromptHash == decoded[i].PromptHash {
			t.Errorf("%s: %+v decoded, %+v not", whole[i].Policy, decoded[i], whole[i])
		}
	}
	if !strings.Contains(options, `"decode_question":true`) || strings.Contains(before, "decode_question") {
		t.Errorf("options %s, without %s", options, before)
	}
	for _, o := range []Options{{Tasks: []string{"piqa"}}, {Tasks: []string{"gsm8k"}, Shots: 1}} {
		o.Data, o.DecodeQuestion = dir, true
		if _, err := New(o); !errors.Is(err, eval.ErrOption) {
			t.Errorf("%v: %v", o.Tasks, err)
		}
	}
}

// Few-shot examples are right answers of other rows, the same for the same seed; from train where there is one.
func TestShots(t *testing.T) {
	dir := t.TempDir()
	var rows strings.Builder
	for _, w := range []string{"aa", "bb", "cc", "dd", "ee"} {
		rows.WriteString(`{"goal":"` + w + `","sol1":"no","sol2":"yes ` + w + `","label":1}` + "\n")
	}
	write(t, filepath.Join(dir, "piqa", "validation.jsonl"), rows.String())
	prompts := func(seed uint64) string {
		s, err := New(Options{Data: dir, Tasks: []string{"piqa"}, Shots: 2, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		var all string
		for _, x := range s.samples {
			q := x.Data.(*question)
			parts := strings.Split(q.prompt, "\n\n")
			if len(parts) != 3 || strings.Count(q.prompt, "Question: ") != 3 || strings.Count(q.prompt, parts[2]) != 1 {
				t.Errorf("prompt %q", q.prompt)
			}
			all += q.prompt + "|"
		}
		return all
	}
	if first := prompts(1); first != prompts(1) || first == prompts(2) {
		t.Error("seeds")
	}
	write(t, filepath.Join(dir, "piqa", "train.jsonl"), `{"goal":"tt","sol1":"right","sol2":"x","label":0}`)
	s, err := New(Options{Data: dir, Tasks: []string{"piqa"}, Shots: 1})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.samples[0].Data.(*question).prompt; got != "Question: tt\nAnswer: right\n\nQuestion: aa\nAnswer:" {
		t.Errorf("%q", got)
	}
	if _, err := New(Options{Data: dir, Tasks: []string{"piqa"}, Shots: 2}); !errors.Is(err, eval.ErrOption) {
		t.Errorf("too many shots: %v", err)
	}
}

// The same rows from Parquet, in Hugging Face's schema, give the same questions.
func TestParquet(t *testing.T) {
	type choices struct {
		Text  []string `parquet:"text,list"`
		Label []string `parquet:"label,list"`
	}
	type row struct {
		ID      string  `parquet:"id"`
		Stem    string  `parquet:"question_stem"`
		Choices choices `parquet:"choices"`
		Key     string  `parquet:"answerKey"`
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "openbookqa", "main", "test-00000-of-00001.parquet")
	write(t, path, "")
	rows := []row{{"1", "The sun is", choices{[]string{"hot", "cold", "wet", "dry"}, []string{"A", "B", "C", "D"}}, "B"}, {"2", "Ice é", choices{[]string{"x", "y"}, []string{"A", "B"}}, "A"}}
	if err := parquet.WriteFile(path, rows); err != nil {
		t.Fatal(err)
	}
	type small struct {
		Goal  string `parquet:"goal"`
		Sol1  string `parquet:"sol1"`
		Sol2  string `parquet:"sol2"`
		Label int64  `parquet:"label"`
	}
	if err := parquet.WriteFile(filepath.Join(dir, "piqa.parquet"), []small{{"g", "a", "b", 1}}); err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Data: dir, Tasks: []string{"openbookqa", "piqa"}})
	if err != nil {
		t.Fatal(err)
	}
	a, b := s.samples[0].Data.(*question), s.samples[2].Data.(*question)
	if a.prompt != "The sun is" || strings.Join(a.choices, ",") != "hot,cold,wet,dry" || a.gold != 1 || b.gold != 1 || b.choices[1] != "b" {
		t.Errorf("%+v %+v", a, b)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{10, len(raw) / 2, len(raw) - 1} {
		write(t, path, string(raw[:cut]))
		if _, err := New(Options{Data: dir, Tasks: []string{"openbookqa"}}); !errors.Is(err, eval.ErrData) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

func TestBadRows(t *testing.T) {
	dir := t.TempDir()
	for text, what := range map[string]string{
		`{"goal":"g","sol1":"a","sol2":"b"}`:           "label",
		`{"goal":"g","sol1":"a","sol2":"b","label":2}`: "right answer 2",
		`{"goal":"g","sol1":"a","label":0}`:            "sol2",
		`[1]`:                                          "line 1",
	} {
		write(t, filepath.Join(dir, "piqa.jsonl"), text)
		if _, err := New(Options{Data: dir, Tasks: []string{"piqa"}}); !errors.Is(err, eval.ErrData) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := New(Options{Data: dir, Tasks: []string{"rte"}}); !errors.Is(err, eval.ErrData) {
		t.Errorf("missing file: %v", err)
	}
}

// The harness's split: tokens of prompt and choice together, cut where the prompt alone ends.
func TestSplit(t *testing.T) {
	a, b, err := split(&fakes.Runner{}, "The sun is", "hot")
	if err != nil || string(rune(b[0])) != " " || len(a) != 10 || len(b) != 4 {
		t.Errorf("%v %v %v", a, b, err)
	}
	if first([]float64{1, 3, 3}) != 1 {
		t.Error("the first of equals wins")
	}
}

// TestHarnessPrompts: ARC, HellaSwag and MMLU as lm-evaluation-harness writes them (lm_eval/tasks/arc, hellaswag/utils.py, mmlu/default).
func TestHarnessPrompts(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "arc_easy", "test.jsonl"), `{"question":"What melts?","choices":{"text":["ice","rock"],"label":["1","2"]},"answerKey":"1"}`+"\n")
	write(t, filepath.Join(dir, "hellaswag", "validation.jsonl"), `{"activity_label":"Baking","ctx_a":"A man [header] bakes [title]bread.","ctx_b":"he THEN","endings":["eats  it [step]now.","runs."," sleeps.","sings."],"label":"2"}
{"activity_label":"Baking","ctx_a":"A","ctx_b":"","endings":["a","b","c","d"],"label":0}
`)
	row := func(subject, q, answer string) string {
		return `{"question":" ` + q + ` ","subject":"` + subject + `","choices":["w","x","y","z"],"answer":` + answer + "}\n"
	}
	write(t, filepath.Join(dir, "mmlu", "test.jsonl"), row("world_religions", "Q1?", "2"))
	write(t, filepath.Join(dir, "mmlu", "dev.jsonl"), row("anatomy", "D0?", "0")+row("world_religions", "D1?", "1")+row("world_religions", "D2?", `"D"`)+row("world_religions", "D3?", "0"))
	ask := "\nA. w\nB. x\nC. y\nD. z\nAnswer:"
	head := "The following are multiple choice questions (with answers) about world religions.\n\n"
	for _, c := range []struct {
		task   string
		shots  int
		prompt string
		gold   int
		first  string
	}{
		{"arc_easy", 0, "Question: What melts?\nAnswer:", 0, "ice"},
		{"hellaswag", 0, "Baking: A man bakes. bread. He then", 2, "eats it now."},
		{"mmlu", 0, head + "Q1?" + ask, 2, "A"},
		{"mmlu", 2, head + "D1?" + ask + " B\n\nD2?" + ask + " D\n\nQ1?" + ask, 2, "A"},
	} {
		s, err := New(Options{Data: dir, Tasks: []string{c.task}, Shots: c.shots})
		if err != nil {
			t.Fatal(err)
		}
		samples, _ := s.Samples(context.Background(), nil)
		q := samples[0].Data.(*question)
		if q.prompt != c.prompt || q.gold != c.gold || q.choices[0] != c.first {
			t.Errorf("%s with %d examples: %q, %d, %q", c.task, c.shots, q.prompt, q.gold, q.choices)
		}
	}
	if s, err := New(Options{Data: dir}); err != nil || len(s.o.Tasks) != 3 {
		t.Errorf("tasks that are there: %v, %v", s, err)
	}
	if _, err := New(Options{Data: dir, Tasks: []string{"mmlu"}, Shots: 4}); !errors.Is(err, eval.ErrOption) {
		t.Errorf("more examples than there are: %v", err)
	}
}
