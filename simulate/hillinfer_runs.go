package simulate

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// hillUses are the packages of the product that run for an experiment; those of builtUses all run in one step.
var hillUses = map[string][]string{"hillinfer-fig7": builtUses, "hillinfer-fig9": builtUses, "hillinfer-alpha": builtUses, "hillinfer-built": builtUses, "hillinfer-beta": builtUses, "hillinfer-crossover": {"policy", "retrieval"}, "hillinfer-fig16b": {"policy"}}

func hillRuns(register registrar) {
	all := func() map[string]value { return pick("hillinfer") }
	io := []string{"hillinfer-fig3a/transfer-12k", "instinfer-fig14/share-flexgen-0"}
	reg := func(id, title string, a axes, params map[string]value, run func(*builder) error) {
		register(&experiment{id: id, title: title, params: params, axes: a, on: io, run: run, uses: hillUses[id]})
	}
	built := func() map[string]value {
		p := all()
		maps.Copy(p, traceParams())
		p["trace"] = value{Value: syntheticTrace, Unit: "text", Source: "measured", Note: "what tokens are worth at each step: synthetic, by the parameters fitted to recorded traces, or a recorded one's file (infer bench --record-trace)"}
		return p
	}
	contexts := nums(4096, 8192, 16384, 32768)
	register(&experiment{id: "hillinfer-fig2a", title: "memory over the context", axes: axes{"model": words("Qwen-7B", "Llama-2-13B"), "context": contexts, "batch": nums(8)}, run: hillMemory(true)})
	register(&experiment{id: "hillinfer-fig2b", title: "memory over the batch", axes: axes{"model": words("Qwen-7B", "Llama-2-13B"), "context": nums(4096), "batch": nums(1, 4, 8, 16)}, run: hillMemory(false)})
	reg("hillinfer-fig3a", "transfer of KV from an SSD", axes{"model": words("Qwen-7B"), "context": nums(2048, 4096, 8192, 12288), "share": nums(0.2, 0.3), "batch": nums(8)}, pick("hillinfer", "ssd_bps"), hillTransfer)
	reg("hillinfer-fig3b", "a layer's timeline with an SSD", axes{"model": words("Qwen-7B"), "context": nums(8192), "batch": nums(8)}, all(), hillTimeline)
	placed := traceParams()
	maps.Copy(placed, map[string]value{
		"prompt": {Value: 128.0, Unit: "tokens", Source: "paper"}, "steps": {Value: 64.0, Unit: "tokens", Source: "paper"},
		"gpu_share": {Value: 0.2, Unit: "fraction", Source: "paper"}, "storage_share": {Value: 0.2, Unit: "fraction", Source: "paper"}})
	delete(placed, "level_shared") // of one layer
	delete(placed, "rest_shared")
	register(&experiment{id: "hillinfer-fig4", title: "KV that changes its tier under naive placement", params: placed, axes: axes{"model": words("OPT-6.7B")}, run: hillMigration})
	reg("hillinfer-fig5", "rates of scoring and of links", axes{}, all(), hillRates)
	reg("hillinfer-fig7", "evaluation with and without streaming of score blocks", axes{"block": nums(64, 128, 256, 512, 1024), "model": words("Qwen-7B"), "context": nums(8192), "batch": nums(8)}, built(), hillStreaming)
	reg("hillinfer-fig9", "a step with SSD, drive, and drive with pipelining", axes{"model": words("Qwen-7B"), "context": nums(8192), "batch": nums(8)}, built(), hillSchedules)
	reg("hillinfer-fig12", "latency of every model and data set", axes{"model": words("LongChat-7B", "LLaMA-13B", "Qwen-7B", "OPT-6.7B"), "data": words("LongBench", "PG-19")}, all(), hillFigure12)
	reg("hillinfer-fig13", "speedup of every model and data set", axes{"model": words("LongChat-7B", "LLaMA-13B", "Qwen-7B", "OPT-6.7B"), "data": words("LongBench", "PG-19")}, all(), hillFigure13)
	reg("hillinfer-fig14", "latency over the batch", axes{"model": words("OPT-6.7B"), "batch": nums(1, 2, 4, 6, 8, 10), "input": nums(1920), "output": nums(128), "context": nums(2048)}, all(), hillFigure14)
	reg("hillinfer-fig15", "large batches", axes{"model": words("OPT-6.7B"), "batch": nums(20, 21, 22, 23, 24, 25), "input": nums(1920), "output": nums(128)}, all(), hillFigure15)
	reg("hillinfer-fig16a", "parts of HillInfer", axes{"model": words("Qwen-7B")}, all(), hillAblation)
	links := value{Value: "direct", Unit: "text", Source: "reading", Note: "direct: host and drive have links of their own to the GPU; store_forward: what the drive sends crosses the host's too"}
	beta := all()
	beta["links"] = links
	reg("hillinfer-fig16b", "ratio of hot to cold KV", axes{"model": words("Qwen-7B"), "context": nums(8192), "batch": nums(8)}, beta, hillBeta)
	reg("hillinfer-built", "HillInfer's decode step on the product's own code, beside the formula", axes{"model": words("OPT-6.7B"), "context": nums(1984), "batch": nums(1, 2, 4, 8, 10)}, built(), hillBuilt)
	var rates []string
	for _, c := range balanceCases {
		rates = append(rates, c.name)
	}
	reg("hillinfer-beta", "the step over the ratio of hot to cold KV on the product's own code, beside the ratio that the policy chooses", axes{"rates": words(rates...), "model": words("OPT-6.7B"), "context": nums(1984), "batch": nums(4)}, built(), hillSweep)
	crossing := all()
	crossing["round_trip_s"] = value{Value: 31.5e-6, Unit: "s", Source: "reading", Note: "of a question: profile smartssd's command and two messages"}
	reg("hillinfer-crossover", "from how many tokens on the drive's scoring pays, by the product's own choice", axes{"f_c": nums(15e9, 30.27e9, 60e9, 120e9), "keys": words("ddr", "nand"), "model": words("Llama-3.1-8B"), "context": nums(16000, 32000), "batch": nums(1)}, crossing, hillCrossover)
	reg("hillinfer-alpha", "importance rate", axes{"rate": nums(0.05, 0.1, 0.2, 0.3, 0.5), "model": words("Qwen-7B"), "context": nums(8192), "batch": nums(8)}, built(), hillAlpha)
}

