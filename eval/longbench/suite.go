package longbench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"terrace/eval"
	"terrace/eval/metrics"
)

// noChat are the tasks whose prompts are few-shot examples or code: no chat template, as in pred.py.
var noChat = map[string]bool{"trec": true, "triviaqa": true, "samsum": true, "lsht": true, "lcc": true, "repobench-p": true}

// Options of the suite.
type Options struct {
	Data       string   // folder with TASK.jsonl
	Tasks      []string // empty = all
	Limit      int      // rows a task; 0 = all
	MaxContext int      // prompt tokens before the chat template; 0 = what the model's context leaves
	Extended   bool     // LongBench-E: files TASK_e.jsonl, scores by length
	NoChat     bool     // no chat template for any task (base models)
}

// Suite is LongBench.
type Suite struct {
	o       Options
	src     *source
	samples []eval.Sample
}

// chatReserve is what the chat template may add to a prompt when MaxContext is chosen for the user.
const chatReserve = 64

// extendedTasks are LongBench-E's.
var extendedTasks = []string{"qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "gov_report", "multi_news", "trec", "triviaqa",
	"samsum", "passage_count", "passage_retrieval_en", "lcc", "repobench-p"}

// New reads the rows.
func New(o Options) (*Suite, error) {
	known := metrics.LongBenchTasks()
	if o.Extended {
		known = extendedTasks
	}
	tasks, err := eval.CheckTasks("longbench", known, o.Tasks)
	if err != nil {
		return nil, err
	}
	src, err := openSource(o.Data)
	if err != nil {
		return nil, err
	}
	s := &Suite{o: o, src: src}
	s.o.Tasks = tasks
	var at []int
	for _, task := range tasks {
		if src.prompts[task] == "" || src.maxLens[task] < 1 {
			return nil, fmt.Errorf("longbench: dataset2prompt.json or dataset2maxlen.json does not know %q: %w", task, eval.ErrData)
		}
		name := task
		if o.Extended {
			name += "_e"
		}
		rows, err := src.rows(name, o.Limit)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			s.samples = append(s.samples, eval.Sample{Task: task, ID: strconv.Itoa(i), Data: &rows[i]})
			at = append(at, i)
		}
	}
	s.inTurn(at)
	return s, nil
}

// inTurn orders samples by row, tasks in turn, so that a run that is looked at or stopped early has every task in it.
// at are the rows' indices.
func (s *Suite) inTurn(at []int) {
	order := make([]int, len(at))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	samples := make([]eval.Sample, len(order))
	for i, k := range order {
		samples[i] = s.samples[k]
	}
	s.samples = samples
}

// Name is longbench or longbench-e.
func (s *Suite) Name() string {
	if s.o.Extended {
		return "longbench-e"
	}
	return "longbench"
}

// Options identify settings and data.
func (s *Suite) Options() any {
	return map[string]any{"tasks": s.o.Tasks, "limit": s.o.Limit, "max_context": s.o.MaxContext, "no_chat": s.o.NoChat, "data_sha256": s.src.digest()}
}

// Samples are the rows of all tasks, the first of each, then the second of each, and so on.
func (s *Suite) Samples(context.Context, eval.Runner) ([]eval.Sample, error) { return s.samples, nil }

// Metric of every task is a percentage.
func (s *Suite) Metric(task string) eval.Metric {
	name, err := metrics.MetricName(task)
	if err != nil {
		name = "score"
	}
	return eval.Metric{Name: name, Kind: eval.Percent, Group: metrics.LongBenchGroup(task)}
}

// Fill is a task's official template with a row's fields in it, before any cut.
func (s *Suite) Fill(task string, row *Row) (string, error) { return fill(s.src.prompts[task], row) }

// Prompt is what the model reads: the official template, cut in the middle, in the chat template where pred.py uses one.
// cut is the number of tokens taken out.
func (s *Suite) Prompt(r eval.Runner, task string, row *Row) (ids []int, cut int, err error) {
	text, err := s.Fill(task, row)
	if err != nil {
		return nil, 0, err
	}
	if ids, err = r.Encode(text); err != nil {
		return nil, 0, err
	}
	limit := s.o.MaxContext
	if limit == 0 && r.Model().Context > 0 {
		limit = r.Model().Context - s.src.maxLens[task] - chatReserve
	}
	if limit > 0 && len(ids) > limit {
		text, cut = truncate(r, ids, limit), len(ids)-limit/2*2
		if ids, err = r.Encode(text); err != nil {
			return nil, 0, err
		}
	}
	if noChat[task] || s.o.NoChat || !r.Model().HasChat {
		return ids, cut, nil
	}
	ids, err = r.EncodeChat(text)
	return ids, cut, err
}

