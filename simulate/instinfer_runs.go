package simulate

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"terrace/csdshim/profiles"
)

var instOn = []string{"instinfer-fig14/share-flexgen-0", "instinfer-fig14/share-insti-dense-1", "instinfer-fig12/dense-over-deepspeed", "instinfer-fig12/deepspeed-drop"}

var instVaried = []string{"token_clustering", "embedding_clustering", "fs_bps", "step_s"}

func instRuns(register registrar) {
	all := func() map[string]value { return pick("instinfer") }
	batches := nums(4, 8, 16, 32, 64, 128, 256)
	reg := func(id, title string, a axes, run func(*builder) error) {
		register(&experiment{id: id, title: title, params: all(), axes: a, on: instOn, run: run, uses: []string{"csdshim/nand"}})
	}
	register(&experiment{id: "instinfer-built", title: "a layer's attention on the drive's own code, by stage and over the number of drives", params: all(), axes: axes{"drives": nums(1, 2, 4, 7, 10, 20), "run": nums(1, 16), "context": nums(2048), "pages": words("paired", "apart")}, on: instOn, run: instBuilt, uses: instBuiltUses})
	register(&experiment{id: "instinfer-kvsize", title: "KV cache in bytes", axes: axes{"model": words("OPT-13B", "OPT-175B"), "context": nums(2048, 4096), "batch": nums(32, 128)}, run: instKVSize})
	register(&experiment{id: "instinfer-pages", title: "pages that a choice touches", axes: axes{"m": nums(2, 4, 8), "r": nums(16), "d": nums(128), "n": nums(16), "k": nums(128), "s": nums(2048)}, run: instPages})
	reg("instinfer-fig4", "throughput of DeepSpeed and FlexGen over the batch", axes{"batch": batches}, instFigure4)
	reg("instinfer-fig5", "FlexGen's decode step by part", axes{"batch": nums(4, 8, 16, 32, 64)}, instFigure5)
	reg("instinfer-fig6", "operations a byte of each operator", axes{"batch": nums(4, 64, 256)}, instFigure6)
	reg("instinfer-tab1", "throughput bound of 768 DSP slices", axes{"mhz": nums(100, 285)}, instTable1)
	reg("instinfer-fig12", "throughput with one drive", axes{"batch": batches}, instFigure12)
	reg("instinfer-fig13", "throughput with two drives", axes{"batch": batches}, instFigure13)
	reg("instinfer-fig14", "dense decode step by part, and its bytes", axes{"batch": nums(4, 64, 256), "context": nums(1536)}, instFigure14)
	reg("instinfer-fig15", "sparse decode step by part", axes{"batch": nums(4, 64, 256)}, instFigure15)
	reg("instinfer-fig16", "the engine's stages", axes{"batch": nums(64)}, instFigure16)
	register(&experiment{id: "instinfer-fig17a", title: "1 to 20 drives", params: withCacheRead(all()), axes: axes{"csds": nums(1, 2, 4, 8, 10, 20)}, on: instOn, run: instFigure17a, uses: instBuiltUses})
	reg("instinfer-fig17b", "compression ratio", axes{"ratio": nums(1, 0.5, 0.25, 0.125, 0.0625), "csds": nums(1, 2)}, instFigure17b)
	reg("instinfer-prefill", "KV of a layer goes down while the next computes", axes{"batch": nums(64, 256)}, instPrefill)
	reg("scale-drives", "InstI-Dense over the number of drives", axes{"drives": nums(1, 2, 4, 8, 12, 16, 20), "batch": nums(256)}, scaleDrives)
}

func instKVSize(b *builder) error {
	for _, name := range b.axes.texts("model") {
		m, err := modelNamed(name)
		if err != nil {
			return err
		}
		for _, n := range b.axes.numbers("context") {
			for _, batch := range b.axes.numbers("batch") {
				b.exact("KV", "kv_bytes", "B", X("model", name, "context", n, "batch", batch), m.kvBytes()*n*batch)
			}
		}
	}
	const gib = 1 << 30
	b.paper("instinfer-kvsize/13b-4k", opts{}, func(P) float64 { return shapes["OPT-13B"].kvBytes() * 4096 * 32 / gib })
	b.paper("instinfer-kvsize/13b-2k", opts{}, func(P) float64 { return shapes["OPT-13B"].kvBytes() * 2048 * 128 / gib })
	b.paper("instinfer-kvsize/175b-2k", opts{reason: "the paper scales by parameter count; layers and hidden size give this"}, func(P) float64 { return shapes["OPT-175B"].kvBytes() * 2048 * 128 / 1e12 })
	return nil
}