// hillCases runs f for every model, context and batch of the axes.
func (b *builder) hillCases(f func(model string, h hill)) error {
	return b.hillTry(func(model string, h hill) error { f(model, h); return nil })
}

// hillTry is hillCases for what may fail.
func (b *builder) hillTry(f func(model string, h hill) error) error {
	recorded, err := b.scoreTrace()
	b.recorded = recorded
	if err != nil {
		return err
	}
	for _, name := range b.axes.texts("model") {
		m, err := modelNamed(name)
		if err != nil {
			return err
		}
		for _, n := range b.axes.numbers("context") {
			for _, batch := range b.axes.numbers("batch") {
				if err := f(name, hill{m: m, p: b.p, batch: batch, context: n, scores: recorded}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func hillMemory(targets bool) func(b *builder) error {
	return func(b *builder) error {
		err := b.hillCases(func(model string, h hill) {
			x := func() map[string]any { return X("model", model, "context", h.context, "batch", h.batch) }
			b.exact("Full Cache", "kv_bytes", "B", x(), h.kv())
			b.exact("Full Cache", "weight_bytes", "B", x(), h.m.weightBytes())
		})
		if err != nil || !targets {
			return err
		}
		total := func(model string, n float64) func(P) float64 {
			return func(P) float64 { m := shapes[model]; return (m.weightBytes() + 8*n*m.kvBytes()) / 1e9 }
		}
		b.paper("hillinfer-fig2a/qwen-7b-4k", opts{}, total("Qwen-7B", 4096))
		b.paper("hillinfer-fig2a/llama-2-13b-4k", opts{}, total("Llama-2-13B", 4096))
		b.paper("hillinfer-fig2a/llama-2-13b-32k", opts{}, total("Llama-2-13B", 32768))
		b.paper("hillinfer-fig2a/13b-16k", opts{}, total("Llama-2-13B", 16384))
		return nil
	}
}

func hillTransfer(b *builder) error {
	err := b.hillCases(func(model string, h hill) {
		for _, share := range b.axes.numbers("share") {
			if model == "Qwen-7B" && h.context == 12288 && share == 0.3 && h.batch == 8 {
				continue // the target's row
			}
			b.model("SSD offload", "transfer_s", "s", X("model", model, "context", h.context, "batch", h.batch, "share", share), share*h.kv()/b.p["ssd_bps"])
		}
	})
	b.paper("hillinfer-fig3a/transfer-12k", opts{}, func(p P) float64 { return 0.3 * 8 * 12288 * shapes["Qwen-7B"].kvBytes() / p["ssd_bps"] })
	return err
}

func hillTimeline(b *builder) error {
	return b.hillCases(func(model string, h hill) {
		x := func(part string) map[string]any {
			return X("model", model, "context", h.context, "batch", h.batch, "part", part)
		}
		l := float64(h.m.layers)
		move := (h.kv()/b.p["B_c"] + h.storage(h.stored())) / l
		b.model("host and SSD", "layer_s", "s", x("transfer"), move)
		b.model("host and SSD", "layer_s", "s", x("compute"), h.gpu()/l)
		b.model("host and SSD", "gpu_idle_share", "fraction", x("idle"), max(0, 1-h.gpu()/l/max(move, h.gpu()/l)))
	})
}

// hillMigration replays a synthetic trace of one layer: after each step the ranking places a fifth on the GPU, the last fifth on
// storage; it counts tokens that cross between storage and the rest, or the GPU and the rest.
func hillMigration(b *builder) error {
	rng, m := rand.New(rand.NewPCG(uint64(b.p["seed"]), 4)), scoreModelOf(b.p)
	n, steps := int(min(1e5, max(10, b.p["prompt"]))), int(min(1e4, max(1, b.p["steps"])))
	level, rest := make([]float64, 0, n+steps), make([]float64, 0, n+steps)
	for range n {
		level, rest = append(level, m.level*exponential(rng)), append(rest, rng.NormFloat64())
	}
	var class []int
	moved, count := 0.0, 0.0
	for range steps {
		level, rest = append(level, m.level*exponential(rng)), append(rest, rng.NormFloat64())
		worth := make([]float64, len(rest))
		for t := range rest {
			rest[t] = m.persistence*rest[t] + math.Sqrt(1-m.persistence*m.persistence)*rng.NormFloat64()
			worth[t] = level[t] + rest[t] + m.recent(float64(len(rest)-t))
		}
		next := placeByRank(worth, b.p["gpu_share"], b.p["storage_share"])
		for t, c := range class {
			if next[t] != c {
				moved++
			}
			count++
		}
		class = next
	}
	share := 100 * moved / max(1, count)
	b.paper("hillinfer-fig4/migrated", opts{reason: "a synthetic trace, fitted to SmolLM2; what OPT-6.7B's tokens are worth is not known"}, func(P) float64 { return share })
	return nil
}

// placeByRank is where tokens go by what they are worth: 0 the GPU, 1 host memory, 2 storage.
func placeByRank(worth []float64, gpu, storage float64) []int {
	order := make([]int, len(worth))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if x, y := worth[a], worth[b]; x != y {
			if x > y {
				return -1
			}
			return 1
		}
		return a - b
	})
	class := make([]int, len(worth))
	for rank, t := range order {
		switch r := float64(rank) / float64(len(order)); {
		case r < gpu:
			class[t] = 0
		case r < 1-storage:
			class[t] = 1
		default:
			class[t] = 2
		}
	}
	return class
}

func hillRates(b *builder) error {
	for series, v := range map[string]float64{"host scores": b.p["f_c"], "drive scores": b.p["f_s"], "host to GPU": b.p["B_c"], "drive to host": b.p["B_s"]} {
		b.model(series, "rate", "B/s", X(), v)
	}
	return nil
}

func hillStreaming(b *builder) error {
	return b.hillTry(func(model string, h hill) error {
		for _, block := range b.axes.numbers("block") {
			blocks := math.Ceil(h.context * h.stored() / h.kv() / max(1, block))
			x := func() map[string]any { return X("block", block, "model", model, "context", h.context) }
			if err := b.built("streamed", x(), h, fmt.Sprintf("hie=true,block=%d", h.blockTokens(block))); err != nil {
				return err
			}
			b.exact("streamed", "score_bytes", "B", x(), 4*block*blocks*h.batch)
		}
		return b.built("all at once", X("model", model, "context", h.context), h, "hie=false")
	})
}

func hillSchedules(b *builder) error {
	return b.hillTry(func(model string, h hill) error {
		x := func() map[string]any { return X("model", model, "context", h.context, "batch", h.batch) }
		b.model("SSD", "step_s", "s", x(), h.hillinfer(parts{noAhead: true, plainSSD: true}))
		return errors.Join(b.built("CSD", x(), h, "query=exact"), b.built("CSD and pipelining", x(), h, "query=guess"))
	})
}

// built adds the step of HillInfer as it is built: the product's own code, under more arguments of its policy.
func (b *builder) built(series string, x map[string]any, h hill, args string) error {
	run, err := h.builtStep(args)
	if err != nil {
		return err
	}
	for _, v := range []struct {
		metric, unit string
		value        float64
	}{{"step_s", "s", run.step}, {"early_step_s", "s", run.early}, {"hot_share", "fraction", run.hot}, {"read_bytes", "B", run.read}, {"drive_bytes", "B", run.crossed}} {
		b.model(series, v.metric, v.unit, x, v.value)
		b.rows[len(b.rows)-1].Code = Shared
	}
	return nil
}

// hillBuilt sets the step as it is built beside the formula, for Fig. 14's and Fig. 12's workloads.
func hillBuilt(b *builder) error {
	add := func(model string, h hill) error {
		x := X("model", model, "context", h.context, "batch", h.batch)
		b.model("formula", "step_s", "s", x, h.hillinfer(parts{}))
		return b.built("as built", x, h, "query=guess")
	}
	err := b.hillTry(add)
	for _, w := range workloads {
		if err == nil && w.data == "LongBench" && w.model != "OPT-6.7B" && !b.set["model"] {
			err = add(w.model, hill{m: shapes[w.model], p: b.p, batch: w.batch, context: w.n, scores: b.recorded})
		}
	}
	return err
}

func (b *builder) hillWorkloads(f func(x map[string]any, h hill, n float64)) {
	for _, w := range workloads {
		if slices.Contains(b.axes.texts("model"), w.model) && slices.Contains(b.axes.texts("data"), w.data) {
			f(X("model", w.model, "data", w.data, "batch", w.batch, "input", w.n), hill{m: shapes[w.model], p: b.p, batch: w.batch}, w.n)
		}
	}
}

var hillVaried = []string{"f_c", "host_share", "fs_bps", "hit_rate", "B_c"}

const hillReason = "the paper does not say where the KV lies, what f_c, f_s and the SSD's rate are, nor which baseline gives which end (open points of HillInfer)"

func hillFigure12(b *builder) error {
	for _, name := range b.axes.texts("model") {
		if _, err := modelNamed(name); err != nil {
			return err
		}
	}
	b.hillWorkloads(func(x map[string]any, h hill, n float64) {
		for _, m := range hillMethods {
			b.model(m.name, "latency_s", "s", x, h.latency(m, n, 128))
		}
	})
	o := opts{varied: hillVaried, reason: hillReason}
	b.paper("hillinfer-fig12/reduction-smallest", o, func(p P) float64 { low, _ := hillSpread(p); return 100 * (1 - 1/low) })
	b.paper("hillinfer-fig12/reduction-largest", o, func(p P) float64 { _, high := hillSpread(p); return 100 * (1 - 1/high) })
	return nil
}

func hillFigure13(b *builder) error {
	b.hillWorkloads(func(x map[string]any, h hill, n float64) {
		ours := h.latency(hillMethods[4], n, 128)
		for _, m := range hillMethods[:4] {
			b.model("HillInfer over "+m.name, "speedup_over", "x", x, h.latency(m, n, 128)/ours)
		}
	})
	o := opts{varied: hillVaried, reason: hillReason}
	b.paper("hillinfer-fig13/speedup-smallest", o, func(p P) float64 { low, _ := hillSpread(p); return low })
	b.paper("hillinfer-fig13/speedup-largest", o, func(p P) float64 { _, high := hillSpread(p); return high })
	return nil
}

func hillFigure14(b *builder) error {
	m, err := modelNamed(b.axes.texts("model")[0])
	if err != nil {
		return err
	}
	in, out := b.axes.numbers("input")[0], b.axes.numbers("output")[0]
	keys := map[string]string{"H2O-like": "hillinfer-fig14/h2o-like", "Prefetch-based": "hillinfer-fig14/prefetch-based", "HillInfer": "hillinfer-fig14/hillinfer"}
	for _, batch := range b.axes.numbers("batch") {
		for _, k := range hillMethods {
			at := func(p P) float64 { h := hill{m: m, p: p, batch: batch}; return h.latency(k, in, out) }
			if key := keys[k.name]; key != "" && batch == 10 && in == 1920 && out == 128 {
				b.paper(key, opts{reason: hillReason}, at)
				continue
			}
			b.model(k.name, "latency_s", "s", X("model", b.axes.texts("model")[0], "batch", batch, "input", in, "output", out), at(b.p))
		}
		for _, n := range b.axes.numbers("context") {
			tokens := math.Ceil(b.p["alpha"]*n - 1e-9)
			b.exact("HillInfer", "fetched_bytes", "B", X("batch", batch, "context", n), m.kvBytes()*tokens*batch)
		}
	}
	return nil
}

func hillFigure15(b *builder) error {
	m, err := modelNamed(b.axes.texts("model")[0])
	if err != nil {
		return err
	}
	in, out := b.axes.numbers("input")[0], b.axes.numbers("output")[0]
	for _, batch := range b.axes.numbers("batch") {
		h := hill{m: m, p: b.p, batch: batch}
		for _, k := range hillMethods {
			t := h.latency(k, in, out)
			b.model(k.name, "latency_s", "s", X("batch", batch, "input", in, "output", out), t)
			b.model(k.name, "tokens_per_s", "tokens/s", X("batch", batch, "input", in, "output", out), batch*out/t)
		}
		b.exact("KV", "kv_bytes", "B", X("batch", batch), batch*(in+out)*m.kvBytes())
	}
	return nil
}

func hillAblation(b *builder) error {
	m, err := modelNamed(b.axes.texts("model")[0])
	if err != nil {
		return err
	}
	h := hill{m: m, p: b.p, batch: 8}
	x := func() map[string]any { return X("model", b.axes.texts("model")[0], "input", 8192, "output", 128) }
	b.model("Prefetch-based", "latency_s", "s", x(), h.latency(hillMethods[2], 8192, 128))
	for series, off := range map[string]parts{"+HKM": {noAhead: true}, "+HKM & APP": {}} {
		b.model(series, "latency_s", "s", x(), h.latency(method{series, func(h hill) float64 { return h.hillinfer(off) }}, 8192, 128))
	}
	return nil
}

func hillBeta(b *builder) error {
	links := b.text("links")
	mode, ok := betaModes[links]
	if !ok {
		return errLinks
	}
	best := balance(b.p).Beta(mode)
	b.exact(links, "beta_formula", "ratio", X(), best)
	return b.hillCases(func(model string, h hill) {
		for i := -16; i <= 16; i++ {
			beta := best * math.Pow(8, float64(i)/16)
			b.model(links, "step_s", "s", X("beta", beta, "model", model, "context", h.context, "batch", h.batch), betaStep(h, beta, mode))
		}
	})
}

func hillAlpha(b *builder) error {
	return b.hillTry(func(model string, h hill) error {
		for _, rate := range b.axes.numbers("rate") {
			h.p = b.p.with("alpha", min(1, rate))
			if err := b.built("HillInfer", X("rate", rate, "model", model, "context", h.context, "batch", h.batch), h, "query=guess"); err != nil {
				return err
			}
		}
		return nil
	})
}
