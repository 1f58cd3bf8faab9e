package simulate

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"terrace/weights/stream"
)

// A model of experts larger than memory (ours; no paper has it): tokens of one text, one after another, on the store of package
// weights/stream, whose own code says what is there, what is read and what leaves, on a modelled disk and clock. Choices are drawn: at
// random, the worst case, as routers of random weights nearly are, or by a power law of each layer's own; or they were recorded. A token goes through its
// layers as model's native backend has it: projections, the prediction for the layer behind, attention's output and what is beside the
// experts, then the experts as they come.

// choices are drawn experts: of each token and layer those that it uses, and those that were predicted for it.
type choices struct{ used, likely [][][]int }

// drawChoices draws for so many tokens.
func drawChoices(m *mixture, tokens int, skew, predicted float64, seed uint64) (c choices) {
	rng := rand.New(rand.NewPCG(seed, uint64(m.experts)))
	weights := make([][]float64, m.layers) // logarithms
	for l := range weights {
		weights[l] = make([]float64, m.experts)
		for rank, e := range rng.Perm(m.experts) {
			weights[l][e] = -skew * math.Log(float64(rank+1))
		}
	}
	keys, order := make([]float64, m.experts), make([]int, m.experts)
	for range tokens {
		used, likely := make([][]int, m.layers), make([][]int, m.layers)
		for l := m.dense; l < m.layers; l++ {
			// The largest of logarithm plus Gumbel noise are a draw without putting back.
			for e := range keys {
				keys[e], order[e] = weights[l][e]-math.Log(rng.ExpFloat64()), e
			}
			slices.SortFunc(order, func(a, b int) int { return cmp.Compare(keys[b], keys[a]) })
			used[l] = slices.Clone(order[:m.used])
			likely[l] = slices.Clone(order[:m.used])
			for i := range likely[l] {
				if rng.Float64() >= predicted {
					likely[l][i] = order[m.used+i]
				}
			}
		}
		c.used, c.likely = append(c.used, used), append(c.likely, likely)
	}
	return c
}

// recordedChoices are those of the file that parameter choices names, of so many tokens; as many were predicted as the file says, which
// may be none.
func recordedChoices(b *builder, m *mixture, tokens int) (c choices, err error) {
	name := b.text("choices")
	f, err := os.Open(name)
	if err != nil {
		return c, fmt.Errorf("choices=%s: want a file of infer generate --record-experts: %w", name, err)
	}
	defer f.Close()
	r, err := stream.ReadChoices(f)
	if err != nil {
		return c, fmt.Errorf("choices=%s: %w", name, err)
	}
	if r.Layers != m.layers || r.Experts != m.experts || r.Used != m.used {
		return c, fmt.Errorf("choices=%s: %d layers with %d experts, %d used, want the model's %d, %d and %d", name, r.Layers, r.Experts, r.Used, m.layers, m.experts, m.used)
	}
	if len(r.Tokens) < tokens {
		return c, fmt.Errorf("choices=%s: %d tokens, want %d (warm and tokens together)", name, len(r.Tokens), tokens)
	}
	for _, t := range r.Tokens[:tokens] {
		for l, list := range t.Used {
			if (len(list) > 0) != (l >= m.dense) {
				return c, fmt.Errorf("choices=%s: layer %d: the model's experts lie in layers from %d on", name, l, m.dense)
			}
		}
		likely := t.Likely
		if likely == nil {
			likely = make([][]int, m.layers)
		}
		c.used, c.likely = append(c.used, t.Used), append(c.likely, likely)
	}
	return c, nil
}

// found are the shares of the counted tokens' experts that are in memory when nothing is predicted: by the store's own rule of who
// leaves, and at best (stream.Optimum).
func found(m *mixture, plan *mixturePlan, c choices, warm int) (store, best float64, err error) {
	s, err := stream.NewModelled(plan.Plan, stream.Disk{})
	if err != nil {
		return 0, 0, err
	}
	var before stream.Use
	uses := 0
	for token, layers := range c.used {
		if token == warm {
			before = s.Accounts()
		}
		for l, list := range layers {
			if len(list) == 0 {
				continue
			}
			if err := s.Use(l, func(e int) int { return count(list, e) }, 1, false, 0); err != nil {
				return 0, 0, err
			}
			if token >= warm {
				uses += len(list)
			}
		}
	}
	room := int((plan.BudgetBytes - plan.PinnedBytes()) / plan.expert)
	return float64(s.Accounts().Hits-before.Hits) / float64(uses), float64(stream.Optimum(c.used, m.experts, room, warm)) / float64(uses), nil
}

func count(list []int, e int) int {
	if slices.Contains(list, e) {
		return 1
	}
	return 0
}

// expertRun is what some tokens took.
type expertRun struct {
	seconds, bound float64 // all in all; of bound, a token the more of computing and of reading what it used and had not
	use            stream.Use
}

