package report

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"terrace/eval"
	"terrace/eval/run"
	"terrace/internal/replace"
)

// LMEval is one policy of a finished run in the result format of lm-evaluation-harness (0.4.13, lm_eval/loggers/evaluation_tracker.py):
// Folder holds results_DATE.json (Results) and samples_TASK_DATE.jsonl (Samples), as the harness's own --output_path does.
//
// Scores are shares of one where the run's are percentages, as there; standard errors are those of the run, and "N/A" for a task of
// one sample. What a run does not keep is null or empty: the number of samples that a --limit left out, and the prompts' texts
// (arguments), for which prompt_hash is the run's own, of the ids ([eval.HashPrompt]).
type LMEval struct {
	Folder  string // the model's name and the policy, sanitised as the harness does it
	Date    string // 2026-11-23T10-00-00, of the run's start, its own zone
	Results []byte
	Samples map[string][]byte // by task: a line a sample, ordered by id
}

// unsafeName is lm_eval.utils.sanitize_model_name's.
var unsafeName = regexp.MustCompile(`["<>:/|\\?*\[\]]+`)

// LMEvalOf renders every policy of the runs; ErrNothing where a run has no tasks, run.ErrFolder where one is not complete.
func LMEvalOf(runs []Run) ([]LMEval, error) {
	var out []LMEval
	for i := range runs {
		r := &runs[i]
		switch {
		case !r.Results.Complete:
			return nil, fmt.Errorf("report: run %s is not complete; the same 'infer eval' command takes it up: %w", r.Name, run.ErrFolder)
		case len(r.Results.Tasks) == 0:
			return nil, fmt.Errorf("report: run %s has no scores of tasks: %w", r.Name, ErrNothing)
		}
		started, err := time.Parse(time.RFC3339, r.Results.Machine.Started)
		if err != nil {
			return nil, fmt.Errorf("report: run %s does not say when it began (%q): %w: %w", r.Name, r.Results.Machine.Started, run.ErrFolder, err)
		}
		for _, policy := range r.Results.Options.Policies {
			x, err := r.lmEval(policy, started)
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(out, func(o LMEval) bool { return o.Folder == x.Folder && o.Date == x.Date }) {
				return nil, fmt.Errorf("report: two runs of %s began at %s: export them to folders of their own: %w", x.Folder, x.Date, ErrNothing)
			}
			out = append(out, x)
		}
	}
	return out, nil
}

// Write makes the files below dir and names them.
func (x *LMEval) Write(dir string) (files []string, err error) {
	dir = filepath.Join(dir, x.Folder)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	put := func(name string, raw []byte) {
		if err == nil {
			path := filepath.Join(dir, name)
			files = append(files, path)
			err = replace.WriteFile(path, raw, 0o644)
		}
	}
	for task, raw := range x.Samples {
		put("samples_"+unsafeName.ReplaceAllString(task, "__")+"_"+x.Date+".jsonl", raw)
	}
	put("results_"+x.Date+".json", x.Results)
	slices.Sort(files)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return files, nil
}

// object is a JSON object.
type object = map[string]any

