package simulate

import (
	"math"
	"sync"
	"time"

	"terrace/csdshim/nand"
)

// Decode with attention in the drive (InstInfer), and its baselines. Time equations: Sec. 6 of the experiments' list.

// inst is one run: OPT-13B, 1024 tokens in and out, so that a step sees 1536 on average.
type inst struct {
	m       shape
	p       P
	batch   float64
	drives  float64
	context float64
	ratio   float64 // share of bytes read of SparF and SparQ; 0: dense
}

const (
	instTokens  = 1024
	instContext = 1536
	instMax     = 2048
	instPage    = 4096
	instGroup   = 16 // tokens a page
	instEmbed   = 2  // dimensions an embedding page
)

func newInst(p P, batch, drives, ratio float64) inst {
	return inst{shapes["OPT-13B"], p, batch, drives, instContext, ratio}
}

// kv is what a dense step reads of the KV cache.
func (r inst) kv() float64 { return r.batch * r.context * r.m.kvBytes() }

// gpu is the GPU's part of a step, beside the KV cache.
func (r inst) gpu() float64 {
	return r.p["step_s"] + r.batch*2*r.m.active()/r.p["gpu_flops"]
}

// parts of a decode step, seconds.
type instStep struct{ gpu, link, flash, engine float64 }

func (s instStep) total() float64 { return s.gpu + s.link + s.flash + s.engine }

// share is the KV cache's part of the step.
func (s instStep) share() float64 { return s.flash / s.total() }

// drive is a step with attention in the drives: q, k, v down, pages through the filters, the output up. Heads are spread over the
// drives; one that has most decides.
func (r inst) drive() instStep {
	heads := float64(r.m.heads)
	part := math.Ceil(heads/r.drives) / heads
	bytes, stages, work := r.kv(), 1.0, 1.0
	if r.ratio > 0 {
		e, t := r.pageShares()
		bytes, stages, work = r.kv()*(e/2+t), 2, r.ratio
	}
	l := float64(r.m.layers)
	return instStep{
		gpu:    r.gpu(),
		link:   8 * r.batch * float64(r.m.hidden) * l * part / r.p["link_bps"],
		flash:  part*bytes/r.flashRate(part*bytes/l) + stages*l*r.p["nand_read_s"],
		engine: part * work * r.kv() / r.p["engine_bps"],
	}
}

// pageShares are the shares of embedding pages and of token pages that hold something chosen: what random choice would touch,
// times how much real queries cluster.
func (r inst) pageShares() (embedding, token float64) {
	d := float64(r.m.headDim)
	n, k := r.ratio*d, r.ratio*r.context/2
	return min(1, r.p["embedding_clustering"]) * touched(d, instEmbed, n), min(1, r.p["token_clustering"]) * touched(r.context, instGroup, k)
}

// touched is the share of groups of a size that hold one of k chosen from n at random: 1 - C(n-size, k)/C(n, k).
func touched(n, size, k float64) float64 {
	miss := 1.0
	for i := range int(size) {
		miss *= max(0, n-k-float64(i)) / (n - float64(i))
	}
	return 1 - miss
}

// flashRate is what the drive's flash delivers of a layer's pages, by package nand with cache read.
func (r inst) flashRate(layerBytes float64) float64 {
	t := nand.Timing{Channels: max(1, min(64, int(r.p["nand_channels"]))), Dies: max(1, min(64, int(r.p["nand_dies"]))), Planes: max(1, min(8, int(r.p["nand_planes"]))),
		Sense: seconds(r.p["nand_read_s"]), Cross: seconds(instPage / max(r.p["nand_channel_bps"], 1)), CacheRead: true}
	pages := int(min(4096, max(1, layerBytes/instPage)))
	return float64(pages*instPage) / (flashTime(t, pages) - r.p["nand_read_s"])
}

// flashTimes keeps what flashTime has worked out.
var flashTimes sync.Map

type flashCase struct {
	t     nand.Timing
	pages int
}

// flashTime is when pages striped over the array have all been read.
func flashTime(t nand.Timing, pages int) float64 {
	if v, ok := flashTimes.Load(flashCase{t, pages}); ok {
		return v.(float64)
	}
	v := runFlash(t, pages)
	flashTimes.Store(flashCase{t, pages}, v)
	return v
}

func runFlash(t nand.Timing, pages int) float64 {
	ops := make([]nand.Op, pages)
	for i := range ops {
		ops[i].Place = t.At(i)
	}
	last := time.Duration(0)
	for _, d := range nand.New(t).Run(ops) {
		last = max(last, d)
	}
	return last.Seconds()
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(min(s, 1e6) * 1e9)) }

// flexgen is a step that reads the KV cache from SSDs through the host's file system.
func (r inst) flexgen(ssds float64) instStep {
	bytes := r.kv()
	if r.ratio > 0 {
		bytes *= r.ratio
	}
	ssd := r.p["ssd_bps"] * ssds
	l := float64(r.m.layers)
	return instStep{gpu: r.gpu(), flash: max(bytes/r.p["fs_bps"], bytes/ssd) + l*min(bytes/l, r.p["fs_chunk_bytes"])/ssd}
}

// deepspeed is a step with the KV cache in host memory, which the kernel swaps once it does not fit.
func (r inst) deepspeed(ssds float64) instStep {
	s := instStep{gpu: r.gpu(), flash: r.kv() / r.p["host_bps"]}
	if r.batch*instMax*r.m.kvBytes() > r.p["host_kv_bytes"] {
		s.flash += r.kv() / instPage * (r.p["swap_fault_s"] + instPage/(r.p["ssd_bps"]*ssds))
	}
	return s
}

// tokensPerS is the throughput over prompt and output.
func (r inst) tokensPerS(s instStep) float64 {
	prefill := r.batch * instTokens * 2 * r.m.active() / r.p["gpu_prefill_flops"]
	return r.batch * instTokens / (prefill + instTokens*s.total())
}

// flexgenMax is FlexGen's largest batch, of powers of 2: weights, two layers' KV on the way, and one layer's scores in single
// precision must fit the GPU.
func flexgenMax(p P) float64 {
	m := shapes["OPT-13B"]
	best := 1.0
	for b := 1.0; b <= 1024; b *= 2 {
		scores := b * float64(m.heads) * instTokens * instTokens * 4
		if m.weightBytes()+scores+2*b*instTokens*m.kvLayer() <= p["vram_bytes"] {
			best = b
		}
	}
	return best
}
