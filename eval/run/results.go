package run

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"terrace/eval"
)

// Results is results.json.
type Results struct {
	Options  Options `json:"options"`
	Machine  Machine `json:"machine"`
	Complete bool    `json:"complete"`       // every sample has an outcome
	Outcomes int     `json:"outcomes"`       // of samples.jsonl, the first ones, that these results are made of
	Note     string  `json:"note,omitempty"` // what figures are not of one sample alone
	// QualityMetric is what the scores of a replay are: minilm-cosine or token-f1.
	QualityMetric string         `json:"quality_metric,omitempty"`
	Policies      []PolicyResult `json:"policies"`
	Tasks         []TaskResult   `json:"tasks"`
}

// Score is a number with its uncertainty.
type Score struct {
	Score  float64 `json:"score"`  // percent, perplexity or nats
	StdErr float64 `json:"stderr"` // of the score; 0 with fewer than two samples
	N      int     `json:"n"`      // samples the score is made of
	Failed int     `json:"failed"` // samples that failed (in a percentage they count 0)
}

// TaskResult is one task under one policy.
type TaskResult struct {
	Task   string      `json:"task"`
	Policy string      `json:"policy"`
	Metric eval.Metric `json:"metric"`
	Score
	Prompts   string                      `json:"prompts_sha256,omitempty"` // of the samples' prompts ([eval.HashPrompt]) by id; "" where one has none
	Values    map[string]float64          `json:"values,omitempty"`         // means of further measures
	By        map[string]map[string]Score `json:"by,omitempty"`             // label → value → score
	TTFT      float64                     `json:"ttft_ms"`                  // medians over samples
	ITL       float64                     `json:"itl_ms"`
	Prefill   float64                     `json:"prefill_ms"`
	KVPeak    map[string]int64            `json:"kv_bytes_peak"` // largest by tier
	KVMean    map[string]int64            `json:"kv_bytes_mean"` // mean of the samples' peaks by tier
	KVHeld    map[string]int64            `json:"kv_bytes_held"` // mean of what samples held while answering, by tier
	KVRead    float64                     `json:"kv_bytes_read"` // mean of what a decode step of theirs read; 0 = none was taken
	Prompt    float64                     `json:"prompt_tokens"` // mean
	Generated float64                     `json:"generated_tokens"`
	Kept      float64                     `json:"tokens_kept"`
}

// PolicyResult is a policy over all tasks: the plain mean of the tasks' scores, where all are percentages. Its error is
// that of the tasks' samples, or of the tasks' scores where some task has a single sample.
type PolicyResult struct {
	Policy string   `json:"policy"`
	Mean   *float64 `json:"score,omitempty"`
	StdErr float64  `json:"stderr"`
	N      int      `json:"n"`
	Failed int      `json:"failed"`
	TTFT   float64  `json:"ttft_ms"`
	ITL    float64  `json:"itl_ms"`
	// KVPeak is the largest and KVMean the mean of the samples' peaks, KVHeld the mean of what they held while answering, by
	// tier.
	KVPeak map[string]int64 `json:"kv_bytes_peak"`
	KVMean map[string]int64 `json:"kv_bytes_mean"`
	KVHeld map[string]int64 `json:"kv_bytes_held"`
	KVRead float64          `json:"kv_bytes_read"` // mean of what a decode step read
	*ReplayResult
}