// truncate is pred.py's cut: the text of the first and of the last half of limit tokens, each decoded on its own.
func truncate(r eval.Runner, ids []int, limit int) string {
	half := limit / 2
	return r.Decode(ids[:half]) + r.Decode(ids[len(ids)-half:])
}

// Evaluate answers one row under each policy.
func (s *Suite) Evaluate(ctx context.Context, r eval.Runner, sample eval.Sample, policies []string, emit func(eval.Outcome) error) error {
	row := sample.Data.(*Row)
	begun := r.Now()
	ids, cut, err := s.Prompt(r, sample.Task, row)
	if err != nil {
		return err
	}
	q := eval.Question{IDs: ids, Encode: r.Now().Sub(begun), Cut: cut, Gen: eval.Generate{MaxTokens: s.src.maxLens[sample.Task]}}
	if sample.Task == "samsum" { // pred.py: at least one token, and the line break ends the answer
		newline, err := r.EncodePlain("\n")
		if err != nil {
			return err
		}
		q.Gen.MinTokens, q.Gen.StopIDs = 1, newline[len(newline)-1:]
	}
	q.Score = func(o *eval.Outcome) error {
		score, err := metrics.LongBench(sample.Task, metrics.Row{Pred: o.Pred, Answers: row.Answers, Classes: row.Classes})
		if err != nil {
			return err
		}
		o.Score = &score
		o.Labels = map[string]string{"length": metrics.Bucket(row.Length)}
		o.Row, err = marshal(map[string]any{"answers": row.Answers, "all_classes": row.Classes, "length": row.Length})
		return err
	}
	return eval.Ask(ctx, r, sample, q, policies, emit)
}

// PredictionFiles renders outcomes as LongBench's own files: path below the run directory → bytes. Failed samples have an
// empty prediction. Outcomes must come in sample order.
func (s *Suite) PredictionFiles(model string, outcomes []eval.Outcome) (map[string][]byte, error) {
	root := "pred"
	if s.o.Extended {
		root = "pred_e"
	}
	files := map[string][]byte{}
	for _, o := range outcomes {
		line := struct {
			Pred    string          `json:"pred"`
			Answers json.RawMessage `json:"answers"`
			Classes json.RawMessage `json:"all_classes"`
			Length  json.RawMessage `json:"length"`
		}{Pred: o.Pred}
		if o.Row == nil {
			row := s.row(o.Task, o.ID)
			if row == nil {
				continue
			}
			o.Row, _ = marshal(map[string]any{"answers": row.Answers, "all_classes": row.Classes, "length": row.Length})
		}
		if err := json.Unmarshal(o.Row, &line); err != nil {
			return nil, fmt.Errorf("longbench: outcome %s/%s: %w", o.Task, o.ID, err)
		}
		raw, err := marshal(line)
		if err != nil {
			return nil, err
		}
		path := root + "/" + folder(model, o.Policy) + "/" + o.Task + ".jsonl"
		files[path] = append(append(files[path], raw...), '\n')
	}
	return files, nil
}

func (s *Suite) row(task, id string) *Row {
	i := slices.IndexFunc(s.samples, func(x eval.Sample) bool { return x.Task == task && x.ID == id })
	if i < 0 {
		return nil
	}
	return s.samples[i].Data.(*Row)
}

// marshal is JSON as Python's ensure_ascii=False has it: no HTML escapes.
func marshal(v any) (json.RawMessage, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n")), err
}

// folder names a model under a policy; full has the model's own name.
func folder(model, policy string) string {
	name := model
	if policy != "full" && policy != "" {
		name += "@" + policy
	}
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == ':' || r == ',' || r < ' ' {
			return '-'
		}
		return r
	}, name)
}

// PromptIDs is what the model reads for a sample.
func (s *Suite) PromptIDs(r eval.Runner, x eval.Sample) ([]int, error) {
	ids, _, err := s.Prompt(r, x.Task, x.Data.(*Row))
	return ids, err
}
