package simulate

import (
	"math"

	"terrace/policy"
)

// Decode with the KV cache on GPU, host memory and a drive that scores keys (HillInfer), and its baselines. E is evaluation and
// fetch of one layer, G the GPU's time of it; times here are of all layers of a step. (Sec. 6 of the experiments' list)

type hill struct {
	m       shape
	p       P
	batch   float64
	context float64
	scores  *ScoreTrace // recorded; nil = synthetic
}

// kv is the whole KV cache; stored the part below host memory.
func (h hill) kv() float64 { return h.batch * h.context * h.m.kvBytes() }

// stored is what does not fit host memory: beyond M_0, or, where M_0 is not given, beyond the share of Fig. 4's placement.
func (h hill) stored() float64 {
	if m0 := h.p["M_0"]; m0 > 0 {
		return max(0, h.kv()-m0)
	}
	return h.kv() * (1 - h.p["host_share"])
}

// storage is the time in which a plain SSD gives bytes to the host, through the file system.
func (h hill) storage(bytes float64) float64 {
	if bytes == 0 {
		return 0
	}
	return float64(h.m.layers)*h.p["ssd_latency_s"] + max(bytes/h.p["ssd_bps"], bytes/h.p["fs_bps"])
}

// gpu is a step's compute.
func (h hill) gpu() float64 {
	return max(h.batch*2*h.m.active()/h.p["gpu_flops"], h.m.weightBytes()/h.p["gpu_mem_bps"])
}

// prefill is the prompt's compute, the same for all.
func (h hill) prefill(input float64) float64 {
	linear, attn := h.m.prefillFlops(everything(input))
	return h.batch * (linear + attn) / h.p["gpu_flops"]
}

// full ships everything that is offloaded, beside compute.
func (h hill) full() float64 {
	return max(h.gpu(), h.kv()/h.p["B_c"]+h.storage(h.stored()))
}

// h2o scores all keys on the CPU, those of storage read first, then fetches the chosen; nothing overlaps.
func (h hill) h2o() float64 {
	a, s := h.p["alpha"], h.stored()
	return h.gpu() + h.storage(s/2) + h.kv()/h.p["cpu_score_bps"] + h.storage(a*s) + a*h.kv()/h.p["B_c"]
}

// prefetch guesses from partial keys (a fifth of their columns, those of storage read), one layer ahead.
func (h hill) prefetch() float64 {
	a, s := h.p["alpha"], h.stored()
	return max(h.gpu(), h.storage(0.2*s/2+a*s)+0.2*h.kv()/h.p["cpu_score_bps"]+a*h.kv()/h.p["B_c"])
}

// leoam reads chunks' abstracts (two vectors of 2·16) and the chosen chunks whole.
func (h hill) leoam() float64 {
	a, s := h.p["alpha"], h.stored()
	return max(h.gpu(), h.storage(s/16+h.p["chunk_waste"]*a*s)+h.kv()/16/h.p["cpu_score_bps"]+h.p["chunk_waste"]*a*h.kv()/h.p["B_c"])
}

// parts switches off pieces of HillInfer.
type parts struct{ noAhead, plainSSD bool }

// hillinfer scores hot keys on the host and cold ones in the drive at once, fetches the chosen, one layer ahead. Cold keys are
// scored from low-bit codes in the drive's DRAM as far as they fit (csdshim's keys=ddr), the rest from its flash.
func (h hill) hillinfer(off parts) float64 {
	a, cold := h.p["alpha"], h.stored()
	hit := h.p["hit_rate"]
	if cold == 0 {
		hit = 1
	}
	host := (h.kv()-cold)/h.p["f_c"] + hit*a*h.kv()/h.p["B_c"]
	keys := cold / 2
	codes := keys * h.p["code_share"]
	cached := min(codes, h.p["csd_dram_bytes"])
	drive := cached/h.p["csd_dram_bps"] + (codes-cached)/h.p["code_share"]/h.p["csd_bps"] + (1-hit)*a*h.kv()/h.p["B_s"]
	if off.plainSSD {
		drive = h.storage(keys) + keys*2/h.p["f_c"] + h.storage((1-hit)*a*h.kv())
	}
	blocks := 0.0
	if cold > 0 {
		blocks = float64(h.m.layers) * h.p["block_s"]
	}
	e := max(host, drive) + blocks
	if off.plainSSD { // keys cross, and are scored when all are there
		e = host + drive + 4*blocks
	}
	if off.noAhead {
		return h.gpu() + e
	}
	return max(h.gpu(), e) + e/float64(h.m.layers) // the first layer is not hidden
}

// method is a system's time of a step.
type method struct {
	name string
	step func(h hill) float64
}

var hillMethods = []method{
	{"Full Cache", hill.full}, {"H2O-like", hill.h2o}, {"Prefetch-based", hill.prefetch}, {"LeoAM-like", hill.leoam},
	{"HillInfer", func(h hill) float64 { return h.hillinfer(parts{}) }},
}

// latency is prompt and output.
func (h hill) latency(m method, input, output float64) float64 {
	h.context = input + output/2
	return h.prefill(input) + output*m.step(h)
}

// workloads are the models and lengths of Fig. 12: a model's own limit caps a data set's.
var workloads = []struct {
	model, data string
	batch, n    float64
}{
	{"LongChat-7B", "LongBench", 8, 8192}, {"LongChat-7B", "PG-19", 8, 16384},
	{"LLaMA-13B", "LongBench", 8, 4096}, {"LLaMA-13B", "PG-19", 8, 4096},
	{"Qwen-7B", "LongBench", 8, 8192}, {"Qwen-7B", "PG-19", 8, 8192},
	{"OPT-6.7B", "LongBench", 12, 1920}, {"OPT-6.7B", "PG-19", 12, 1920},
}

// spread is the least and the most speedup over all baselines, models and data sets.
func hillSpread(p P) (low, high float64) {
	low = math.Inf(1)
	for _, w := range workloads {
		h := hill{m: shapes[w.model], p: p, batch: w.batch}
		ours := h.latency(hillMethods[4], w.n, 128)
		for _, m := range hillMethods[:4] {
			s := h.latency(m, w.n, 128) / ours
			low, high = min(low, s), max(high, s)
		}
	}
	return low, high
}

// balance is what host and drive do, as policy hillinfer takes it.
func balance(p P) policy.Balance {
	return policy.Balance{Alpha: p["alpha"], FC: p["f_c"], FS: p["f_s"], BC: p["B_c"], BS: p["B_s"]}
}

// betaModes are the formulas of policy hillinfer by the links that are simulated: Eq. 4 where host and drive have links of their own,
// Sec. 5.4's where what the drive sends crosses the host's link too.
var betaModes = map[string]policy.BetaMode{"direct": policy.BetaEq4, "store_forward": policy.BetaStoreForward}

// betaStep is a step with the KV cache split at a ratio: the slower of host and drive, by the policy's own model, or the GPU.
func betaStep(h hill, beta float64, links policy.BetaMode) float64 {
	hot := h.kv() * beta / (1 + beta)
	if m0 := h.p["M_0"]; m0 > 0 {
		hot = min(hot, m0)
	}
	host, drive := balance(h.p).Times(links, hot, h.kv()-hot)
	return max(h.gpu(), host, drive)
}
