package published

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"terrace/eval"
)

// Options of a suite.
type Options struct {
	Data       string   // a file, or a folder with the tasks' files
	Tasks      []string // empty = those whose files are there
	Limit      int      // questions a task; 0 = all
	MaxContext int      // prompt tokens before the chat template; 0 = what the model's context leaves
	Tokens     int      // of an answer at most; 0 = the benchmark's own
	NoChat     bool     // no chat template (base models)
}

// benchmark is what its authors publish.
type benchmark struct {
	name  string
	tasks []task
}

// task is one file of questions.
type task struct {
	name, metric, group string
	files               []string // names that the file has, without .jsonl and .json
	tokens              int      // of an answer
	plain               bool     // no chat template
	apart               bool     // the halves of a cut prompt are decoded each by itself
	questions           func(record) ([]question, error)
}

// question is one prompt, and how its answer is scored.
type question struct {
	prompt string
	labels map[string]string
	row    any // kept with the outcome, for people
	weight float64
	score  func(pred string) (float64, map[string]float64, error)
}

// Suite is one of the benchmarks.
type Suite struct {
	b       *benchmark
	o       Options
	sum     string
	tasks   map[string]*task
	samples []eval.Sample
}

var benchmarks = []*benchmark{&longbench2, &infiniteBench, &looGLE, &mathematics}

// Tasks lists those of a benchmark; nil of one that is not here.
func Tasks(name string) (out []string) {
	for _, b := range benchmarks {
		for i := range b.tasks {
			if b.name == name {
				out = append(out, b.tasks[i].name)
			}
		}
	}
	return out
}

// New reads the questions of a benchmark: longbench-v2, infinitebench, loogle or math. Errors wrap eval.ErrOption and eval.ErrData; they
// name file and row.
func New(name string, o Options) (*Suite, error) {
	for _, b := range benchmarks {
		if b.name == name {
			return b.open(o)
		}
	}
	return nil, fmt.Errorf("published: no benchmark %q: %w", name, eval.ErrOption)
}

func (b *benchmark) open(o Options) (*Suite, error) {
	if _, err := eval.CheckTasks(b.name, Tasks(b.name), o.Tasks); err != nil {
		return nil, err
	}
	files, err := b.find(o.Data, o.Tasks)
	if err != nil {
		return nil, err
	}
	s := &Suite{b: b, o: o, tasks: map[string]*task{}}
	s.o.Tasks = nil
	var hash digest
	for i := range b.tasks {
		t := &b.tasks[i]
		path := files[t.name]
		if path == "" {
			continue
		}
		s.o.Tasks, s.tasks[t.name] = append(s.o.Tasks, t.name), t
		if err := hash.read(path, o.Limit, t, func(id string, q question) {
			s.samples = append(s.samples, eval.Sample{Task: t.name, ID: id, Data: &q})
		}); err != nil {
			return nil, err
		}
	}
	s.sum = hash.String()
	s.inTurn()
	return s, nil
}

// inTurn puts the first question of each task before the second ones, so that a run that is stopped early has every task in it.
func (s *Suite) inTurn() {
	at, place := map[string]int{}, make([]int, len(s.samples))
	order := make([]int, len(s.samples))
	for i, x := range s.samples {
		order[i], place[i] = i, at[x.Task]
		at[x.Task]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(place[a], place[b]) })
	samples := make([]eval.Sample, len(order))
	for i, k := range order {
		samples[i] = s.samples[k]
	}
	s.samples = samples
}

// Name is the benchmark's.
func (s *Suite) Name() string { return s.b.name }

// Options identify settings and data.
func (s *Suite) Options() any {
	return map[string]any{"tasks": s.o.Tasks, "limit": s.o.Limit, "max_context": s.o.MaxContext, "tokens": s.o.Tokens, "no_chat": s.o.NoChat, "data_sha256": s.sum}
}

// Samples are the questions: the first of each task, then the second of each, and so on.
func (s *Suite) Samples(context.Context, eval.Runner) ([]eval.Sample, error) { return s.samples, nil }

// Metric of every task is a percentage.
func (s *Suite) Metric(name string) eval.Metric {
	t := s.tasks[name]
	if t == nil {
		return eval.Metric{Name: "score", Kind: eval.Percent}
	}
	return eval.Metric{Name: t.metric, Kind: eval.Percent, Group: t.group}
}

// chatReserve is what a chat template may add to a prompt when the limit is the model's context.
const chatReserve = 64

// answerTokens is how long an answer may be.
func (s *Suite) answerTokens(t *task) int {
	if s.o.Tokens > 0 {
		return s.o.Tokens
	}
	return t.tokens
}

// prompt is what the model reads: the official prompt, its middle cut out where it is too long. cut is the number of tokens taken out.
func (s *Suite) prompt(r eval.Runner, t *task, q *question) (ids []int, cut int, err error) {
	text := q.prompt
	if ids, err = r.Encode(text); err != nil {
		return nil, 0, err
	}
	limit := s.o.MaxContext
	if limit == 0 && r.Model().Context > 0 {
		if limit = r.Model().Context - s.answerTokens(t) - chatReserve; limit < 2 {
			return nil, 0, fmt.Errorf("published: an answer of %d tokens leaves no room for the prompt in a context of %d (lower --tokens, or raise --context): %w", s.answerTokens(t), r.Model().Context, eval.ErrTooLong)
		}
	}
	if limit > 0 && len(ids) > limit {
		cut = len(ids) - limit/2*2
		head, tail := ids[:limit/2], ids[len(ids)-limit/2:]
		if t.apart {
			text = r.Decode(head) + r.Decode(tail)
		} else {
			text = r.Decode(append(append([]int(nil), head...), tail...))
		}
		if ids, err = r.Encode(text); err != nil {
			return nil, 0, err
		}
	}
	if t.plain || s.o.NoChat || !r.Model().HasChat {
		return ids, cut, nil
	}
	ids, err = r.EncodeChat(text)
	return ids, cut, err
}

// Evaluate answers one question under each policy.
func (s *Suite) Evaluate(ctx context.Context, r eval.Runner, sample eval.Sample, policies []string, emit func(eval.Outcome) error) error {
	q, t := sample.Data.(*question), s.tasks[sample.Task]
	begun := r.Now()
	ids, cut, err := s.prompt(r, t, q)
	if err != nil {
		return err
	}
	asked := eval.Question{IDs: ids, Encode: r.Now().Sub(begun), Cut: cut, Gen: eval.Generate{MaxTokens: s.answerTokens(t)}}
	asked.Score = func(o *eval.Outcome) error {
		score, values, err := q.score(o.Pred)
		if err != nil {
			return err
		}
		o.Score, o.Values, o.Labels, o.Weight = &score, values, q.labels, q.weight
		o.Row, err = marshal(q.row)
		return err
	}
	return eval.Ask(ctx, r, sample, asked, policies, emit)
}

// PromptIDs is what the model reads for a sample.
func (s *Suite) PromptIDs(r eval.Runner, x eval.Sample) ([]int, error) {
	ids, _, err := s.prompt(r, s.tasks[x.Task], x.Data.(*question))
	return ids, err
}

// filled is a template whose fields, {name}, are replaced at once; values are name, text, name, text.
func filled(template string, values ...string) string {
	for i := 0; i < len(values); i += 2 {
		values[i] = "{" + values[i] + "}"
	}
	return strings.NewReplacer(values...).Replace(template)
}
