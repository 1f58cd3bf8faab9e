package simulate

import (
	"errors"
	"fmt"
	"strings"

	"terrace/csdshim/profiles"
	"terrace/offload"
)

// builtUses are what a step as it is built runs.
var builtUses = []string{"policy", "retrieval", "kvmanager", "kvmanager/tokencache", "offload", "csdshim", "csdshim/flash", "csdshim/nand", "internal/clock"}

// pipeTokens is the most tokens of a text in the miniature; of a longer one a token stands for several.
const pipeTokens = 1024

// folded is how many real tokens a token of the miniature stands for.
func (h hill) folded() float64 { return max(1, h.context/pipeTokens) }

// blockTokens is a score block in tokens of the miniature, of which policy hillinfer takes 16 at least.
func (h hill) blockTokens(block float64) int {
	return int(min(65536, max(16, block/h.folded())))
}

// builtStep is HillInfer's decode step on the product's own code, for this hardware, under more arguments of its policy.
func (h hill) builtStep(args string) (pipeRun, error) {
	for _, name := range []string{"f_c", "B_c", "B_s", "csd_bps", "csd_dram_bps", "csd_dram_bytes", "gpu_mem_bps"} {
		if !(h.p[name] > 0) {
			return pipeRun{}, fmt.Errorf("%s=%v: want more than 0", name, h.p[name])
		}
	}
	switch {
	case !(h.context >= 64 && h.context <= 1<<20 && h.batch >= 1 && h.batch <= 1e6):
		return pipeRun{}, fmt.Errorf("context=%v batch=%v: want 64 to 1048576, and 1 or more", h.context, h.batch)
	case !(h.p["alpha"] >= 1e-3 && h.p["alpha"] < 1):
		return pipeRun{}, errors.New("alpha: want 0.001 to less than 1: else nothing is scored")
	}
	d, err := h.pipe(args)
	if err != nil {
		return pipeRun{}, err
	}
	return d.run(h.m.layers)
}

// pipe is the miniature on the experiment's trace.
func (h hill) pipe(args string) (*pipe, error) {
	trace, err := h.trace(int(h.context / h.folded()))
	if err != nil {
		return nil, err
	}
	return h.pipeOn(trace, args)
}

// pipeOn is the miniature on a trace.
func (h hill) pipeOn(trace scores, args string) (*pipe, error) {
	texts := min(2, h.batch)
	real := h.m.kvLayer() * h.batch / texts * h.folded()          // of a token in a layer, of all that it stands for
	for _, of := range []string{"pools=paper", "beta_mode=eq4"} { // the paper's, unless others are asked for
		if name, _, _ := strings.Cut(of, "="); !strings.Contains(args, name+"=") {
			args += "," + of
		}
	}
	d := &pipe{
		policy: fmt.Sprintf("hillinfer:alpha=%v,drive=true,guess_from=1,%s", h.p["alpha"], args),
		tokens: int(h.context / h.folded()), texts: int(texts), scale: real / pipeToken, host: h.p["host_share"], compute: h, trace: trace,
	}
	if m0 := h.p["M_0"]; m0 > 0 {
		d.host = min(1, m0/h.kv())
	}
	s := d.scale
	d.hosts = offload.HostRates{Threads: 1, Scan: map[string]float64{"int8": h.p["f_c"] / s}, Copy: h.p["B_c"] / s}
	p, err := profiles.Load("smartssd")
	if err != nil {
		return nil, err
	}
	p.Name = "smartssd in miniature"
	p.Link.ToHostBytesPerS, p.Link.ToDriveBytesPerS = h.p["B_s"]/s, h.p["B_s"]/s
	p.NAND.PageBytes = pipeToken // a token: the least that a request for one reads
	p.NAND.ChannelBytesPerS, p.NAND.BusBytesPerS = p.NAND.ChannelBytesPerS/s, h.p["csd_bps"]/s
	p.DRAM.Bytes = h.p["csd_dram_bytes"] / s * pipeLayers / float64(h.m.layers) // of the layers that are run
	p.DRAM.BytesPerS, p.Engine.ScanBytesPerS = h.p["csd_dram_bps"]/s, h.p["csd_dram_bps"]/s
	d.profile = p
	return d, nil
}

// score, deliver and layer make hill a computer.
func (h hill) score(kv float64) float64   { return kv / h.p["f_c"] }
func (h hill) deliver(kv float64) float64 { return kv / h.p["B_c"] }

// layer is the GPU's: matrices, or reading them, and reading what is attended to.
func (h hill) layer(kv float64) float64 {
	return h.gpu()/float64(h.m.layers) + kv/h.p["gpu_mem_bps"]
}
