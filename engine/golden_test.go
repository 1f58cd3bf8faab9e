package engine

import (
	"context"
	"fmt"
	"math"
	"testing"

	"terrace/internal/golden"
	"terrace/model"
	"terrace/weights"
)

// prompt is a row of the shared logits oracles.
type prompt struct {
	Index     int       `json:"index"`
	IDs       []int     `json:"ids"`
	Greedy    []int     `json:"hf_greedy"`
	Margin    []float64 `json:"hf_margin"`
	LogSumExp float64   `json:"hf_logsumexp"`
	KLPeer    float64   `json:"kl_hf_llamacpp"`
}

// openFile opens a model's file until the test ends.
func openFile(t testing.TB, path string) *model.Model {
	t.Helper()
	file, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func openModel(t testing.TB, path string, o Options) *Engine {
	t.Helper()
	return openOn(t, openFile(t, path), o)
}

// openOn opens an engine until the test ends, and checks its accounts then.
func openOn(t testing.TB, m *model.Model, o Options) *Engine {
	t.Helper()
	if o.Repeat == nil { // ids stand for words
		o.Repeat = &RepeatText{Prefix: []int{1}, First: []int{2, 3, 4}, Next: []int{5, 6}, Suffix: []int{7}}
	}
	if o.Threads == 0 && !raceDetector && !golden.Thorough() { // tests of threads name them; workers that wait for each other's rows cost time
		o.Threads = 1
	}
	e, err := Open(m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.kv.Check(); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// TestLogitsOfRealModels compares the logits after real prompts with Hugging Face's float32 ones: the exact path within
// 2e-3 of the largest, the default path about as close as llama.cpp (mean KL at most 1.5 times its own).
func TestLogitsOfRealModels(t *testing.T) {
	t.Parallel()
	for name, folder := range map[string]string{"smollm2:135m": "smollm2_logits", "gemma3:270m": "gemma3_logits"} {
		t.Run(folder, func(t *testing.T) {
			path := golden.Model(t, name)
			rows := golden.Lines[prompt](t, golden.Shared(t, "data", "golden", folder, "prompts.jsonl"))
			all := golden.Tensors(t, golden.Shared(t, "data", "golden", folder, "logits.safetensors"))
			exact, fast := openModel(t, path, Options{Exact: true}), openModel(t, path, Options{})
			var kl, peer float64
			n := 0
			for _, r := range rows[:len(rows)/3] {
				if testing.Short() && len(r.IDs) > 200 {
					continue // the slow paths read only the short prompts
				}
				n++
				ids := all[fmt.Sprintf("%d/hf/top_ids", r.Index)].Floats()
				want := all[fmt.Sprintf("%d/hf/top_logits", r.Index)].Floats()
				got := lastLogits(t, exact, r.IDs)
				worst, largest := 0.0, 0.0
				for i, id := range ids {
					worst = max(worst, math.Abs(float64(got[int(id)]-want[i])))
					largest = max(largest, math.Abs(float64(want[i])))
				}
				if worst > 2e-3*largest {
					t.Errorf("prompt %d: exact logits differ by %.2g, the largest is %.3g", r.Index, worst, largest)
				}
				kl += bucketKL(ids, want, r.LogSumExp, lastLogits(t, fast, r.IDs))
				peer += r.KLPeer
			}
			if n == 0 {
				t.Skip("-short: no short prompt among these")
			}
			t.Logf("%d prompts: mean KL of the default path %.5f, llama.cpp's %.5f", n, kl/float64(n), peer/float64(n))
			if kl > 1.5*peer && !testing.Short() {
				t.Errorf("mean KL %.5f, llama.cpp's is %.5f", kl/float64(n), peer/float64(n))
			}
		})
	}
}

func lastLogits(t testing.TB, e *Engine, ids []int) []float32 {
	t.Helper()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(context.Background(), ids, PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), s.Logits()...)
}

// bucketKL is KL(reference ‖ x) over the reference's top tokens and one bucket for all others.
func bucketKL(ids, ref []float32, refLSE float64, x []float32) float64 {
	peak := math.Inf(-1)
	for _, v := range x {
		peak = math.Max(peak, float64(v))
	}
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - peak)
	}
	lse := peak + math.Log(sum)
	var k, pIn, qIn float64
	for i, id := range ids {
		p, lq := math.Exp(float64(ref[i])-refLSE), float64(x[int(id)])-lse
		k += p * (float64(ref[i]) - refLSE - lq)
		pIn += p
		qIn += math.Exp(lq)
	}
	pt, qt := math.Max(1-pIn, 1e-9), math.Max(1-qIn, 1e-9)
	return k + pt*math.Log(pt/qt)
}
