package ruler

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"terrace/eval"
	"terrace/eval/metrics"
)

// task is one generator: the step of its size, the longest answer in tokens, and its builder.
type task struct {
	name   string
	tokens int
	step   func(length int) int // sizes are multiples of it
	max    int                  // largest size; 0 = none
	essay  bool
	build  func(rng *rand.Rand, e *essays, size, length int, at []float64) problem
	corpus *corpus // of a qa task, which its problems are built from instead; read when the suite is made
}

// isQA reports whether a task asks about documents of a data set.
func (t *task) isQA() bool { return qaFiles[t.name] != nil }

func needles(name string, t needleTask) task {
	return task{name: name, tokens: 128, essay: t.haystack == "essay",
		step: func(length int) int {
			if t.haystack == "essay" {
				return min(500, max(25, length/32))
			}
			return 5
		},
		build: func(rng *rand.Rand, e *essays, size, _ int, at []float64) problem { return t.build(rng, e, size, at) }}
}

func ten(int) int { return 10 }

var tasks = []task{
	needles("niah_single_1", needleTask{"repeat", names, numbers, 1, 1, 1}),
	needles("niah_single_2", needleTask{"essay", names, numbers, 1, 1, 1}),
	needles("niah_single_3", needleTask{"essay", names, uuids, 1, 1, 1}),
	needles("niah_multikey_1", needleTask{"essay", names, numbers, 4, 1, 1}),
	needles("niah_multikey_2", needleTask{"needle", names, numbers, 1, 1, 1}),
	needles("niah_multikey_3", needleTask{"needle", uuids, uuids, 1, 1, 1}),
	needles("niah_multivalue", needleTask{"essay", names, numbers, 1, 4, 1}),
	needles("niah_multiquery", needleTask{"essay", names, numbers, 1, 1, 4}),
	{name: "vt", tokens: 30, step: func(int) int { return 2 }, build: func(rng *rand.Rand, _ *essays, size, _ int, _ []float64) problem { return tracking(rng, size) }},
	{name: "cwe", tokens: 120, step: ten, max: 8000, build: func(rng *rand.Rand, _ *essays, size, length int, _ []float64) problem {
		return commonWords(rng, size, length)
	}},
	{name: "fwe", tokens: 50, step: ten, build: func(rng *rand.Rand, _ *essays, size, length int, _ []float64) problem {
		return frequentWords(rng, size, length)
	}},
	{name: "qa_1", tokens: 32, step: one},
	{name: "qa_2", tokens: 32, step: one},
}

// one document: RULER fits by the same, and takes ten off at a time where a sample is too long.
func one(int) int { return 1 }

// TaskNames lists RULER's tasks.
func TaskNames() []string {
	var out []string
	for _, t := range tasks {
		out = append(out, t.name)
	}
	return out
}

// Options of both suites.
type Options struct {
	Data    string    // folder of essays (.txt), which tasks with an essay haystack need, and of SQuAD's and HotpotQA's files for qa_1 and qa_2
	Tasks   []string  // nil = all, qa_1 and qa_2 only where Data has their files
	Lengths []int     // tokens, answer included
	Depths  []float64 // of the grid, percent; nil = RULER proper
	Samples int       // a task and length, or a cell of the grid; 0 = 1
	Seed    uint64
	NoChat  bool
}

// Suite is RULER, or the NIAH grid when Depths are given.
type Suite struct {
	o      Options
	tasks  []task
	essays *essays
}

// spec is the Data of a sample; its text is made when it is run.
type spec struct {
	task          task
	length, index int
	size          int
	depth         []float64
}

// New checks options and reads the essays.
func New(o Options) (*Suite, error) {
	o.Samples = max(1, o.Samples)
	if len(o.Lengths) == 0 {
		o.Lengths = []int{4096}
	}
	for _, n := range o.Lengths {
		if n < 256 || n > 1<<24 {
			return nil, fmt.Errorf("ruler: length of %d tokens, want 256 to 16M: %w", n, eval.ErrOption)
		}
	}
	for _, d := range o.Depths {
		if !(d >= 0 && d <= 100) {
			return nil, fmt.Errorf("ruler: depth %v, want 0 to 100 percent: %w", d, eval.ErrOption)
		}
	}
	s := &Suite{o: o}
	if o.Depths != nil {
		s.tasks = []task{tasks[1]} // a number in the essays
		s.tasks[0].name = "niah"
	} else if err := s.choose(); err != nil {
		return nil, err
	}
	return s, s.read()
}

// read reads what the tasks are made of.
func (s *Suite) read() (err error) {
	for i := range s.tasks {
		t := &s.tasks[i]
		if t.essay && s.essays == nil {
			if s.essays, err = readEssays(s.o.Data); err != nil {
				return err
			}
		}
		if !t.isQA() {
			continue
		}
		if t.corpus, err = readCorpus(s.o.Data, t.name); err != nil {
			return err
		}
		if n := len(t.corpus.questions); n < s.o.Samples {
			return fmt.Errorf("ruler: %s: its file has %d questions, %d are asked for: %w", t.name, n, s.o.Samples, eval.ErrOption)
		}
	}
	return nil
}

func (s *Suite) choose() error {
	names, err := eval.CheckTasks("ruler", TaskNames(), s.o.Tasks)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if !slices.Contains(names, t.name) {
			continue
		}
		if _, err := qaFile(s.o.Data, t.name); len(s.o.Tasks) == 0 && t.isQA() && err != nil {
			continue
		}
		s.tasks = append(s.tasks, t)
	}
	return nil
}

// Name is ruler or niah.
func (s *Suite) Name() string {
	if s.o.Depths != nil {
		return "niah"
	}
	return "ruler"
}