// aggregate makes results of outcomes; policies and tasks come in the order of the options and of first appearance, and
// nothing depends on the order in which workers finished.
func aggregate(o Options, m Machine, complete bool, outcomes []eval.Outcome, metric func(task string) eval.Metric) Results {
	r := Results{Options: o, Machine: m, Complete: complete}
	r.Options.Format = formatVersion
	if o.Batch > 1 {
		r.Note = fmt.Sprintf("up to %d samples decoded together: kv_bytes_peak is of each sample's own sessions, itl_ms holds the work of all", o.Batch)
	}
	var tasks []string
	cells := map[[2]string][]eval.Outcome{}
	for _, x := range outcomes {
		if !slices.Contains(tasks, x.Task) {
			tasks = append(tasks, x.Task)
		}
		k := [2]string{x.Task, x.Policy}
		cells[k] = append(cells[k], x)
	}
	for _, p := range o.Policies {
		var all []eval.Outcome
		var scores []TaskResult
		for _, t := range tasks {
			cell := cells[[2]string{t, p}]
			if len(cell) == 0 {
				continue
			}
			scores = append(scores, taskResult(t, p, metric(t), cell))
			all = append(all, cell...)
		}
		if len(all) > 0 {
			r.Tasks = append(r.Tasks, scores...)
			r.Policies = append(r.Policies, policyResult(p, scores, all))
		}
	}
	return r
}

func taskResult(task, policy string, m eval.Metric, cell []eval.Outcome) TaskResult {
	// Means must not depend on the order in which workers finished.
	slices.SortStableFunc(cell, func(a, b eval.Outcome) int { return cmp.Compare(a.ID, b.ID) })
	t := TaskResult{Task: task, Policy: policy, Metric: m, Score: ScoreOf(m, cell), Prompts: hashOf(cell), Values: valueMeans(cell), By: byLabel(m, cell)}
	t.TTFT = median(cell, func(o eval.Outcome) float64 { return o.TTFT })
	t.ITL = median(cell, func(o eval.Outcome) float64 { return o.ITL })
	t.Prefill = median(cell, func(o eval.Outcome) float64 { return o.Prefill })
	t.Prompt = mean(cell, func(o eval.Outcome) float64 { return float64(o.Prompt) })
	t.Generated = mean(cell, func(o eval.Outcome) float64 { return float64(o.Generated) })
	t.Kept = mean(cell, func(o eval.Outcome) float64 { return o.Kept })
	t.KVPeak, t.KVMean, t.KVHeld = memory(cell)
	t.KVRead = mean(cell, func(o eval.Outcome) float64 { return o.KVRead })
	return t
}

func policyResult(policy string, tasks []TaskResult, all []eval.Outcome) PolicyResult {
	p := PolicyResult{Policy: policy}
	sum, variance, percent := 0.0, 0.0, true
	for _, t := range tasks {
		sum += t.Score.Score
		variance += t.StdErr * t.StdErr
		p.N += t.N
		p.Failed += t.Failed
		percent = percent && t.Metric.Kind == eval.Percent
	}
	if percent {
		m := sum / float64(len(tasks))
		p.Mean, p.StdErr = &m, math.Sqrt(variance)/float64(len(tasks))
		if slices.ContainsFunc(tasks, func(t TaskResult) bool { return t.N < 2 }) {
			p.StdErr = spread(tasks) // no task says how much its samples vary
		}
	}
	p.TTFT = median(all, func(o eval.Outcome) float64 { return o.TTFT })
	p.ITL = median(all, func(o eval.Outcome) float64 { return o.ITL })
	p.KVPeak, p.KVMean, p.KVHeld = memory(all)
	p.KVRead = mean(all, func(o eval.Outcome) float64 { return o.KVRead })
	return p
}

