package choice

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"terrace/eval"
)

// Options of the suite.
type Options struct {
	Data  string
	Tasks []string
	Limit int // questions a task; 0 = all
	Shots int // few-shot examples; TaskShots = the harness's number for each task: 5 for gsm8k, none for the others
	Seed  uint64
	// DecodeQuestion has the question itself read as answers are, a token at a time under the policy; the prompt is the examples
	// before it alone. Otherwise a policy that acts while decoding leaves the first token of each answer to the whole prompt, which
	// is all there is of an answer such as RTE's.
	DecodeQuestion bool
}

// TaskShots leaves the number of examples to the task.
const TaskShots = -1

// Suite is the harness's tasks.
type Suite struct {
	o       Options
	tasks   []task
	digests []string
	samples []eval.Sample
}

// New reads the data and builds the prompts.
func New(o Options) (*Suite, error) {
	if len(o.Tasks) == 0 {
		o.Tasks = present(o.Data)
	}
	names, err := eval.CheckTasks("choice", TaskNames(), o.Tasks)
	if err != nil {
		return nil, err
	}
	if o.Shots < TaskShots || o.Shots > 1000 {
		return nil, fmt.Errorf("choice: %d few-shot examples: %w", o.Shots, eval.ErrOption)
	}
	s := &Suite{o: o}
	s.o.Tasks = names
	for _, t := range tasks {
		if slices.Contains(names, t.name) {
			if err := s.add(t); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// present are the tasks that have a file or folder of their own; nil where there is none.
func present(dir string) (names []string) {
	for _, name := range TaskNames() {
		for _, end := range []string{"", ".jsonl", ".parquet"} {
			if _, err := os.Stat(filepath.Join(dir, name+end)); err == nil {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// add reads one task.
func (s *Suite) add(t task) error {
	questions, path, err := s.load(t, t.splits)
	if err != nil {
		return err
	}
	pool := questions
	own := true // examples come from the scored file, the question itself left out
	if s.shotsOf(t) > 0 {
		train, other, err := s.load(t, []string{orTrain(t.firsts)})
		if err == nil && other != path {
			pool, own = train, false
		} else if t.firsts != "" || t.generates != nil {
			return fmt.Errorf("choice: %s takes its examples from the file %s*, which is not there beside %s: %w", t.name, orTrain(t.firsts), path, eval.ErrOption)
		}
	}
	draw := s.drawOf(t, pool, own)
	for i, q := range questions {
		if s.o.Limit > 0 && i >= s.o.Limit {
			break
		}
		shots, err := s.shots(t, pool, draw(q, i))
		if err != nil {
			return err
		}
		q.given = q.head + shots
		if s.o.DecodeQuestion && (q.given == "" || t.generates != nil) {
			return fmt.Errorf("choice: %s has no examples before its questions, or generates its answers: its questions are the prompt, and cannot be decoded: %w", t.name, eval.ErrOption)
		}
		q.prompt = q.given + q.prompt
		s.samples = append(s.samples, eval.Sample{Task: t.name, ID: strconv.Itoa(i), Data: &q})
	}
	s.tasks = append(s.tasks, t)
	return nil
}

func orTrain(split string) string {
	if split == "" {
		return "train"
	}
	return split
}

// load reads one split's questions.
func (s *Suite) load(t task, splits []string) ([]question, string, error) {
	path, err := find(s.o.Data, t.name, splits)
	if err != nil {
		return nil, "", err
	}
	rows, err := read(path)
	if err != nil {
		return nil, "", err
	}
	var out []question
	for i, r := range rows {
		q, err := t.parse(r)
		if err == nil && (q.gold < 0 || q.gold >= len(q.choices) || slices.Contains(q.choices, "") || strings.TrimSpace(q.prompt) == "") {
			err = fmt.Errorf("right answer %d of %q: %w", q.gold, q.choices, eval.ErrData)
		}
		if err != nil {
			return nil, "", fmt.Errorf("choice: %s, row %d: %w", path, i+1, err)
		}
		out = append(out, q)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, "", fmt.Errorf("choice: %w: %w", eval.ErrData, err)
	}
	sum := sha256.Sum256(raw)
	s.digests = append(s.digests, hex.EncodeToString(sum[:12]))
	return out, path, nil
}

// shotsOf is how many examples a task's questions have.
func (s *Suite) shotsOf(t task) int {
	switch {
	case s.o.Shots != TaskShots:
		return s.o.Shots
	case t.generates != nil:
		return t.generates.shots
	}
	return 0
}

// drawOf gives what chooses a question's examples, by their places in the pool; questions come in order. own: the question is
// among them.
func (s *Suite) drawOf(t task, pool []question, own bool) func(asked question, index int) []int {
	n := s.shotsOf(t)
	switch {
	case n == 0:
		return func(question, int) []int { return nil }
	case t.generates != nil:
		d := newHarnessDraw()
		return func(question, int) []int { return d.sample(len(pool), min(n, len(pool))) }
	}
	return func(asked question, index int) (chosen []int) {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s/%d", t.name, index)
		order := rand.New(rand.NewPCG(s.o.Seed, h.Sum64())).Perm(len(pool))
		if t.firsts != "" {
			slices.Sort(order)
		}
		for _, i := range order {
			if len(chosen) == n {
				break
			}
			if !(own && i == index) && pool[i].group == asked.group {
				chosen = append(chosen, i)
			}
		}
		return chosen
	}
}

// shots are the examples before a question: each a prompt, a blank, the right answer, an empty line.
func (s *Suite) shots(t task, pool []question, chosen []int) (string, error) {
	if n := s.shotsOf(t); len(chosen) < n {
		return "", fmt.Errorf("choice: %s has %d rows to draw %d examples from: %w", t.name, len(pool), n, eval.ErrOption)
	}
	var b strings.Builder
	for _, i := range chosen {
		b.WriteString(pool[i].prompt + " " + pool[i].choices[pool[i].gold] + "\n\n")
	}
	return b.String(), nil
}

// Name is choice.
func (s *Suite) Name() string { return "choice" }

// Options identify settings and data.
func (s *Suite) Options() any {
	m := map[string]any{"tasks": s.o.Tasks, "limit": s.o.Limit, "shots": max(0, s.o.Shots), "data_sha256": s.digests}
	own := map[string]int{}
	for _, t := range s.tasks {
		if n := s.shotsOf(t); n != max(0, s.o.Shots) {
			own[t.name] = n
		}
	}
	if len(own) > 0 {
		m["task_shots"] = own
	}
	if s.o.DecodeQuestion {
		m["decode_question"] = true
	}
	return m
}

// Samples are the questions.
func (s *Suite) Samples(context.Context, eval.Runner) ([]eval.Sample, error) { return s.samples, nil }

// Metric is accuracy, of a generated answer that of its strict form.
func (s *Suite) Metric(name string) eval.Metric {
	if g := generates(name); g != nil {
		return eval.Metric{Name: g.metric, Kind: eval.Percent}
	}
	return eval.Metric{Name: "acc", Kind: eval.Percent}
}

// generates says how a task's answers are generated; nil = they are choices.
func generates(name string) *generated {
	for _, t := range tasks {
		if t.name == name {
			return t.generates
		}
	}
	return nil
}

// split tokenises prompt and choice together and cuts where the prompt alone ends, as the harness does: blanks at its end belong to what follows.
func split(r eval.Runner, prompt, choice string) (context, continuation []int, err error) {
	whole, err := r.Encode(prompt + " " + choice)
	if err != nil {
		return nil, nil, err
	}
	alone, err := r.Encode(strings.TrimRightFunc(prompt, blank))
	if err != nil {
		return nil, nil, err
	}
	n := min(len(alone), len(whole)-1)
	return whole[:n], whole[n:], nil
}

// blank reports whether Python's rstrip takes a character away: Unicode's white space and four separators of ASCII.
func blank(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// Evaluate scores every choice of a question under each policy; choices share the prompt. Where the answer is generated, it
// scores that.
func (s *Suite) Evaluate(ctx context.Context, r eval.Runner, sample eval.Sample, policies []string, emit func(eval.Outcome) error) error {
	if g := generates(sample.Task); g != nil {
		return s.evaluateGenerated(ctx, r, sample, g, policies, emit)
	}
	q := sample.Data.(*question)
	begun := r.Now()
	var contexts, conts [][]int
	for _, c := range q.choices {
		a, b, err := split(r, q.prompt, c)
		if err != nil {
			return err
		}
		contexts, conts = append(contexts, a), append(conts, b)
	}
	hash := eval.HashPrompt(contexts[0], contexts[1:], conts, q.gold)
	examples := 0
	if s.o.DecodeQuestion {
		var err error
		if examples, err = sharedWith(r, q.given, contexts); err != nil {
			return err
		}
		hash = eval.HashPrompt(contexts[0], contexts[1:], conts, q.gold, examples)
	}
	encode := r.Now().Sub(begun)
	same := func(a []int) bool { return slices.Equal(a, contexts[0]) }
	return ask(ctx, r, contexts[0], examples, policies, func(i int, session eval.Session, err error) error {
		lls, greedy := make([]float64, len(conts)), make([]bool, len(conts))
		for c := 0; c < len(conts) && err == nil; c++ {
			if same(contexts[c]) {
				lls[c], greedy[c], err = likelihood(ctx, session, conts[c])
				continue
			}
			// The prompt's last token merged with this choice: it has a prompt of its own.
			err = ask(ctx, r, contexts[c], examples, policies[i:i+1], func(_ int, other eval.Session, err error) error {
				if err == nil {
					lls[c], greedy[c], err = likelihood(ctx, other, conts[c])
				}
				return err
			})
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			o := eval.Failed(sample, policies[i], err)
			o.PromptHash = hash
			return emit(o)
		}
		o := outcome(sample, policies[i], q, lls, greedy, len(contexts[0]), session, encode)
		o.PromptHash = hash
		return emit(o)
	})
}

// ask reads a context under policies: its first tokens as a prompt, the others one at a time, as answers are read. prompt = 0: all
// are the prompt.
func ask(ctx context.Context, r eval.Runner, ids []int, prompt int, policies []string, use func(policy int, s eval.Session, err error) error) error {
	if prompt == 0 {
		prompt = len(ids)
	}
	return r.Prompt(ctx, ids[:prompt], policies, func(i int, session eval.Session, err error) error {
		if err == nil {
			err = session.Force(ctx, ids[prompt:], func(int, []float32) error { return nil })
		}
		return use(i, session, err)
	})
}

// sharedWith is how many first tokens all contexts have in common with those of the examples before the question; each context has
// more.
func sharedWith(r eval.Runner, examples string, contexts [][]int) (int, error) {
	alone, err := r.Encode(examples)
	if err != nil {
		return 0, err
	}
	n := len(alone)
	for _, ids := range contexts {
		n = min(n, len(ids)-1)
		for i := range n {
			if ids[i] != alone[i] {
				n = i
				break
			}
		}
	}
	if n < 1 {
		return 0, fmt.Errorf("choice: examples %q share no token with the prompt that begins with them: %w", examples, eval.ErrData)
	}
	return n, nil
}

// likelihood is a continuation's log-probability, and whether greedy decoding would have given it.
func likelihood(ctx context.Context, s eval.Session, ids []int) (sum float64, greedy bool, err error) {
	scores, err := s.Continue(ctx, ids)
	greedy = true
	for _, t := range scores {
		sum += t.LogProb
		greedy = greedy && t.Greedy
	}
	return sum, greedy, err
}

// outcome scores the likelihoods: acc takes the greatest, acc_norm the greatest per character of the choice.
func outcome(sample eval.Sample, policy string, q *question, lls []float64, greedy []bool, prompt int, session eval.Session, encode time.Duration) eval.Outcome {
	norm := make([]float64, len(lls))
	for i, ll := range lls {
		norm[i] = ll / float64(utf8.RuneCountInString(q.choices[i]))
	}
	best, bestNorm := first(lls), first(norm)
	acc := hit(best == q.gold)
	o := eval.Outcome{Task: sample.Task, ID: sample.ID, Policy: policy, Score: &acc, Pred: q.choices[best], Prompt: prompt,
		Values: map[string]float64{"acc_norm": hit(bestNorm == q.gold)}}
	o.Took(encode, session.Cost(), nil)
	o.Row, _ = json.Marshal(map[string]any{"loglikelihoods": lls, "greedy": greedy, "gold": q.gold}) // numbers and truth values: cannot fail
	return o
}

func hit(ok bool) float64 {
	if ok {
		return 1
	}
	return 0
}

// first is the index of the first greatest value (numpy's argmax).
func first(xs []float64) int {
	at := 0
	for i, x := range xs {
		if x > xs[at] {
			at = i
		}
	}
	return at
}