// Options identify settings and data.
func (s *Suite) Options() any {
	var names []string
	for _, t := range s.tasks {
		names = append(names, t.name)
	}
	m := map[string]any{"tasks": names, "lengths": s.o.Lengths, "depths": s.o.Depths, "samples": s.o.Samples, "no_chat": s.o.NoChat}
	if s.essays != nil {
		m["data_sha256"] = s.essays.digest
	}
	for _, t := range s.tasks {
		if t.corpus != nil {
			m[t.name+"_sha256"] = t.corpus.digest
		}
	}
	return m
}

// Metric is string_match_all, of questions string_match_part: one of the answers will do.
func (s *Suite) Metric(name string) eval.Metric {
	if qaFiles[name] != nil {
		return eval.Metric{Name: "string_match_part", Kind: eval.Percent}
	}
	return eval.Metric{Name: "string_match_all", Kind: eval.Percent}
}

// rng is the random stream of a sample: the same whatever else is run.
func (s *Suite) rng(x *spec) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d/%d/%v", x.task.name, x.length, x.index, x.depth)
	return rand.New(rand.NewPCG(s.o.Seed, h.Sum64()))
}

// Samples fits each task to each length.
func (s *Suite) Samples(ctx context.Context, r eval.Runner) ([]eval.Sample, error) {
	var out []eval.Sample
	for _, t := range s.tasks {
		for _, length := range s.o.Lengths {
			size, err := s.fit(ctx, r, t, length)
			if err != nil {
				return nil, err
			}
			depths := [][]float64{nil}
			if s.o.Depths != nil {
				depths = depths[:0]
				for _, d := range s.o.Depths {
					depths = append(depths, []float64{d})
				}
			}
			for _, d := range depths {
				for i := range s.o.Samples {
					id := fmt.Sprintf("%d-%d", length, i)
					if d != nil {
						id = fmt.Sprintf("%d-%v-%d", length, d[0], i)
					}
					out = append(out, eval.Sample{Task: t.name, ID: id, Data: &spec{t, length, i, size, d}})
				}
			}
		}
	}
	return out, nil
}

// fit finds the largest size whose sample fits the length.
func (s *Suite) fit(ctx context.Context, r eval.Runner, t task, length int) (int, error) {
	step := t.step(length)
	fits := func(k int) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if t.max > 0 && k*step > t.max {
			return false, nil
		}
		x := &spec{task: t, length: length, index: -1, size: k * step}
		n, err := s.count(r, x)
		return n+t.tokens <= length, err
	}
	if ok, err := fits(1); err != nil || !ok {
		if err == nil {
			err = fmt.Errorf("ruler: %s does not fit %d tokens: %w", t.name, length, eval.ErrOption)
		}
		return 0, err
	}
	lo, hi := 1, 2
	for {
		ok, err := fits(hi)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		lo, hi = hi, 2*hi
	}
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		ok, err := fits(mid)
		if err != nil {
			return 0, err
		}
		if ok {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo * step, nil
}

// make builds the text of a sample.
func (s *Suite) make(x *spec) problem {
	if x.task.corpus != nil {
		return x.task.corpus.build(s.rng(x), x.index, x.size)
	}
	return x.task.build(s.rng(x), s.essays, x.size, x.length, x.depth)
}

func (s *Suite) count(r eval.Runner, x *spec) (int, error) {
	ids, err := s.encode(r, s.make(x))
	return len(ids), err
}

// encode puts the input into the chat template, where the model has one, and begins the answer.
func (s *Suite) encode(r eval.Runner, p problem) ([]int, error) {
	if s.o.NoChat || !r.Model().HasChat {
		return r.Encode(p.input + p.prefix)
	}
	ids, err := r.EncodeChat(p.input)
	if err != nil {
		return nil, err
	}
	more, err := r.EncodePlain(strings.TrimSpace(p.prefix))
	return append(ids, more...), err
}

// Evaluate makes a sample that fits and asks it.
func (s *Suite) Evaluate(ctx context.Context, r eval.Runner, sample eval.Sample, policies []string, emit func(eval.Outcome) error) error {
	x := *sample.Data.(*spec)
	begun := r.Now()
	var p problem
	var ids []int
	for {
		var err error
		p = s.make(&x)
		if ids, err = s.encode(r, p); err != nil {
			return err
		}
		if len(ids)+x.task.tokens <= x.length || x.size <= x.task.step(x.length) {
			break
		}
		x.size -= x.task.step(x.length)
	}
	if n := len(ids) + x.task.tokens; n > x.length && x.task.isQA() {
		return fmt.Errorf("ruler: the question's own documents and its answer take %d of %d tokens: %w", n, x.length, eval.ErrTooLong)
	}
	match := metrics.MatchAll
	if x.task.isQA() {
		match = metrics.MatchPart
	}
	q := eval.Question{IDs: ids, Encode: r.Now().Sub(begun), Gen: eval.Generate{MaxTokens: x.task.tokens}}
	q.Score = func(o *eval.Outcome) error {
		score := match(o.Pred, p.answers)
		o.Score, o.Labels = &score, map[string]string{"context": strconv.Itoa(x.length)}
		if x.depth != nil {
			o.Labels["depth"] = strconv.FormatFloat(x.depth[0], 'f', -1, 64)
		}
		raw, err := json.Marshal(map[string]any{"answers": p.answers})
		o.Row = raw
		return err
	}
	return eval.Ask(ctx, r, sample, q, policies, emit)
}

// PromptIDs is what the model reads for a sample.
func (s *Suite) PromptIDs(r eval.Runner, x eval.Sample) ([]int, error) {
	return s.encode(r, s.make(x.Data.(*spec)))
}