// hashOf identifies the prompts of a cell, whose outcomes are in the order of their ids.
func hashOf(cell []eval.Outcome) string {
	h := sha256.New()
	for _, o := range cell {
		if o.PromptHash == "" {
			return ""
		}
		fmt.Fprintf(h, "%s\x00%s\x00", o.ID, o.PromptHash)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// spread is the standard error of the mean of tasks from the tasks' own scores.
func spread(tasks []TaskResult) float64 {
	xs, ws := make([]float64, len(tasks)), make([]float64, len(tasks))
	for i, t := range tasks {
		xs[i], ws[i] = t.Score.Score, 1
	}
	_, err := weighted(xs, ws)
	return err
}

// ScoreOf is the weighted mean of the outcomes' scores with its standard error (sample deviation over √n; through the
// exponential for perplexity).
func ScoreOf(m eval.Metric, cell []eval.Outcome) Score {
	var s Score
	var xs, ws []float64
	for _, o := range cell {
		w := o.Weight
		if w == 0 {
			w = 1
		}
		switch {
		case o.Score != nil:
			xs, ws = append(xs, *o.Score), append(ws, w)
		case m.Kind == eval.Percent:
			s.Failed++
			xs, ws = append(xs, 0), append(ws, 1)
		default:
			s.Failed++
		}
	}
	s.N = len(xs)
	if s.N == 0 {
		return s
	}
	mean, err := weighted(xs, ws)
	switch m.Kind {
	case eval.Percent:
		s.Score, s.StdErr = 100*mean, 100*err
	case eval.Perplexity:
		s.Score, s.StdErr = math.Exp(mean), math.Exp(mean)*err
	default:
		s.Score, s.StdErr = mean, err
	}
	return s
}

// weighted is the weighted mean and its standard error.
func weighted(xs, ws []float64) (mean, stderr float64) {
	var sum, total float64
	for i, x := range xs {
		sum += ws[i] * x
		total += ws[i]
	}
	mean = sum / total
	n := float64(len(xs))
	if n < 2 {
		return mean, 0
	}
	var sq float64
	for i, x := range xs {
		d := ws[i] / total * (x - mean)
		sq += d * d
	}
	return mean, math.Sqrt(sq * n / (n - 1))
}

func valueMeans(cell []eval.Outcome) map[string]float64 {
	sums, ns := map[string]float64{}, map[string]float64{}
	for _, o := range cell {
		w := o.Weight
		if w == 0 {
			w = 1
		}
		for k, v := range o.Values {
			sums[k] += w * v
			ns[k] += w
		}
	}
	for k := range sums {
		sums[k] /= ns[k]
	}
	return sums
}

func byLabel(m eval.Metric, cell []eval.Outcome) map[string]map[string]Score {
	groups := map[string]map[string][]eval.Outcome{}
	for _, o := range cell {
		for k, v := range o.Labels {
			if groups[k] == nil {
				groups[k] = map[string][]eval.Outcome{}
			}
			groups[k][v] = append(groups[k][v], o)
		}
	}
	out := map[string]map[string]Score{}
	for k, values := range groups {
		out[k] = map[string]Score{}
		for v, list := range values {
			out[k][v] = ScoreOf(m, list)
		}
	}
	return out
}

// memory is the largest and the mean peak, and the mean of what was held, by tier, over outcomes that report one.
func memory(cell []eval.Outcome) (peak, mean, held map[string]int64) {
	peak, mean, held = map[string]int64{}, map[string]int64{}, map[string]int64{}
	n := int64(0)
	for _, o := range cell {
		if o.KVPeak == nil {
			continue
		}
		n++
		for tier, b := range o.KVPeak {
			peak[tier] = max(peak[tier], b)
			mean[tier] += b
		}
		for tier, b := range o.KVHeld {
			held[tier] += b
		}
	}
	for _, sums := range []map[string]int64{mean, held} {
		for tier := range sums {
			sums[tier] /= n
		}
	}
	return peak, mean, held
}

// median over outcomes that did not fail and have a value.
func median(cell []eval.Outcome, of func(eval.Outcome) float64) float64 {
	var xs []float64
	for _, o := range cell {
		if v := of(o); o.Score != nil && v > 0 {
			xs = append(xs, v)
		}
	}
	if len(xs) == 0 {
		return 0
	}
	slices.Sort(xs)
	if n := len(xs); n%2 == 0 {
		return (xs[n/2-1] + xs[n/2]) / 2
	}
	return xs[len(xs)/2]
}

func mean(cell []eval.Outcome, of func(eval.Outcome) float64) float64 {
	sum, n := 0.0, 0
	for _, o := range cell {
		if o.Score != nil {
			sum += of(o)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// encode is results.json.
func (r Results) encode() ([]byte, error) {
	raw, err := json.MarshalIndent(r, "", "  ")
	return append(raw, '\n'), err
}
