package terrace

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"sort"

	"terrace/engine"
	"terrace/engine/fit"
	"terrace/engine/tier"
	"terrace/internal/memlimit"
	"terrace/internal/units"
	"terrace/model"
	"terrace/offload"
	"terrace/weights/stream"
)

// Plan says how memory is divided between what a model needs.
type Plan struct {
	MemoryBytes  int64 `json:"memory_bytes"`
	UsedBytes    int64 `json:"used_bytes"`    // by the process before: program, tokenizer, metadata
	BuffersBytes int64 `json:"buffers_bytes"` // activations and what the runtime needs to grow
	WeightsBytes int64 `json:"weights_bytes"` // that may lie in memory
	TotalBytes   int64 `json:"weights_total_bytes"`
	LeastBytes   int64 `json:"weights_least_bytes"` // that a step needs
	KVBytes      int64 `json:"kv_bytes"`            // that the cache may take
	KVTokens     int   `json:"kv_tokens"`           // of one text that fit there
	StepBytes    int64 `json:"step_read_bytes"`     // that a decode step of one text reads of weights (stream.Plan.StepBytes)
	// TokensPerS is what reading alone lets a text have, at the rate that infer profile measured where the model lies; 0 where that was
	// not measured or nothing is read.
	TokensPerS float64 `json:"tokens_per_s_at_most,omitempty"`
}

// heapSlack is what Go's heap, stacks and the kernels' scratch take beside what is planned: measured on models from 0.1 to 8 GB, 10
// to 30 MiB.
const heapSlack = 32 << 20

// kvShare is the part of what is not yet given away that KV may take where the weights do not all fit: as 1/kvShare.
const kvShare = 4

// planMemory divides memory: first what the process has and its buffers, then KV of a whole context for each text, and weights. Where
// not all of that fits, KV gets a quarter of the rest, at least what one page of a text takes, and weights the others: a token that
// reads an expert more is slower, one without room for its KV is none. kv is what tiers have been given of host memory, 0 = not set.
func planMemory(m *model.Model, o engine.Options, memory, used, kv int64) (Plan, error) {
	w, err := m.StreamPlan()
	if err != nil {
		return Plan{}, err
	}
	p := Plan{MemoryBytes: memory, UsedBytes: used, BuffersBytes: fit.Of(m, o, 0, 0).BuffersBytes + heapSlack, TotalBytes: w.TotalBytes(), LeastBytes: w.LeastBytes()}
	text, known := engine.TextBytes(m, o)
	rest, least := memory-p.UsedBytes-p.BuffersBytes, text(1)
	all := text(o.Context) * int64(max(o.Batch, 1))
	whole := w.WholeBytes()
	switch {
	case kv > 0:
		p.KVBytes = kv
	case all+whole <= rest && !known: // the policy takes more
		p.KVBytes = rest - whole
	case all+whole <= rest:
		p.KVBytes = all
	default:
		p.KVBytes = max(least, min(all, rest/kvShare, rest-p.LeastBytes))
	}
	p.WeightsBytes = min(rest-p.KVBytes, whole)
	if p.WeightsBytes < p.LeastBytes {
		need := p.UsedBytes + p.BuffersBytes + p.LeastBytes + max(least, kv)
		return p, fmt.Errorf("%s of memory, want %s at least: the process has %s, buffers take %s, KV %s, and the weights that a step needs %s: %w", units.FormatBytes(memory), units.FormatBytes(need),
			units.FormatBytes(p.UsedBytes), units.FormatBytes(p.BuffersBytes), units.FormatBytes(max(least, kv)), units.FormatBytes(p.LeastBytes), stream.ErrBudget)
	}
	if least > 0 {
		p.KVTokens = tokensIn(text, o.Context, p.KVBytes)
	}
	w.BudgetBytes = p.WeightsBytes
	p.StepBytes = w.StepBytes()
	return p, nil
}

// Plan is how Options.Memory would divide so many bytes; 0 = what is free here. Errors are ErrModel, ErrOption, ErrMemory.
func (f *File) Plan(o Options, memory int64) (Plan, error) {
	eo, err := o.engine()
	if err != nil {
		return Plan{}, err
	}
	m, err := f.Model()
	if err != nil {
		return Plan{}, err
	}
	if err := eo.Validate(m); err != nil {
		return Plan{}, err
	}
	if memory == 0 {
		memory = memlimit.Available()
	}
	if f.tok != nil { // what Engine has in memory when it asks
		if err := o.addTexts(&eo, f.tok); err != nil {
			return Plan{}, err
		}
	}
	p, err := planMemory(m, eo, memory, inUse(), tier.HostBytes(eo.Tiers))
	if err != nil {
		return p, fmt.Errorf("terrace: %s: %w", f.name, marked{err, ErrMemory})
	}
	if profile, err := offload.LoadProfile(offload.ProfileFile(o.home())); err == nil && p.StepBytes > 0 {
		if rates := profile.StorageOf(filepath.Dir(f.Path())); rates != nil {
			p.TokensPerS = rates.StreamRead / float64(p.StepBytes)
		}
	}
	return p, nil
}

