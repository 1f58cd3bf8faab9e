package simulate

import (
	"fmt"
	"math"
)

func slimRuns(register registrar) {
	lengths := nums(8192, 16384, 24576, 28672, 32768)
	llama := func(names ...string) map[string]value {
		return slimParams("sliminfer-4090", "Llama-3.1-8B", "10/20/30", "8192/4096/2048", names...)
	}
	full := []string{"sliminfer-tabE/full"}
	register(&experiment{id: "sliminfer-tab2", title: "KV cache of the prompt after pruning", params: keep(llama(slim4090...), "model", "pruning_layers", "schedule"), axes: axes{"input": lengths}, run: slimTable2})
	register(&experiment{id: "sliminfer-fig5", title: "time to first token and end to end, 8k to 32k", params: llama(slim4090...), axes: axes{"input": lengths, "model": words("Llama-3.1-8B")}, on: full, run: slimFigure("sliminfer-fig5", "Llama-3.1-8B", slimLlama)})
	qwen := slimParams("sliminfer-4090", "Qwen2.5-7B", "9/18/26", "12288/6144/4096", slim4090...)
	register(&experiment{id: "sliminfer-figB", title: "the same for Qwen2.5-7B", params: qwen, axes: axes{"input": lengths, "model": words("Qwen2.5-7B")}, on: full, run: slimFigure("sliminfer-figB", "Qwen2.5-7B", slimQwen)})
	register(&experiment{id: "sliminfer-tab4", title: "blocking and asynchronous swaps", params: llama(slim4090...), axes: axes{"input": lengths}, on: full, run: slimTable4})
	register(&experiment{id: "sliminfer-fig1/fig6/tabE", title: "end to end at 32k of every method and schedule", params: llama(), axes: axes{"input": nums(32768)}, on: full, run: slimTableE})
	register(&experiment{id: "sliminfer-tabG", title: "swap threshold gamma", params: llama(slim4090...), axes: axes{"gamma": nums(0.99, 0.95, 0.9), "input": nums(32768)}, on: full, run: slimTableG})
	register(&experiment{id: "sliminfer-figC", title: "block size: cost of choosing and swapping", params: llama(slim4090...), axes: axes{"block": nums(32, 64, 128, 256)}, on: full, run: slimFigureC})
	register(&experiment{id: "sliminfer-fig3", title: "a layer's timeline: fetch before, beside and under compute", params: llama(slim4090...), on: full, run: slimFigure3})
	register(&experiment{id: "sliminfer-tabF", title: "Jetson AGX Orin: full column fitted, pruned column predicted", params: slimParams("sliminfer-orin", "Llama-3.1-8B", "10/20/30", "8192/4096/2048"),
		axes: axes{"input": nums(4096, 8192, 16384, 24576, 28672, 32768)}, on: slimOrinOn(), run: slimTableF})
}

// keep is a part of a set of parameters.
func keep(all map[string]value, names ...string) map[string]value {
	out := map[string]value{}
	for _, n := range names {
		out[n] = all[n]
	}
	return out
}

func slimOrinOn() (out []string) {
	for _, n := range []string{"4k", "8k", "16k", "24k", "28k", "32k"} {
		out = append(out, "sliminfer-tabF/full-ttft-"+n, "sliminfer-tabF/full-e2e-"+n)
	}
	return out
}

func slimTable2(b *builder) error {
	m, s, err := slimSetting(b, b.text("model"), slimLlama)
	if err != nil {
		return err
	}
	const gib = 1 << 30
	for _, n := range b.axes.numbers("input") {
		full, slim := n*m.kvBytes(), s.kvTokens(m, n)*m.kvLayer()
		b.exact("Full KV", "kv_bytes", "B", X("input", n), full)
		b.exact("SlimInfer", "kv_bytes", "B", X("input", n), slim)
		k := thousands(n)
		if _, ok := targets()["sliminfer-tab2/full-kv-"+k]; ok && !b.set["model"] && !b.set["schedule"] && !b.set["pruning_layers"] {
			b.paper("sliminfer-tab2/full-kv-"+k, opts{}, func(P) float64 { return full / gib })
			b.paper("sliminfer-tab2/sliminfer-"+k, opts{}, func(P) float64 { return slim / gib })
			b.paper("sliminfer-tab2/memory-saving-"+k, opts{}, func(P) float64 { return 100 * (1 - slim/full) })
		}
	}
	return nil
}

