package report

import (
	"math"
	"math/rand/v2"
	"slices"

	"terrace/eval"
)

// resamples of the bootstrap.
const resamples = 2000

// pairsMin is how many samples both must have for a difference to be shown: a bootstrap of fewer gives intervals that are
// far too narrow (of two equal differences, one of width 0).
const pairsMin = 8

// paired are the differences between two series on the samples whose prompts are equal.
type paired struct {
	tasks   [][]float64 // by task, in order of appearance
	scores  [][]float64 // the second series' own, of the same samples
	n       int         // pairs
	unequal int         // samples of equal task and id whose prompts differ: not compared
	unknown int         // pairs without a hash of the prompt on one side or both: held to be equal by its length
}

// difference is the mean over tasks of b's score less a's, on the samples both have, with the 95 % percentile interval of
// a paired bootstrap that resamples within tasks (over all samples where some task has only one pair). A failed sample counts
// 0 in percentages and is left out elsewhere. Perplexities are compared in nats,
// and shown as factors. It is nil with fewer than pairsMin pairs.
func difference(a, b []eval.Outcome, m eval.Metric) (*Interval, paired) {
	scale := 1.0
	if m.Kind == eval.Percent {
		scale = 100
	}
	p := pairs(a, b, func(o eval.Outcome) (float64, bool) {
		if o.Score == nil {
			return 0, m.Kind == eval.Percent
		}
		return *o.Score, true
	})
	d := interval(scale, p.tasks, p.n)
	if d != nil {
		d.nats = m.Kind == eval.Perplexity
	}
	return d, p
}

// valueDifference is [difference] of a further measure of the samples.
func valueDifference(a, b []eval.Outcome, name string) *Interval {
	p := pairs(a, b, func(o eval.Outcome) (float64, bool) { v, ok := o.Values[name]; return v, ok })
	return interval(1, p.tasks, p.n)
}

// interval is the mean over tasks of their mean, with its bootstrap interval; nil with fewer than pairsMin values, of which there are n.
func interval(scale float64, tasks [][]float64, n int) *Interval {
	if n < pairsMin {
		return nil
	}
	mean := 0.0
	for _, d := range tasks {
		mean += average(d, nil) / float64(len(tasks))
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

// pairs matches samples by task, id and prompt.
func pairs(a, b []eval.Outcome, score func(o eval.Outcome) (float64, bool)) (p paired) {
	type key struct{ task, id string }
	base := map[key]eval.Outcome{}
	for _, o := range a {
		if _, ok := score(o); ok {
			base[key{o.Task, o.ID}] = o
		}
	}
	at := map[string]int{}
	for _, o := range b {
		s, ok := score(o)
		x, both := base[key{o.Task, o.ID}]
		if !ok || !both {
			continue
		}
		equal, known := samePrompt(x, o)
		if !equal {
			p.unequal++
			continue
		}
		if !known {
			p.unknown++
		}
		i, seen := at[o.Task]
		if !seen {
			i = len(p.tasks)
			at[o.Task], p.tasks, p.scores = i, append(p.tasks, nil), append(p.scores, nil)
		}
		before, _ := score(x)
		p.tasks[i], p.scores[i] = append(p.tasks[i], s-before), append(p.scores[i], s)
		p.n++
	}
	return p
}

// samePrompt reports whether two outcomes of one task and id, of suites with equal settings, are about one prompt; known says
// that hashes decided it. Without them what is there has to do: the prompt's length and how much was cut from it. A sample
// that failed before its prompt was made has neither, and goes by its id.
func samePrompt(a, b eval.Outcome) (equal, known bool) {
	switch {
	case a.PromptHash != "" && b.PromptHash != "":
		return a.PromptHash == b.PromptHash, true
	case a.Score == nil || b.Score == nil:
		return true, true
	}
	return a.Prompt == b.Prompt && a.Cut == b.Cut, false
}
