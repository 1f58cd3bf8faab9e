package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/engine/tier"
	"terrace/internal/memlimit"
	"terrace/internal/tierspec"
	"terrace/internal/units"
	"terrace/weights/stream"
)

// addWeights adds the flag of commands that run a model larger than memory.
func (f *loadFlags) addWeights(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.weights, "weights", "", "host=SIZE: at most SIZE of the weights lies in memory, the rest is read from the model's file as it is needed (default: all)")
	cmd.Flags().StringVar(&f.expertBias, "expert-bias", "", "with --weights or --memory: margin=SHARE has experts in memory used for others whose router weight is at most so much above theirs, experts=N fewer experts a token; the text changes (default: it does not)")
	cmd.Flags().StringVar(&f.memory, "memory", "", "one bound for the process, such as 8GiB: weights and KV are planned within it (default: none, but that a model larger than what is free is bounded by that)")
}

// checkWeights refuses a --weights, --memory or --expert-bias before any model is read.
func (f *loadFlags) checkWeights() error {
	if f.memory != "" {
		if f.weights != "" {
			return usageErrorf("--weights and --memory exclude each other: --memory says what weights get")
		}
		if n, err := units.ParseBytes(f.memory); err != nil || n <= 0 {
			return usageErrorf("--memory %s: want a size such as 8GiB", f.memory)
		}
	}
	if f.expertBias != "" {
		if f.weights == "" && f.memory == "" {
			return usageErrorf("--expert-bias %s: all weights are in memory, it saves reads with --weights or --memory: leave it out, or bound the memory", f.expertBias)
		}
		if _, err := stream.ParseBias(f.expertBias); err != nil {
			return usageErrorf("--expert-bias %v", err)
		}
	}
	if f.weights == "" {
		return nil
	}
	if t, err := tierspec.Parse(f.weights); err != nil || t.Kind != tier.Host || t.RateBytes > 0 {
		return usageErrorf("--weights %s: want host=SIZE, the memory that weights may take, such as host=8GiB", f.weights)
	}
	return nil
}

// biased is what of the flags changes the text, empty where nothing does: with --expert-bias what is in memory does.
func (f *loadFlags) biased() string {
	if f.expertBias == "" {
		return ""
	}
	return "|" + f.expertBias + "|" + f.weights + f.memory
}

// streams reports whether weights are, or may well be, read as they are needed: then nothing of them is read before.
func (f *loadFlags) streams(l *loaded) bool {
	free := memlimit.Available()
	return f.weights != "" || f.memory != "" || free > 0 && l.file.Weights().SizeBytes() > free/2
}

// tightenHeap has garbage collected sooner where memory is bounded: the heap is small beside what lies outside it.
func (f *loadFlags) tightenHeap() {
	if f.memory != "" || f.weights != "" {
		debug.SetGCPercent(tierGCPercent)
	}
}

// readersBeside is how many processors the runtime needs beside those that compute while weights are read: who waits in a read keeps
// one until the runtime takes it away.
const readersBeside = 2

// streamJSON is what --weights did, over the engine's life.
type streamJSON struct {
	BytesTotal        int64   `json:"bytes_total"`         // of all weights, as they lie in memory
	BytesBudget       int64   `json:"bytes_budget"`        // that may lie there
	BytesResidentPeak int64   `json:"bytes_resident_peak"` // that lay there at most, pieces under way included
	BytesRead         int64   `json:"bytes_read"`          // from the model's file, loading included
	Used              int64   `json:"used"`                // experts (of a dense model layers that do not stay), each once a step and layer
	Hits              float64 `json:"hits"`                // share of used: in memory when they were chosen
	Predicted         float64 `json:"predicted"`           // share of used: asked for before they were chosen
	Wasted            float64 `json:"wasted"`              // share of what was asked for so: not used by the step that followed

	Bias *biasJSON `json:"bias,omitempty"` // of --expert-bias
}

// biasJSON is what --expert-bias has changed.
type biasJSON struct {
	Choices int64 `json:"choices"` // experts that rows would have used, once a row and layer
	Moved   int64 `json:"moved"`   // of choices: another expert, in memory, was used
	Dropped int64 `json:"dropped"` // of choices: none was used
}

func weightsReport(e *engine.Engine) *streamJSON {
	u := e.WeightsUse()
	if u == nil {
		return nil
	}
	out := &streamJSON{BytesTotal: u.TotalBytes, BytesBudget: u.BudgetBytes, BytesResidentPeak: u.PeakBytes, BytesRead: u.ReadBytes,
		Used: u.Used, Hits: u.HitShare(), Predicted: u.PredictedShare(), Wasted: u.WastedShare()}
	if b := u.Bias; b.Choices > 0 {
		out.Bias = &biasJSON{Choices: b.Choices, Moved: b.Moved, Dropped: b.Dropped}
	}
	return out
}