func instPages(b *builder) error {
	for _, d := range b.axes.numbers("d") {
		for _, r := range b.axes.numbers("r") {
			for _, m := range b.axes.numbers("m") {
				key := map[float64]string{2: "instinfer-pages/embedding-m2", 4: "instinfer-pages/embedding-m4", 8: "instinfer-pages/embedding-m8"}[m]
				share := 100 * touched(d, m, r)
				if key != "" && d == 128 && r == 16 {
					b.paper(key, opts{}, func(P) float64 { return share })
					continue
				}
				b.exact("random", "pages_share", "percent", X("stage", "embedding", "m", m, "r", r, "d", d), share)
			}
		}
	}
	b.paper("instinfer-pages/token-n16", opts{}, func(P) float64 { return 100 * touched(2048, 16, 128) })
	b.exact("naive", "read_amplification", "x", X("n", 16), instPage/(2.0*128))
	return nil
}

func (b *builder) step(series string, x map[string]any, s instStep) {
	for metric, v := range map[string]float64{"gpu_s": s.gpu, "link_s": s.link, "flash_s": s.flash, "engine_s": s.engine, "step_s": s.total()} {
		b.model(series, metric, "s", x, v)
	}
}

func instFigure4(b *builder) error {
	for _, batch := range b.axes.numbers("batch") {
		r := newInst(b.p, batch, 1, 0)
		b.model("DeepSpeed", "tokens_per_s", "tokens/s", X("batch", batch), r.tokensPerS(r.deepspeed(1)))
		if batch <= flexgenMax(b.p) {
			b.model("FlexGen", "tokens_per_s", "tokens/s", X("batch", batch), r.tokensPerS(r.flexgen(1)))
		}
	}
	b.paper("instinfer-fig4/deepspeed-decline", opts{}, func(p P) float64 { return 100 * (1 - 1/deepspeedDrop(p)) })
	return nil
}

func deepspeedDrop(p P) float64 {
	a, z := newInst(p, 16, 1, 0), newInst(p, 32, 1, 0)
	return a.tokensPerS(a.deepspeed(1)) / z.tokensPerS(z.deepspeed(1))
}

func instFigure5(b *builder) error {
	for _, batch := range b.axes.numbers("batch") {
		s := newInst(b.p, batch, 1, 0).flexgen(1)
		b.step("FlexGen", X("batch", batch), s)
		b.model("FlexGen", "kv_share_at", "percent", X("batch", batch), 100*s.share())
	}
	b.paper("instinfer-fig5/flexgen-share-max", opts{}, func(p P) float64 { return 100 * newInst(p, 64, 1, 0).flexgen(1).share() })
	return nil
}

func instFigure6(b *builder) error {
	m := shapes["OPT-13B"]
	for _, batch := range b.axes.numbers("batch") {
		b.exact("QKV, O and FFN", "flops_per_byte", "FLOP/B", X("batch", batch), 2*batch*m.active()/m.weightBytes())
		b.exact("attention", "flops_per_byte", "FLOP/B", X("batch", batch), 1)
	}
	return nil
}

func instTable1(b *builder) error {
	for _, mhz := range b.axes.numbers("mhz") {
		flops := 768 * 2 * mhz * 1e6
		b.exact("attention kernels", "engine_flops", "FLOP/s", X("mhz", mhz), flops)
		b.exact("attention kernels", "kv_rate", "B/s", X("mhz", mhz), flops) // an operation a byte of half-precision KV
	}
	return nil
}