// runExperts passes the tokens after the first warm ones and says what they took.
func runExperts(m *mixture, plan *mixturePlan, c choices, p P, disk stream.Disk) (out expertRun, err error) {
	store, err := stream.NewModelled(plan.Plan, disk)
	if err != nil {
		return out, err
	}
	of := func(bytes int64) time.Duration { return seconds(float64(bytes) / p["host_bps"]) }
	compute := of(plan.head)
	for l := range m.layers {
		compute += seconds(p["layer_s"]) + of(plan.in[l]+plan.out[l])
		if len(plan.Experts[l]) > 0 {
			compute += of(2*plan.router + int64(m.used)*plan.expert)
		}
	}
	predict := func(token, layer int) {
		if layer < m.layers && len(plan.Experts[layer]) > 0 {
			store.Compute(of(plan.router))
			store.Predict(layer, c.likely[token][layer])
		}
	}
	var begin time.Duration
	var before stream.Use
	for token := range c.used {
		if token == int(p["warm"]) {
			begin, before = store.Now(), store.Accounts()
		}
		predict(token, 0)
		for l := range m.layers {
			store.Compute(of(plan.in[l]))
			predict(token, l+1)
			store.Compute(seconds(p["layer_s"]) + of(plan.out[l]))
			if len(plan.Experts[l]) == 0 {
				continue
			}
			store.Compute(of(plan.router))
			rows := func(e int) int { return count(c.used[token][l], e) }
			if err := store.Use(l, rows, 1, false, of(plan.expert)); err != nil {
				return out, err
			}
		}
		store.Compute(of(plan.head))
	}
	out.seconds, out.use = (store.Now() - begin).Seconds(), store.Accounts()
	out.use.ReadBytes -= before.ReadBytes
	for _, n := range []struct{ now, then *int64 }{
		{&out.use.Used, &before.Used}, {&out.use.Hits, &before.Hits}, {&out.use.Predicted, &before.Predicted}, {&out.use.Asked, &before.Asked}, {&out.use.Wasted, &before.Wasted},
	} {
		*n.now -= *n.then
	}
	n := float64(len(c.used)) - p["warm"]
	missing := float64(out.use.ReadBytes-out.use.Wasted*plan.expert) / n
	out.bound = n * max(compute.Seconds(), missing/disk.BytesPerS)
	return out, nil
}

func expertRuns(register registrar) {
	register(&experiment{
		id: "expert-stream", title: "mixtures of experts larger than memory: tokens a second by memory and SSD, by the store's own code", params: pick("experts"),
		axes: axes{
			"model":     words("Qwen3.6-35B-A3B", "gpt-oss-20b", "gpt-oss-120b", "GLM-4.7-Flash"),
			"trace":     words("uniform", "zipf"),
			"memory_GB": nums(4, 8, 16, 32, 64), "disk_GBps": nums(1, 3.5, 7, 14),
		},
		uses: []string{"weights/stream"}, run: expertStream,
	})
}

// drawn bounds the tokens of a run.
const drawn = 1 << 14

func expertStream(b *builder) error {
	warm, tokens := b.p["warm"], b.p["tokens"]
	if warm != math.Trunc(warm) || tokens != math.Trunc(tokens) || tokens < 1 || warm+tokens > drawn {
		return fmt.Errorf("warm and tokens: want whole numbers, 1 token at least, and %d together at most", drawn)
	}
	if rate := b.p["host_bps"]; rate <= 0 {
		return fmt.Errorf("host_bps=%g: want more than 0", rate)
	}
	for _, name := range b.axes.texts("model") {
		m, err := mixtureNamed(name, b.settings, b.p)
		if err != nil {
			return err
		}
		plan, err := m.plan()
		if err != nil {
			return err
		}
		x := X("model", name)
		b.exact(name, "weights", "B", x, float64(plan.TotalBytes()))
		b.exact(name, "stays", "B", x, float64(plan.PinnedBytes()))
		b.exact(name, "least_memory", "B", x, float64(plan.LeastBytes())+b.p["other_bytes"])
		for _, trace := range b.axes.texts("trace") {
			c, err := b.expertChoices(trace, &m, int(warm+tokens))
			if err != nil {
				return err
			}
			if err := b.expertGrid(name, trace, &m, plan, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// expertChoices are those of a trace by its name.
func (b *builder) expertChoices(trace string, m *mixture, tokens int) (choices, error) {
	skew, drawn := map[string]float64{"uniform": 0, "zipf": b.p["skew"]}[trace]
	switch {
	case drawn:
		return drawChoices(m, tokens, skew, b.p["predicted"], uint64(b.p["seed"])), nil
	case trace == "recorded":
		return recordedChoices(b, m, tokens)
	}
	return choices{}, fmt.Errorf("trace=%s: known are uniform, zipf, recorded", trace)
}

// expertGrid adds the rows of a model and trace, for each memory that holds what stays and one step's experts.
func (b *builder) expertGrid(name, trace string, m *mixture, plan *mixturePlan, c choices) error {
	for _, memory := range b.axes.numbers("memory_GB") {
		plan.BudgetBytes = int64(memory*1e9 - b.p["other_bytes"])
		if plan.BudgetBytes < plan.LeastBytes() {
			continue
		}
		kept, best, err := found(m, plan, c, int(b.p["warm"]))
		if err != nil {
			return err
		}
		b.model(name+", "+trace, "kept", "fraction", X("memory_GB", memory), kept)
		b.model(name+", "+trace, "kept_optimum", "fraction", X("memory_GB", memory), best)
		for _, rate := range b.axes.numbers("disk_GBps") {
			if rate <= 0 {
				return fmt.Errorf("disk_GBps=%g: want more than 0", rate)
			}
			r, err := runExperts(m, plan, c, b.p, stream.Disk{BytesPerS: rate * 1e9, Latency: seconds(b.p["latency_s"]), Align: 4096, FormBytesPerS: b.p["form_bps"]})
			if err != nil {
				return err
			}
			series, x, n := name+", "+trace, X("memory_GB", memory, "disk_GBps", rate), b.p["tokens"]
			b.model(series, "tokens_per_s", "tokens/s", x, n/r.seconds)
			b.model(series, "of_bound", "fraction", x, r.bound/r.seconds)
			b.model(series, "read_a_token", "B", x, float64(r.use.ReadBytes)/n)
			b.model(series, "hits", "fraction", x, r.use.HitShare())
			b.model(series, "predicted", "fraction", x, r.use.PredictedShare())
			b.model(series, "wasted", "fraction", x, r.use.WastedShare())
		}
	}
	return nil
}