// slimFigure is speedups and operations over the input, of a model.
func slimFigure(id, model string, s schedule) func(b *builder) error {
	return func(b *builder) error {
		name := model
		if b.set["model"] {
			name = b.axes.texts("model")[0]
		}
		m, err := modelNamed(name)
		if err != nil {
			return err
		}
		_, s, err := slimSetting(b, name, s)
		if err != nil {
			return err
		}
		for _, n := range b.axes.numbers("input") {
			x := func() map[string]any { return X("input", n, "model", name) }
			for series, alive := range map[string]func(int) float64{"Full KV": everything(n), "SlimInfer": s.alive(n)} {
				linear, attn := m.prefillFlops(alive)
				b.exact(series, "prefill_flops", "FLOP", x(), linear+attn)
			}
			ttft, e2e := slimFull(m, b.p, n)
			pt, pe := slimPruned(m, s, b.p, n, 0.9, false)
			b.model("Full KV", "ttft_s", "s", x(), ttft)
			b.model("Full KV", "e2e_s", "s", x(), e2e)
			b.model("SlimInfer", "ttft_s", "s", x(), pt)
			b.model("SlimInfer", "e2e_s", "s", x(), pe)
		}
		o := opts{varied: slimVaried, adjust: slimAdjust, reason: slimReason}
		b.paper(id+"/ttft-32k", o, func(p P) float64 {
			a, _ := slimFull(m, p, 32768)
			z, _ := slimPruned(m, s, p, 32768, 0.9, false)
			return a / z
		})
		b.paper(id+"/e2e-32k", o, func(p P) float64 {
			_, a := slimFull(m, p, 32768)
			_, z := slimPruned(m, s, p, 32768, 0.9, false)
			return a / z
		})
		return nil
	}
}

func slimTable4(b *builder) error {
	m, s, err := slimSetting(b, "Llama-3.1-8B", slimLlama)
	if err != nil {
		return err
	}
	for _, n := range b.axes.numbers("input") {
		x := func() map[string]any { return X("input", n, "output", 16) }
		_, full := slimFull(m, b.p, n)
		b.model("Full KV", "e2e_s", "s", x(), full)
		for _, c := range []struct {
			series, key string
			blocking    bool
		}{{"SlimInfer w/o async", "blocking", true}, {"SlimInfer", "async", false}} {
			e2e := func(p P) float64 { _, e := slimPruned(m, s, p, n, 0.9, c.blocking); return e }
			b.model(c.series, "e2e_s", "s", x(), e2e(b.p))
			if key := "sliminfer-tab4/" + c.key + "-" + thousands(n); targets()[key].Key != "" {
				b.paper(key, opts{varied: slimVaried, adjust: slimAdjust, reason: slimReason}, func(p P) float64 {
					_, full := slimFull(m, p, n)
					return full / e2e(p)
				})
			}
		}
	}
	return nil
}

func slimTableE(b *builder) error {
	m, _, err := slimSetting(b, "Llama-3.1-8B", slimLlama)
	if err != nil {
		return err
	}
	const n = 32768
	o := opts{reason: slimReason}
	b.paper("sliminfer-tabE/full", o, func(p P) float64 { _, e := slimFull(m, p, n); return e })
	sparse := func(share func(p P) float64) func(p P) float64 {
		return func(p P) float64 {
			linear, attn := m.prefillFlops(everything(n))
			return (linear+attn*share(p))/p["gpu_flops"] + slimSteps*slimStep(m, p, n*float64(m.layers))
		}
	}
	b.paper("sliminfer-tabE/minference", opts{reason: "the cost of finding patterns is not in the model"}, sparse(func(p P) float64 { return p["minference_attention"] }))
	for key, times := range map[string]float64{"0.99": 1.7, "0.98": 1.4, "0.95": 1, "0.90": 0.75} {
		b.paper("sliminfer-tabE/flexprefill-"+key, opts{reason: "the share of attention at each gamma is our reading"}, sparse(func(p P) float64 { return min(1, times*p["flexprefill_attention"]) }))
	}
	for key, share := range map[string]float64{"50": 0.5, "45": 0.45, "40": 0.4, "35": 0.35} {
		lazy := schedule{[]float64{10, 20, 30}, []float64{n * share, n * share * share, n * share * share * share}}
		b.paper("sliminfer-tabE/lazyllm-"+key, opts{reason: "rows that come back from the auxiliary cache are not in the model"}, func(p P) float64 {
			return slimPrefill(m, p, lazy.alive(n)) + slimSteps*slimStep(m, p, lazy.kvTokens(m, n))
		})
	}
	for key, keep := range map[string][]float64{"16-8-4": {16384, 8192, 4096}, "12-6-4": {12288, 6144, 4096}, "10-5-3": {10240, 5120, 3072}, "8-4-2": {8192, 4096, 2048}} {
		s := schedule{[]float64{10, 20, 30}, keep}
		b.paper("sliminfer-tabE/sliminfer-"+key, opts{varied: slimVaried, adjust: slimAdjust, reason: slimReason}, func(p P) float64 { _, e := slimPruned(m, s, p, n, 0.9, false); return e })
	}
	return nil
}