func instFigure12(b *builder) error {
	for _, batch := range b.axes.numbers("batch") {
		x := func() map[string]any { return X("batch", batch, "csds", 1) }
		d, s := newInst(b.p, batch, 1, 0), newInst(b.p, batch, 1, 0.125)
		b.model("InstI-Dense", "tokens_per_s", "tokens/s", x(), d.tokensPerS(d.drive()))
		b.model("InstI-SparF", "tokens_per_s", "tokens/s", x(), s.tokensPerS(s.drive()))
		b.model("DeepSpeed", "tokens_per_s", "tokens/s", x(), d.tokensPerS(d.deepspeed(1)))
		if batch <= flexgenMax(b.p) {
			b.model("FlexGen", "tokens_per_s", "tokens/s", x(), d.tokensPerS(d.flexgen(1)))
			b.model("FlexGen-SparQ", "tokens_per_s", "tokens/s", x(), s.tokensPerS(s.flexgen(1)))
		}
	}
	rate := func(p P, batch, drives, ratio float64) float64 {
		r := newInst(p, batch, drives, ratio)
		return r.tokensPerS(r.drive())
	}
	flex := func(p P, batch float64) float64 { r := newInst(p, batch, 1, 0); return r.tokensPerS(r.flexgen(1)) }
	b.paper("instinfer-fig12/deepspeed-drop", opts{}, deepspeedDrop)
	b.paper("instinfer-fig12/dense-over-deepspeed", opts{}, func(p P) float64 {
		d := newInst(p, 16, 1, 0)
		return 100 * (rate(p, 256, 1, 0)/d.tokensPerS(d.deepspeed(1)) - 1)
	})
	o := opts{varied: instVaried, reason: "r, k and the pages that real choices touch are not in the paper"}
	b.paper("instinfer-fig12/dense-over-flexgen", opts{varied: []string{"fs_bps", "step_s"}}, func(p P) float64 { return rate(p, 64, 1, 0) / flex(p, 64) })
	b.paper("instinfer-fig12/sparf-over-dense", o, func(p P) float64 { return rate(p, 256, 1, 0.125) / rate(p, 256, 1, 0) })
	b.paper("instinfer-fig12/headline", o, func(p P) float64 {
		best := 0.0
		for batch := 4.0; batch <= flexgenMax(p); batch *= 2 {
			best = max(best, flex(p, batch))
		}
		return rate(p, 256, 1, 0.125) / best
	})
	b.paper("instinfer-fig12/flexgen-largest-batch", opts{}, flexgenMax)
	return nil
}

func instFigure13(b *builder) error {
	for _, batch := range b.axes.numbers("batch") {
		d, s := newInst(b.p, batch, 2, 0), newInst(b.p, batch, 2, 0.125)
		b.model("InstI-Dense", "tokens_per_s", "tokens/s", X("batch", batch, "csds", 2), d.tokensPerS(d.drive()))
		b.model("InstI-SparF", "tokens_per_s", "tokens/s", X("batch", batch, "csds", 2), s.tokensPerS(s.drive()))
		if batch <= flexgenMax(b.p) {
			b.model("FlexGen", "tokens_per_s", "tokens/s", X("batch", batch, "ssds", 2), d.tokensPerS(d.flexgen(2)))
		}
		b.model("DeepSpeed", "tokens_per_s", "tokens/s", X("batch", batch, "ssds", 2), d.tokensPerS(d.deepspeed(2)))
	}
	ratio := func(p P, share float64) float64 {
		i, f := newInst(p, 256, 2, share), newInst(p, 32, 1, share)
		return i.tokensPerS(i.drive()) / f.tokensPerS(f.flexgen(2))
	}
	b.paper("instinfer-fig13/dense", opts{varied: []string{"fs_bps", "step_s"}, reason: "at batch 32 the paper's FlexGen must be a third faster than its I/O rate of batch 64 says; where it gets that (page cache, GPU memory) is not in the text"}, func(p P) float64 { return ratio(p, 0) })
	b.paper("instinfer-fig13/sparf", opts{varied: instVaried}, func(p P) float64 { return ratio(p, 0.125) })
	b.paper("instinfer-fig13/flexgen-second-ssd", opts{}, func(p P) float64 {
		r := newInst(p, 32, 1, 0)
		return 100 * (r.tokensPerS(r.flexgen(2))/r.tokensPerS(r.flexgen(1)) - 1)
	})
	b.paper("instinfer-fig13/deepspeed-second-ssd", opts{}, func(p P) float64 {
		r := newInst(p, 32, 1, 0)
		return 100 * (r.tokensPerS(r.deepspeed(2))/r.tokensPerS(r.deepspeed(1)) - 1)
	})
	return nil
}

