package simulate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Pruning of prompt tokens in the middle of the network (SlimInfer, AAAI-26). Layers are counted from 1.

// schedule says after which layers how many prompt tokens stay.
type schedule struct{ layers, keep []float64 }

var slimLlama = schedule{[]float64{10, 20, 30}, []float64{8192, 4096, 2048}}
var slimQwen = schedule{[]float64{9, 18, 26}, []float64{12288, 6144, 4096}}

// alive is how many of n prompt tokens reach a layer.
func (s schedule) alive(n float64) func(l int) float64 {
	return func(l int) float64 {
		out := n
		for i, p := range s.layers {
			if float64(l) > p {
				out = min(out, s.keep[i])
			}
		}
		return out
	}
}

// kvTokens are the prompt tokens in the KV cache, added over the layers.
func (s schedule) kvTokens(m shape, n float64) (sum float64) {
	for l := 1; l <= m.layers; l++ {
		sum += s.alive(n)(l)
	}
	return sum
}

func everything(n float64) func(int) float64 { return func(int) float64 { return n } }

// slimSteps is the number of decode steps after the first token of 16.
const slimSteps = 15

// slimFull is the time of a prompt and of 16 tokens without pruning.
func slimFull(m shape, p P, n float64) (ttft, e2e float64) {
	ttft = slimPrefill(m, p, everything(n))
	return ttft, ttft + slimSteps*slimStep(m, p, n*float64(m.layers))
}

// slimPrefill: operations over effective rates. (Sec. 3.5's hints)
func slimPrefill(m shape, p P, alive func(int) float64) float64 {
	linear, attn := m.prefillFlops(alive)
	rate := p["gpu_flops"]
	if a, ok := p["gpu_attn_flops"]; ok {
		return linear/rate + attn/a
	}
	return (linear + attn) / rate
}

// slimStep is one decode step that goes through KV of some tokens, added over layers.
func slimStep(m shape, p P, tokens float64) float64 {
	if kv, ok := p["gpu_kv_bps"]; ok {
		return p["step_s"] + tokens*m.kvLayer()/kv
	}
	return p["step_s"] + (m.weightBytes()+tokens*m.kvLayer())/p["gpu_mem_bps"]
}

// slimPruned is the same with pruning: blocks are chosen at each pruning layer of each step, and those that come back or leave
// cross the link, on a stream of its own under the stage's layers, or, blocking, before them. More of them cross at a higher
// gamma: overlaps of steps fall below it more often.
func slimPruned(m shape, s schedule, p P, n, gamma float64, blocking bool) (ttft, e2e float64) {
	ttft = slimPrefill(m, p, s.alive(n)) + float64(len(s.layers))*p["select_s"]
	step := slimStep(m, p, s.kvTokens(m, n))
	total := step + float64(len(s.layers))*p["select_s"]
	for i, first := range s.layers {
		last := float64(m.layers)
		if i+1 < len(s.layers) {
			last = s.layers[i+1]
		}
		within := last - first
		keep := min(n, s.keep[i])
		share := min(1, p["swap_share"]*pow4(gamma/0.9)) * max(0, 1-s.keep[i]/n)
		swap := 2 * share * keep * within * m.kvLayer() / p["pcie_bps"]
		if !blocking {
			swap = max(0, swap-within/float64(m.layers)*step)
		}
		total += swap
	}
	return ttft, ttft + slimSteps*total
}

func pow4(x float64) float64 { return x * x * x * x }

// slimAdjust keeps a corner of a band on the value that the GPU's rate was fitted on: another step time is another rate.
func slimAdjust(p P) P {
	const e2e, n = 5.561, 32768
	m := shapes["Llama-3.1-8B"]
	linear, attn := m.prefillFlops(everything(n))
	return p.with("gpu_flops", (linear+attn)/(e2e-slimSteps*slimStep(m, p, n*float64(m.layers))))
}

var slimVaried = []string{"step_s", "select_s", "pcie_bps", "swap_share"}

const slimReason = "between the paper's points lie the framework's step time and the traffic of swapped blocks, which it does not give"

// setting is the model and the schedule of an experiment.
func slimSetting(b *builder, model string, s schedule) (shape, schedule, error) {
	if b.set["model"] {
		model = b.text("model")
	}
	m, err := modelNamed(model)
	if err != nil {
		return m, s, err
	}
	for name, list := range map[string]*[]float64{"pruning_layers": &s.layers, "schedule": &s.keep} {
		if !b.set[name] {
			continue
		}
		*list = nil
		for _, part := range strings.Split(b.text(name), "/") {
			f, err := strconv.ParseFloat(part, 64)
			if err != nil || f < 1 || f > 1e9 {
				return m, s, fmt.Errorf("%s=%s: want numbers from 1 on, one a stage", name, b.text(name))
			}
			*list = append(*list, f)
		}
	}
	if len(s.layers) != len(s.keep) || len(s.layers) > 16 {
		return m, s, fmt.Errorf("pruning_layers has %d stages, schedule %d: want as many, at most 16", len(s.layers), len(s.keep))
	}
	for i := 1; i < len(s.layers); i++ {
		if s.layers[i] <= s.layers[i-1] {
			return m, s, errors.New("pruning_layers: want rising layers")
		}
	}
	return m, s, nil
}

// slimParams are the hardware's, with model and schedule.
func slimParams(file, model, layers, keep string, names ...string) map[string]value {
	out := pick(file, names...)
	out["model"] = value{Value: model, Unit: "text", Source: "paper"}
	out["pruning_layers"] = value{Value: layers, Unit: "text", Source: "paper", Note: "counted from 1; a layer's own KV stays whole"}
	out["schedule"] = value{Value: keep, Unit: "text", Source: "paper", Note: "prompt tokens that stay after each"}
	return out
}

var slim4090 = []string{"gpu_flops", "gpu_mem_bps", "step_s", "select_s", "pcie_bps", "swap_share"}

func thousands(n float64) string { return strconv.FormatFloat(n/1024, 'f', -1, 64) + "k" }