func slimTableG(b *builder) error {
	m, s, err := slimSetting(b, "Llama-3.1-8B", slimLlama)
	if err != nil {
		return err
	}
	for _, gamma := range b.axes.numbers("gamma") {
		for key, g := range map[string]float64{"0.99": 0.99, "0.95": 0.95, "0.90": 0.9} {
			if math.Abs(g-gamma) < 1e-9 {
				b.paper("sliminfer-tabG/gamma-"+key, opts{varied: slimVaried, adjust: slimAdjust, reason: slimReason}, func(p P) float64 { _, e := slimPruned(m, s, p, 32768, g, false); return e })
			}
		}
		b.model("SlimInfer w/o async", "e2e_s", "s", X("gamma", gamma, "input", 32768, "output", 16), second(slimPruned(m, s, b.p, 32768, gamma, true)))
	}
	return nil
}

func second(_, b float64) float64 { return b }

func slimFigureC(b *builder) error {
	m, s, err := slimSetting(b, "Llama-3.1-8B", slimLlama)
	if err != nil {
		return err
	}
	for _, block := range b.axes.numbers("block") {
		p := b.p.with("select_s", b.p["select_s"]*64/block) // scores, sorts and copies a block
		b.model("SlimInfer", "e2e_s", "s", X("block", block, "input", 32768, "output", 16), second(slimPruned(m, s, p, 32768, 0.9, false)))
	}
	return nil
}

func slimFigure3(b *builder) error {
	m, s, err := slimSetting(b, "Llama-3.1-8B", slimLlama)
	if err != nil {
		return err
	}
	step := slimStep(m, b.p, s.kvTokens(m, 32768)) / float64(m.layers)
	fetch := b.p["swap_share"] * s.keep[0] * m.kvLayer() / b.p["pcie_bps"]
	for series, t := range map[string]float64{"fetch, then compute (Quest-like)": step + fetch, "one layer ahead (InfiniGen-like)": max(step, fetch), "under FFN and next QKV (SlimInfer)": max(step, fetch) + b.p["select_s"]/10} {
		b.model(series, "step_s", "s", X("layer", 11, "input", 32768), t)
	}
	return nil
}

func slimTableF(b *builder) error {
	m, s, err := slimSetting(b, "Llama-3.1-8B", slimLlama)
	if err != nil {
		return err
	}
	var o, e opts
	e.varied = []string{"select_s", "pcie_bps", "swap_share"}
	for _, n := range b.axes.numbers("input") {
		k := thousands(n)
		if targets()["sliminfer-tabF/full-ttft-"+k].Key == "" {
			ttft, e2e := slimFull(m, b.p, n)
			pt, pe := slimPruned(m, s, b.p, n, 0.9, false)
			for metric, v := range map[string][2]float64{"ttft_s": {ttft, pt}, "e2e_s": {e2e, pe}} {
				b.model("Full KV", metric, "s", X("input", n, "output", 16), v[0])
				b.model("SlimInfer", metric, "s", X("input", n, "output", 16), v[1])
			}
			continue
		}
		b.paper("sliminfer-tabF/full-ttft-"+k, o, func(p P) float64 { t, _ := slimFull(m, p, n); return t })
		b.paper("sliminfer-tabF/full-e2e-"+k, o, func(p P) float64 { _, t := slimFull(m, p, n); return t })
		e.reason = slimOrinReason(m, s, b.p, n, false)
		b.paper("sliminfer-tabF/slim-ttft-"+k, e, func(p P) float64 { t, _ := slimPruned(m, s, p, n, 0.9, false); return t })
		e.reason = slimOrinReason(m, s, b.p, n, true)
		b.paper("sliminfer-tabF/slim-e2e-"+k, e, func(p P) float64 { _, t := slimPruned(m, s, p, n, 0.9, false); return t })
	}
	return nil
}

// slimOrinReason says of a length of Table F where the paper's pruned column is above the model: in the prompt, in a decode step, or both.
func slimOrinReason(m shape, s schedule, p P, n float64, e2e bool) string {
	k := thousands(n)
	ttft, paper := targets()["sliminfer-tabF/slim-ttft-"+k].Value, targets()["sliminfer-tabF/slim-e2e-"+k].Value
	first, all := slimPruned(m, s, p, n, 0.9, false)
	prompt := fmt.Sprintf("the prompt of %s takes %.1f s in the paper and %.1f by its operations: %.2f s for each 1,000 of the %.0f tokens pruned first", k, ttft, first, (ttft-first)/max(1, (n-s.keep[0])/1000), max(0, n-s.keep[0]))
	if n <= s.keep[0] {
		prompt = fmt.Sprintf("at %s the first stage prunes nothing, and the prompt takes %.1f s in the paper, %.1f by its operations: %.1f s more", k, ttft, first, ttft-first)
	}
	if !e2e {
		return prompt + "; open: what pruned rows cost when they are set aside (the revive rule)"
	}
	return fmt.Sprintf("%s; and its 15 steps take %.2f s each, %.2f in the model (%.1f s of the %.1f missing); open: how many blocks a step swaps, and at which rate",
		prompt, (paper-ttft)/slimSteps, (all-first)/slimSteps, paper-ttft-(all-first), paper-all)
}