func instFigure14(b *builder) error {
	m := shapes["OPT-13B"]
	l, hidden := float64(m.layers), float64(m.hidden)
	for _, batch := range b.axes.numbers("batch") {
		for _, n := range b.axes.numbers("context") {
			x := func() map[string]any { return X("batch", batch, "context", n) }
			b.exact("InstI-Dense", "link_bytes_to_drive", "B", x(), 6*batch*hidden*l)
			b.exact("InstI-Dense", "link_bytes_to_host", "B", x(), 2*batch*hidden*l)
			b.exact("InstI-Dense", "flash_read_bytes", "B", x(), 2*batch*l*float64(m.heads)*math.Ceil(n/instGroup)*instPage)
			b.exact("FlexGen", "storage_read_bytes", "B", x(), m.kvBytes()*n*batch)
			r := newInst(b.p, batch, 1, 0)
			r.context = n
			b.step("FlexGen", x(), r.flexgen(1))
			b.step("InstI-Dense", x(), r.drive())
			r.drives = 2
			b.step("InstI-2-Dense", x(), r.drive())
		}
	}
	flex := func(p P) instStep { return newInst(p, 64, 1, 0).flexgen(1) }
	drive := func(p P, n float64) instStep { return newInst(p, 64, n, 0).drive() }
	b.paper("instinfer-fig14/share-flexgen-0", opts{}, func(p P) float64 { return 100 * flex(p).share() })
	b.paper("instinfer-fig14/share-insti-dense-1", opts{}, func(p P) float64 { return 100 * drive(p, 1).share() })
	b.paper("instinfer-fig14/share-insti-dense-2", opts{}, func(p P) float64 { return 100 * drive(p, 2).share() })
	b.paper("instinfer-fig14/reduction-insti-dense-1", opts{}, func(p P) float64 { return 100 * (1 - drive(p, 1).flash/flex(p).flash) })
	b.paper("instinfer-fig14/reduction-insti-dense-2", opts{}, func(p P) float64 { return 100 * (1 - drive(p, 2).flash/flex(p).flash) })
	return nil
}

func instFigure15(b *builder) error {
	for _, batch := range b.axes.numbers("batch") {
		b.step("FlexGen-SparQ", X("batch", batch), newInst(b.p, batch, 1, 0.125).flexgen(1))
		b.step("InstI-SparF", X("batch", batch, "csds", 1), newInst(b.p, batch, 1, 0.125).drive())
		b.step("InstI-SparF", X("batch", batch, "csds", 2), newInst(b.p, batch, 2, 0.125).drive())
	}
	o := opts{varied: []string{"token_clustering", "embedding_clustering", "step_s"}, reason: "the share follows the pages that real choices touch, which are not in the paper"}
	b.paper("instinfer-fig15/share-flexgen-sparq-0", opts{}, func(p P) float64 { return 100 * newInst(p, 64, 1, 0.125).flexgen(1).share() })
	b.paper("instinfer-fig15/share-insti-sparf-1", o, func(p P) float64 { return 100 * newInst(p, 64, 1, 0.125).drive().share() })
	b.paper("instinfer-fig15/share-insti-sparf-2", o, func(p P) float64 { return 100 * newInst(p, 64, 2, 0.125).drive().share() })
	return nil
}

func instFigure16(b *builder) error {
	for _, batch := range b.axes.numbers("batch") {
		dense, sparse := newInst(b.p, batch, 1, 0), newInst(b.p, batch, 1, 0.125)
		e, t := sparse.pageShares()
		kv := dense.kv()
		rate := dense.flashRate(1 << 30)
		for stage, s := range map[string]float64{"read keys": kv / 2 / rate, "read values": kv / 2 / rate, "logit and attend": kv / b.p["engine_bps"]} {
			b.model("dense", "stage_s", "s", X("stage", stage, "batch", batch), s)
		}
		for stage, s := range map[string]float64{"read embeddings": kv / 2 * e / rate, "logit 0": kv / 2 * 0.125 / b.p["engine_bps"], "read tokens": kv * t / rate, "logit 1 and attend": kv / 16 / b.p["engine_bps"]} {
			b.model("SparF 1/8", "stage_s", "s", X("stage", stage, "batch", batch), s)
		}
	}
	return nil
}

func driveSpeedup(p P, drives, ratio, batch float64) float64 {
	return newInst(p, batch, 1, ratio).drive().total() / newInst(p, batch, drives, ratio).drive().total()
}

