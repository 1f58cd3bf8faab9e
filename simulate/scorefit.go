package simulate

import (
	"fmt"
	"math"
)

// ScoreFit is what FitScores works out of a recorded trace.
type ScoreFit struct {
	Persistence   float64 `json:"persistence"`
	Level         float64 `json:"level"`
	LevelShared   float64 `json:"level_shared"`
	RestShared    float64 `json:"rest_shared"`
	Recency       float64 `json:"recency"`
	RecencyTokens float64 `json:"recency_tokens"`
}

// fitLags are the steps apart up to which a trace's correlation is fitted, and fitSteps the fewest that a trace must have.
const fitLags, fitSteps = 24, 8

// FitScores fits a synthetic trace's parameters to a recorded one by its moments, never by the hit rates that follow: recency to
// the mean score by age; of what is left, level and persistence to the covariance of a token's scores at steps k apart, A + B·persistence^k;
// and what layers share to the covariance of a token's scores between layers. ErrScores where the trace is too short.
func FitScores(t *ScoreTrace) (ScoreFit, error) {
	if err := t.Check(); err != nil {
		return ScoreFit{}, err
	}
	if t.Steps < fitSteps || len(t.Layers) < 2 || t.Prompt < 64 {
		return ScoreFit{}, fmt.Errorf("%w: %d layers, %d tokens, %d steps: want 2, 64 and %d or more to fit", ErrScores, len(t.Layers), t.Prompt, t.Steps, fitSteps)
	}
	m := newMoments(t)
	base, recency, tokens := m.fitRecency()
	m.subtract(func(age int) float64 { return base + recency*math.Exp(-float64(age)/tokens) })
	a, b, p := fitLevel(m.covariances(min(fitLags, t.Steps/2)))
	levels, rest := m.shared()
	unit := math.Sqrt(max(b, 1e-6))
	return ScoreFit{Persistence: p, Level: math.Sqrt(max(a, 0)) / unit, LevelShared: portionOf(levels, a), RestShared: portionOf(rest, m.changing()),
		Recency: recency / unit, RecencyTokens: tokens}, nil
}

// portionOf is part over whole, 0 to 1.
func portionOf(part, whole float64) float64 { return max(0, min(1, part/max(whole, 1e-9))) }

// moments are scores of the prompt's tokens, in deviations: [layer][step][token].
type moments struct {
	z     [][][]float64
	level [][]float64 // [layer][token] mean over the steps
}

func newMoments(t *ScoreTrace) *moments {
	m := &moments{}
	for _, rows := range t.codes {
		var layer [][]float64
		for _, row := range rows {
			z := make([]float64, t.Prompt)
			for i := range z {
				z[i] = float64(row[i]) / codesPerDeviation
			}
			layer = append(layer, z)
		}
		m.z = append(m.z, layer)
	}
	m.average()
	return m
}

// average works the levels out.
func (m *moments) average() {
	m.level = nil
	for _, layer := range m.z {
		mean := make([]float64, len(layer[0]))
		for _, row := range layer {
			for i, z := range row {
				mean[i] += z / float64(len(layer))
			}
		}
		m.level = append(m.level, mean)
	}
}

// age is a prompt token's at a step: the newest token of the step has none.
func (m *moments) age(step, token int) int { return len(m.z[0][0]) + step - token }

// fitRecency fits the mean score by age to base + recency·exp(-age/tokens), for the best of many tokens.
func (m *moments) fitRecency() (base, recency, tokens float64) {
	n := len(m.z[0][0]) + len(m.z[0])
	sum, count := make([]float64, n), make([]float64, n)
	for _, layer := range m.z {
		for step, row := range layer {
			for i, z := range row {
				a := m.age(step, i)
				sum[a], count[a] = sum[a]+z, count[a]+1
			}
		}
	}
	best := math.Inf(1)
	for try := 4.0; try < float64(n); try *= 1.05 {
		var f line
		for a := range sum {
			if count[a] > 0 {
				f.add(math.Exp(-float64(a)/try), sum[a]/count[a], count[a])
			}
		}
		c, slope, miss := f.solve()
		if slope >= 0 && miss < best {
			best, base, recency, tokens = miss, c, slope, try
		}
	}
	return base, recency, max(1, tokens)
}

// subtract takes what tokens are worth for their age off.
func (m *moments) subtract(of func(age int) float64) {
	for _, layer := range m.z {
		for step, row := range layer {
			for i := range row {
				row[i] -= of(m.age(step, i))
			}
		}
	}
	m.average()
}

// covariances are those of a token's scores at steps 0, 1, … apart, on average.
func (m *moments) covariances(lags int) []float64 {
	out := make([]float64, lags+1)
	for k := range out {
		n := 0.0
		for _, layer := range m.z {
			for step := 0; step+k < len(layer); step++ {
				for i, z := range layer[step] {
					out[k] += z * layer[step+k][i]
				}
				n += float64(len(layer[step]))
			}
		}
		out[k] /= n
	}
	return out
}

// fitLevel fits covariances to a + b·p^k, for the best of many p.
func fitLevel(c []float64) (a, b, p float64) {
	best := math.Inf(1)
	for try := 0.01; try < 0.995; try += 0.01 {
		var f line
		for k, y := range c {
			f.add(math.Pow(try, float64(k)), y, 1)
		}
		base, slope, miss := f.solve()
		if slope > 0 && base >= 0 && miss < best {
			best, a, b, p = miss, base, slope, try
		}
	}
	return a, b, p
}

// shared is the covariance between layers, on average over their pairs: of levels, and of what changes from step to step.
func (m *moments) shared() (levels, rest float64) {
	n, tokens := float64(len(m.z)), len(m.level[0])
	pairs := func(of func(layer, token int) float64) float64 {
		out := 0.0
		for i := range tokens {
			sum, squares := 0.0, 0.0
			for l := range m.z {
				v := of(l, i)
				sum, squares = sum+v, squares+v*v
			}
			out += (sum*sum - squares) / (n * (n - 1) * float64(tokens))
		}
		return out
	}
	levels = pairs(func(l, i int) float64 { return m.level[l][i] })
	steps := len(m.z[0])
	for step := range steps {
		rest += pairs(func(l, i int) float64 { return m.z[l][step][i] - m.level[l][i] }) / float64(steps)
	}
	return levels, rest
}

// changing is the variance of what changes from step to step.
func (m *moments) changing() (sum float64) {
	n := 0.0
	for l, layer := range m.z {
		for _, row := range layer {
			for i, z := range row {
				sum += (z - m.level[l][i]) * (z - m.level[l][i])
			}
			n += float64(len(row))
		}
	}
	return sum / n
}

// line is a least-squares fit of y = c + slope·x with weights.
type line struct{ n, x, y, xx, xy, yy float64 }

func (f *line) add(x, y, weight float64) {
	f.n += weight
	f.x, f.y = f.x+weight*x, f.y+weight*y
	f.xx, f.xy, f.yy = f.xx+weight*x*x, f.xy+weight*x*y, f.yy+weight*y*y
}

// solve also says by which squares the line misses.
func (f *line) solve() (c, slope, miss float64) {
	if d := f.n*f.xx - f.x*f.x; d > 1e-12*f.n*f.xx {
		slope = (f.n*f.xy - f.x*f.y) / d
	}
	c = (f.y - slope*f.x) / f.n
	return c, slope, f.yy - c*f.y - slope*f.xy
}
