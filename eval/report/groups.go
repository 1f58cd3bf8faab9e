package report

import (
	"maps"
	"math"
	"slices"

	"terrace/eval"
	"terrace/eval/run"
)

// groupTasks works out the means over each kind of tasks. The error is that of the tasks' samples; 0 where some task has a
// single one.
func (g *Group) groupTasks() {
	for _, s := range g.Series {
		sums := map[string][]run.TaskResult{}
		for _, task := range g.Tasks {
			t, ok := s.Tasks[task]
			if !ok || t.Metric.Group == "" || t.Metric.Kind != eval.Percent {
				continue
			}
			sums[t.Metric.Group] = append(sums[t.Metric.Group], t)
			if !slices.Contains(g.Kinds, t.Metric.Group) {
				g.Kinds = append(g.Kinds, t.Metric.Group)
			}
		}
		s.Groups = map[string]run.Score{}
		for kind, tasks := range sums {
			s.Groups[kind] = meanOf(tasks)
		}
	}
}

// meanOf is the plain mean of tasks.
func meanOf(tasks []run.TaskResult) run.Score {
	var m run.Score
	n, variance, single := float64(len(tasks)), 0.0, false
	for _, t := range tasks {
		m.Score += t.Score.Score / n
		variance += t.StdErr * t.StdErr
		m.N, m.Failed, single = m.N+t.N, m.Failed+t.Failed, single || t.N < 2
	}
	if !single {
		m.StdErr = math.Sqrt(variance) / n
	}
	return m
}

// measure collects the further measures of tasks, and the scores by length of sample where a suite has such labels.
func (g *Group) measure() {
	for _, s := range g.Series {
		sums, n := map[string]float64{}, map[string]float64{}
		byLength := map[string][]run.TaskResult{}
		for _, task := range g.Tasks {
			t := s.Tasks[task]
			for name, v := range t.Values {
				sums[name], n[name] = sums[name]+v, n[name]+1
			}
			for length, score := range t.By["length"] {
				byLength[length] = append(byLength[length], run.TaskResult{Score: score})
			}
		}
		s.Values, s.Length = map[string]float64{}, map[string]run.Score{}
		for _, name := range slices.Sorted(maps.Keys(sums)) {
			s.Values[name] = sums[name] / n[name]
			if !slices.Contains(g.Measures, name) {
				g.Measures = append(g.Measures, name)
			}
		}
		for _, length := range slices.Sorted(maps.Keys(byLength)) {
			s.Length[length] = meanOf(byLength[length])
			if !slices.Contains(g.Lengths, length) {
				g.Lengths = append(g.Lengths, length)
			}
		}
	}
	slices.Sort(g.Lengths)
}