// instFigure17a has the throughput by formula, and what the paper prints for 20 drives by the drives' own code: where the two differ, the
// code counts.
func instFigure17a(b *builder) error {
	for _, n := range b.axes.numbers("csds") {
		for series, ratio := range map[string]float64{"InstI-Dense": 0, "InstI-SparF": 0.125} {
			r := newInst(b.p, instBuiltBatch, n, ratio)
			b.model(series, "tokens_per_s", "tokens/s", X("batch", instBuiltBatch, "csds", n), r.tokensPerS(r.drive()))
		}
	}
	const drives = 20
	for series, ratio := range map[string]float64{"InstI-Dense, by formula": 0, "InstI-SparF, by formula": 0.125} {
		b.model(series, "speedup", "x", X("batch", instBuiltBatch, "csds", drives), driveSpeedup(b.p, drives, ratio, instBuiltBatch))
	}
	if list, ok := b.axes["csds"]; ok && b.set["csds"] && !slices.Contains(list, any(float64(drives))) {
		return nil
	}
	var one, all [2]map[float64]instLayer // without and with cache read
	for read := range one {
		var err error
		if one[read], err = layersOn(1, read > 0); err != nil {
			return err
		}
		if all[read], err = layersOn(drives, read > 0); err != nil {
			return err
		}
	}
	for key, x := range map[string]struct {
		ratio  float64
		reason string
	}{
		"instinfer-fig17a/dense-20": {0, "by the code a drive takes more of the step than by the formula, which has dies sense on while pages cross (9.1): sharing it brings more"},
		"instinfer-fig17a/sparf-20": {0.125, "by keys that have nothing in common, so that chosen tokens lie anywhere"},
	} {
		b.paper(key, opts{varied: []string{"step_s", "cache_read"}, reason: x.reason}, func(p P) float64 {
			read := int(math.Round(min(max(p["cache_read"], 0), 1)))
			return all[read][x.ratio].speedup(p, one[read][x.ratio], x.ratio)
		})
		b.rows[len(b.rows)-1].Code = Shared
	}
	return nil
}

// withCacheRead adds whether a die senses on while its pages cross, which the paper leaves open.
func withCacheRead(all map[string]value) map[string]value {
	no, yes := 0.0, 1.0
	all["cache_read"] = value{Value: no, Unit: "count", Source: "reading", Low: &no, High: &yes, Note: "1: a die senses on while its pages cross; 0, as profile instcsd: it is free when they have left it"}
	return all
}

// layersOn is what a layer takes on some drives, by ratio, in the pages that the product chooses.
func layersOn(drives int, cacheRead bool) (map[float64]instLayer, error) {
	profile, err := profiles.Load("instcsd")
	if err != nil {
		return nil, err
	}
	profile.NAND.CacheRead = cacheRead
	d := &instDrives{m: shapes["OPT-13B"], tokens: instContext, drives: drives, run: 1, profile: profile}
	out := map[float64]instLayer{}
	err = d.open()
	for _, ratio := range []float64{0, 0.125} {
		if err == nil {
			out[ratio], err = d.measure(ratio)
		}
	}
	return out, errors.Join(err, d.close())
}

func instFigure17b(b *builder) error {
	for _, ratio := range b.axes.numbers("ratio") {
		for _, n := range b.axes.numbers("csds") {
			r := newInst(b.p, 256, n, ratio)
			b.model("InstI-SparF", "tokens_per_s", "tokens/s", X("batch", 256, "csds", n, "ratio", ratio), r.tokensPerS(r.drive()))
		}
	}
	return nil
}

func instPrefill(b *builder) error {
	m := shapes["OPT-13B"]
	l := float64(m.layers)
	for _, batch := range b.axes.numbers("batch") {
		compute := batch * instTokens * 2 * m.active() / b.p["gpu_prefill_flops"] / l
		link := batch * instTokens * m.kvLayer() / b.p["link_bps"]
		program := 1.5 * batch * instTokens * m.kvLayer() / instPage * b.p["nand_program_s"] / (b.p["nand_channels"] * b.p["nand_dies"] * b.p["nand_planes"])
		down := max(link, program)
		b.model("layer by layer, overlapped", "ttft_s", "s", X("batch", batch), compute+(l-1)*max(compute, down)+down)
		b.model("layer by layer, blocking", "ttft_s", "s", X("batch", batch), l*(compute+down))
		b.exact("in flight on the GPU", "kv_bytes", "B", X("batch", batch), 2*batch*instTokens*m.kvLayer())
		b.exact("without layer-wise transfer", "kv_bytes", "B", X("batch", batch), batch*instTokens*m.kvBytes())
	}
	return nil
}