// lmEval renders one policy.
func (r *Run) lmEval(policy string, started time.Time) (LMEval, error) {
	o := r.Results.Options
	name := o.Model.Name + "/" + policy
	x := LMEval{Folder: unsafeName.ReplaceAllString(name, "__"), Date: started.Format("2006-01-02T15-04-05"), Samples: map[string][]byte{}}
	settings, _ := o.Settings.(object)
	limit, limited := settings["limit"].(float64)
	results, configs, versions, nshot, higher, counts, hashes := object{}, object{}, object{}, object{}, object{}, object{}, object{}
	for _, t := range r.Results.Tasks {
		if t.Policy != policy {
			continue
		}
		cell := r.cell(t.Task, policy)
		results[t.Task] = scores(t, cell)
		up := object{}
		for _, m := range measures(t) {
			up[strings.Split(m.key, ",")[0]] = !t.Metric.LessIsBetter()
		}
		shots := shotsOf(settings, t.Task)
		higher[t.Task], versions[t.Task], nshot[t.Task] = up, o.Format, shots
		configs[t.Task] = object{"task": t.Task, "num_fewshot": shots, "metadata": object{"version": o.Format, "suite": o.Suite, "settings": o.Settings}}
		count := object{"original": nil, "effective": len(cell)}
		if !limited || limit == 0 {
			count["original"] = len(cell)
		}
		counts[t.Task] = count
		lines, hash, err := sampleLines(t, cell)
		if err != nil {
			return x, err
		}
		x.Samples[t.Task], hashes[t.Task] = lines, hash
	}
	var limitOr any
	if limit > 0 {
		limitOr = limit
	}
	var err error
	x.Results, err = json.MarshalIndent(object{
		"results": results, "group_subtasks": object{}, "configs": configs, "versions": versions, "n-shot": nshot,
		"higher_is_better": higher, "n-samples": counts, "task_hashes": hashes,
		"config": object{"model": "terrace", "model_args": object{"model": o.Model.Name, "kv_policy": policy, "fingerprint": o.Model.Fingerprint, "engine": o.Engine},
			"batch_size": max(1, o.Batch), "device": o.Engine["backend"], "limit": limitOr, "random_seed": o.Seed, "fewshot_seed": o.Seed},
		"git_hash": nil, "date": float64(started.UnixNano()) / 1e9, "terrace_version": o.Version, "terrace_machine": r.Results.Machine,
		"model_source": "terrace", "model_name": name, "model_name_sanitized": x.Folder,
	}, "", "  ")
	return x, err
}

// shotsOf is how many examples a task's questions had.
func shotsOf(settings object, task string) int {
	own, _ := settings["task_shots"].(object)
	shots, ok := own[task].(float64)
	if !ok {
		shots, _ = settings["shots"].(float64)
	}
	return int(shots)
}

// cell is a policy's outcomes of a task, ordered by id: by number where ids are numbers.
func (r *Run) cell(task, policy string) []eval.Outcome {
	var out []eval.Outcome
	for _, o := range r.Outcomes {
		if o.Task == task && o.Policy == policy {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b eval.Outcome) int {
		x, errA := strconv.Atoi(a.ID)
		y, errB := strconv.Atoi(b.ID)
		if errA == nil && errB == nil {
			return cmp.Compare(x, y)
		}
		return cmp.Compare(a.ID, b.ID)
	})
	return out
}

// measure is one of a task's numbers: its key in the harness's results, metric and filter, and its name in an outcome's Values,
// "" for the score itself.
type measure struct{ key, value string }

func measures(t run.TaskResult) []measure {
	key := func(name string) string {
		if strings.Contains(name, ",") {
			return name
		}
		return name + ",none"
	}
	out := []measure{{key: key(t.Metric.Name)}}
	for v := range t.Values {
		out = append(out, measure{key(v), v})
	}
	slices.SortFunc(out, func(a, b measure) int { return cmp.Compare(a.key, b.key) })
	return out
}

// scores is a task's entry under results.
func scores(t run.TaskResult, cell []eval.Outcome) object {
	out := object{"name": t.Task, "alias": t.Task, "sample_len": len(cell)}
	for _, m := range measures(t) {
		score, n, scale := t.Score, t.Score.N, 1.0
		if t.Metric.Kind == eval.Percent {
			scale = 100
		}
		if m.value != "" {
			score, scale = valueScore(cell, m.value), 1
			n = score.N
		}
		name, filter, _ := strings.Cut(m.key, ",")
		out[m.key] = score.Score / scale
		out[name+"_stderr,"+filter] = any("N/A")
		if n > 1 {
			out[name+"_stderr,"+filter] = score.StdErr / scale
		}
	}
	return out
}

