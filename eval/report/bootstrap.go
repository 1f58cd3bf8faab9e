package report

import (
	"math"
	"math/rand/v2"
	"slices"

	"terrace/eval"
)

// resamples of the bootstrap.
const resamples = 2000

// difference is the mean over tasks of b's score less a's, on the samples both have, with the 95 % percentile interval of
// a paired bootstrap that resamples within tasks (over all samples where some task has only one pair). A failed sample counts
// 0 in percentages and is left out elsewhere. Perplexities are compared in nats. It is nil when there is no pair.
func difference(a, b []eval.Outcome, m eval.Metric) *Interval {
	scale := 1.0
	if m.Kind == eval.Percent {
		scale = 100
	}
	return interval(scale, pairs(a, b, func(o eval.Outcome) (float64, bool) {
		if o.Score == nil {
			return 0, m.Kind == eval.Percent
		}
		return *o.Score, true
	}))
}

// valueDifference is [difference] of a further measure of the samples.
func valueDifference(a, b []eval.Outcome, name string) *Interval {
	return interval(1, pairs(a, b, func(o eval.Outcome) (float64, bool) { v, ok := o.Values[name]; return v, ok }))
}

// interval is the mean over tasks of their mean difference, with its bootstrap interval.
func interval(scale float64, tasks [][]float64) *Interval {
	if len(tasks) == 0 {
		return nil
	}
	n, mean := 0, 0.0
	for _, d := range tasks {
		n += len(d)
		mean += average(d, nil) / float64(len(tasks))
	}
	if n < 2 {
		return nil // one pair says nothing about uncertainty
	}
	if slices.ContainsFunc(tasks, func(d []float64) bool { return len(d) < 2 }) {
		tasks = [][]float64{slices.Concat(tasks...)}
	}
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	means := make([]float64, resamples)
	for i := range means {
		for _, d := range tasks {
			means[i] += average(d, rng) / float64(len(tasks))
		}
	}
	slices.Sort(means)
	at := func(q float64) float64 { return scale * means[int(math.Round(q*float64(resamples-1)))] }
	return &Interval{Diff: scale * mean, Low: at(0.025), High: at(0.975), Pairs: n}
}

// average of all differences, or of as many drawn with replacement.
func average(d []float64, rng *rand.Rand) float64 {
	sum := 0.0
	for i := range d {
		if rng != nil {
			i = rng.IntN(len(d))
		}
		sum += d[i]
	}
	return sum / float64(len(d))
}

// pairs are the differences by task, tasks in order of appearance.
func pairs(a, b []eval.Outcome, score func(o eval.Outcome) (float64, bool)) [][]float64 {
	type key struct{ task, id string }
	base := map[key]float64{}
	for _, o := range a {
		if s, ok := score(o); ok {
			base[key{o.Task, o.ID}] = s
		}
	}
	at := map[string]int{}
	var out [][]float64
	for _, o := range b {
		s, ok := score(o)
		x, both := base[key{o.Task, o.ID}]
		if !ok || !both {
			continue
		}
		i, known := at[o.Task]
		if !known {
			i = len(out)
			at[o.Task], out = i, append(out, nil)
		}
		out[i] = append(out[i], s-x)
	}
	return out
}