func scaleDrives(b *builder) error {
	for _, batch := range b.axes.numbers("batch") {
		for _, n := range b.axes.numbers("drives") {
			n = max(1, math.Floor(n))
			for series, ratio := range map[string]float64{"InstI-Dense": 0, "InstI-SparF": 0.125} {
				r := newInst(b.p, batch, n, ratio)
				b.model(series, "speedup", "x", X("drives", n), driveSpeedup(b.p, n, ratio, batch))
				b.model(series, "tokens_per_s", "tokens/s", X("drives", n), r.tokensPerS(r.drive()))
			}
		}
	}
	return nil
}

// instBuilt is a layer's attention on the drive's own code: by stage on one drive, and over drives that share the heads, with the step
// that follows from it. Without run nothing makes chosen tokens lie together.
func instBuilt(b *builder) error {
	profile, err := profiles.Load("instcsd")
	if err != nil {
		return err
	}
	tokens := int(b.axes.numbers("context")[0])
	if tokens < 64 || tokens > 4096 {
		return fmt.Errorf("context=%d: want 64 to 4096", tokens)
	}
	for _, pages := range b.axes.texts("pages") {
		if pages != "paired" && pages != "apart" {
			return fmt.Errorf("pages=%s: want paired or apart", pages)
		}
		for _, run := range b.axes.numbers("run") {
			single := map[float64]instLayer{}
			for _, n := range b.axes.numbers("drives") {
				m := shapes["OPT-13B"]
				if !(n >= 1 && n <= 20 && n <= float64(m.heads) && run >= 1 && run <= 1024) {
					return fmt.Errorf("drives=%v run=%v: want 1 to 20, and 1 to 1024", n, run)
				}
				d := &instDrives{m: m, tokens: tokens, drives: int(n), apart: pages == "apart", run: int(run), profile: profile}
				if err := b.instDrives(d, single, X("drives", n, "run", run, "pages", pages)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// instDrives adds what a layer takes on some drives, dense and at 1/8, and how long they take to send all of it to the host.
func (b *builder) instDrives(d *instDrives, single map[float64]instLayer, x map[string]any) error {
	if err := d.open(); err != nil {
		return errors.Join(err, d.close())
	}
	streamed, err := d.streamed()
	for _, ratio := range []float64{0, 0.125} {
		if err != nil || ratio == 0 && d.run > 1 {
			continue
		}
		var l instLayer
		if l, err = d.measure(ratio); err != nil {
			continue
		}
		if d.drives == 1 {
			single[ratio] = l
		}
		b.instLayer(l, single[ratio], streamed, ratio, x)
	}
	return errors.Join(err, d.close())
}

// batch is a layer's attention of instBuiltBatch sequences, in seconds.
func (l instLayer) batch() float64 { return l.first.Seconds() + (instBuiltBatch-1)*l.more.Seconds() }

// speedup is how much sooner a decode step of that batch ends than with a layer that takes what one does; the part that no drive has is the
// GPU's, by formula.
func (l instLayer) speedup(p P, one instLayer, ratio float64) float64 {
	r := newInst(p, instBuiltBatch, 1, ratio)
	layers := float64(r.m.layers)
	return (r.gpu() + layers*one.batch()) / (r.gpu() + layers*l.batch())
}

// instLayer adds what a layer took.
func (b *builder) instLayer(l, one instLayer, streamed time.Duration, ratio float64, x map[string]any) {
	series := map[bool]string{true: "dense", false: "sparf 1/8"}[ratio == 0]
	add := func(metric, unit string, v float64, more ...any) {
		at := X(more...)
		maps.Copy(at, x)
		b.model(series, metric, unit, at, v)
		b.rows[len(b.rows)-1].Code = Shared
	}
	add("layer_s", "s", l.first.Seconds())
	add("more_s", "s", l.more.Seconds())
	add("pages_read", "count", float64(l.pages))
	add("over_streaming", "x", streamed.Seconds()/l.first.Seconds())
	if one.first > 0 {
		add("attention_speedup", "x", one.batch()/l.batch())
		add("speedup", "x", l.speedup(b.p, one, ratio))
	}
	if x["drives"] == 1.0 {
		for name, took := range l.stages {
			add("stage_s", "s", took.Seconds(), "stage", name)
		}
	}
}