// valueScore is the mean of one of the outcomes' Values, weighted as results.json weighs it, and its standard error.
func valueScore(cell []eval.Outcome, name string) run.Score {
	values := make([]eval.Outcome, 0, len(cell))
	for _, o := range cell {
		if v, ok := o.Values[name]; ok {
			o.Score = &v
			values = append(values, o)
		}
	}
	return run.ScoreOf(eval.Metric{Kind: eval.Nats}, values)
}

// sampleLines are a task's samples, and the hash of their hashes.
func sampleLines(t run.TaskResult, cell []eval.Outcome) (lines []byte, hash string, err error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	all := sha256.New()
	for i, o := range cell {
		id := i
		if n, err := strconv.Atoi(o.ID); err == nil {
			id = n
		}
		row := object{}
		if len(o.Row) > 0 {
			if err := json.Unmarshal(o.Row, &row); err != nil {
				return nil, "", fmt.Errorf("report: sample %s/%s: %w: %w", o.Task, o.ID, run.ErrFolder, err)
			}
		}
		target := targetOf(row)
		line := object{"doc_id": id, "doc": row, "target": target, "arguments": object{}, "filter": filterOf(t.Metric.Name), "doc_hash": digest(string(o.Row)),
			"prompt_hash": o.PromptHash, "target_hash": digest(target)}
		line["resps"], line["filtered_resps"] = responses(row, o.Pred)
		if taken, ok := row[strings.ReplaceAll(filterOf(t.Metric.Name), "-", "_")].(string); ok {
			line["filtered_resps"] = []string{taken}
		}
		var names []string
		for _, m := range measures(t) {
			name, _, _ := strings.Cut(m.key, ",")
			if m.value != "" {
				name = m.value
			}
			names = append(names, name)
			line[name] = valueOf(o, m.value)
		}
		line["metrics"] = names
		if o.Error != "" {
			line["error"] = o.Error
		}
		if err := e.Encode(line); err != nil {
			return nil, "", fmt.Errorf("report: sample %s/%s: %w", o.Task, o.ID, err)
		}
		fmt.Fprintf(all, "%s%s%s", line["doc_hash"], o.PromptHash, line["target_hash"])
	}
	return b.Bytes(), hex.EncodeToString(all.Sum(nil)), nil
}

// filterOf is what a metric's name says about the filter before it: "strict-match" of "exact_match,strict-match", else "none".
func filterOf(metric string) string {
	if _, filter, ok := strings.Cut(metric, ","); ok {
		return filter
	}
	return "none"
}

// valueOf is one of an outcome's numbers; null where it failed or has none.
func valueOf(o eval.Outcome, name string) any {
	v, ok := o.Values[name]
	if name == "" {
		if o.Score == nil {
			return nil
		}
		v, ok = *o.Score, true
	}
	if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return v
}

// targetOf is the right answer, as text: the number of a choice, an answer, or a list of them in JSON.
func targetOf(row object) string {
	for _, name := range []string{"gold", "answer", "answers"} {
		switch v := row[name].(type) {
		case nil:
		case string:
			return v
		default:
			raw, _ := json.Marshal(v) // it was JSON
			return string(raw)
		}
	}
	return ""
}

// responses are the log-likelihoods of the choices and whether each is what the model would have said, as texts (runs made before
// the latter was kept have the first alone), or the answer.
func responses(row object, pred string) (resps, filtered any) {
	lls, ok := row["loglikelihoods"].([]any)
	if !ok {
		return [][]string{{pred}}, []string{pred}
	}
	var all [][][]string
	var each [][]string
	greedy, _ := row["greedy"].([]any)
	for i, v := range lls {
		ll, _ := v.(float64)
		one := []string{strconv.FormatFloat(ll, 'g', -1, 64)}
		if i < len(greedy) {
			one = append(one, map[bool]string{true: "True", false: "False"}[greedy[i] == true]) // as Python writes them
		}
		all, each = append(all, [][]string{one}), append(each, one)
	}
	return all, each
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