// inUse is what the process has once garbage was collected, whose marks and code take memory too: at most what it has when an engine is
// opened, where a collection comes or not.
func inUse() int64 {
	debug.FreeOSMemory()
	return memlimit.Resident()
}

// tokensIn is the longest text, at most the context, that fits so many bytes.
func tokensIn(text func(n int) int64, context int, bytes int64) int {
	return sort.Search(context, func(n int) bool { return text(n+1) > bytes })
}

// String is the plan in one line.
func (p Plan) String() string {
	weights := fmt.Sprintf("all weights (%s)", units.FormatBytes(p.TotalBytes))
	if p.StepBytes > 0 {
		weights = fmt.Sprintf("%s of %s of weights, the rest is read from the file as it is needed", units.FormatBytes(p.WeightsBytes), units.FormatBytes(p.TotalBytes))
	}
	return fmt.Sprintf("memory %s: %s; KV up to %s (%d tokens); buffers %s; %s is in use", units.FormatBytes(p.MemoryBytes), weights,
		units.FormatBytes(p.KVBytes), p.KVTokens, units.FormatBytes(p.BuffersBytes), units.FormatBytes(p.UsedBytes))
}

// bound bounds weights and KV by one memory: Options.Memory, or what is free where the model does not fit that.
func (f *File) bound(m *model.Model, o *Options, eo *engine.Options) error {
	if _, err := expertBias(o); err != nil {
		return err
	}
	memory, err := parseMemory(o.Memory)
	if err != nil {
		return err
	}
	if memory > 0 && o.Weights != "" {
		return fmt.Errorf("terrace: both weights %s and memory %s: memory divides all of it itself: %w", o.Weights, o.Memory, ErrOption)
	}
	if o.Weights != "" {
		return f.stream(m, o, eo)
	}
	own := eo.Backend != "" && eo.Backend != "native" || f.adapted
	if memory > 0 && own {
		return fmt.Errorf("terrace: memory %s: weights are bounded on the native backend without adapters only: %w", o.Memory, ErrOption)
	}
	used := memlimit.Resident() + o.MemoryBeside
	if store := m.Streamed(); store != nil { // whose weights the plan gives away
		used -= store.Accounts().ResidentBytes
	}
	if memory > 0 {
		return f.boundBy(m, o, eo, memory, used)
	}
	if memory = f.tooSmall(m, *eo, used); memory == 0 || own || m.Streamed() != nil {
		return nil
	}
	o.notice("%s takes %s, %s is free: its weights are read from the file as they are needed (docs/weights.md)", f.name, units.FormatBytes(f.weights.SizeBytes()), units.FormatBytes(freeMemory()))
	err = f.boundBy(m, o, eo, memory, used)
	if errors.Is(err, ErrMemory) { // what is free changes: nobody has said that it must do
		o.notice("%v: it is tried with all weights in memory", err)
		return nil
	}
	return err
}

// boundBy follows a plan; before an error nothing was changed.
func (f *File) boundBy(m *model.Model, o *Options, eo *engine.Options, memory, used int64) error {
	valid := *eo
	if err := valid.Validate(m); err != nil {
		return err
	}
	p, err := planMemory(m, valid, memory, used, tier.HostBytes(valid.Tiers))
	if err != nil {
		return fmt.Errorf("terrace: %s: %w", f.name, marked{err, ErrMemory})
	}
	if p.StepBytes > 0 { // passes may be longer, where that leaves weights most of what they have
		longer := valid
		o.lengthenChunks(&longer)
		if q, err := planMemory(m, longer, memory, used, tier.HostBytes(valid.Tiers)); err == nil && q.WeightsBytes >= p.WeightsBytes-p.WeightsBytes/8 {
			p, eo.ChunkTokens = q, longer.ChunkTokens
		}
	}
	if len(eo.Tiers) == 0 {
		eo.KVBudgetBytes = p.KVBytes
	}
	o.notice("%s", p)
	return f.boundWeights(m, o, p.WeightsBytes)
}

// freeMemory is what can be used here without swapping.
var freeMemory = memlimit.Available

// tooSmall is what this process may take, where the model with its buffers and the KV of a page does not fit what is free; else 0.
func (f *File) tooSmall(m *model.Model, eo engine.Options, used int64) int64 {
	free := freeMemory()
	if free == 0 || eo.Validate(m) != nil {
		return 0
	}
	if need := f.weights.SizeBytes() + fit.Of(m, eo, 0, 0).BuffersBytes + engine.KVBytes(m, eo, 1); need <= free {
		return 0
	}
	return used + free/10*9
}

// parseMemory reads Options.Memory; 0 = no bound.
func parseMemory(size string) (int64, error) {
	if size == "" {
		return 0, nil
	}
	n, err := units.ParseBytes(size)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("terrace: memory %q: want a size above 0, such as 8GiB: %w", size, ErrOption)
	}
	return n, nil
}
