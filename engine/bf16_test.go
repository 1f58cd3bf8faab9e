package engine

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/golden"
	"terrace/model"
	"terrace/model/xla"
)

// halfLimit bounds the distance of the tiny models' logits under bf16 from the golden ones, relative to their length: weights,
// activations, keys and values with 8 significant bits (2^-9 of rounding each) through a few layers. Where experts are
// routed, a near tie may turn: there it bounds the median position.
const halfLimit = 4e-2

// halfBackends are those of parityBackends that declare bf16; the others must refuse it, and never compute in float32 instead.
func halfBackends(t *testing.T) (out []string) {
	path := fakes.Small(t)
	m := openFile(t, path)
	for _, backend := range parityBackends {
		e, err := Open(m, Options{Backend: backend, DType: model.BFloat16})
		if err == nil {
			out = append(out, backend)
			e.Close()
		} else if !errors.Is(err, model.ErrUnsupported) {
			t.Errorf("%s in bf16: %v, want ErrUnsupported", backend, err)
		}
	}
	if len(out) == 0 || out[0] == "native" {
		t.Errorf("bf16 on %v", out)
	}
	return out
}

// TestBFloat16 runs every tiny model in bf16 on the backends that have it, and looks at what goes to the device.
func TestBFloat16(t *testing.T) {
	t.Parallel()
	cases := append(tinyHF(t), tinyGGUF(t)[0]) // quantised blocks are converted one way, whichever they were
	for _, backend := range halfBackends(t) {
		most := 0.0
		for _, c := range cases {
			e := openModel(t, c.path, Options{Backend: backend, DType: model.BFloat16, ChunkTokens: 24})
			s, err := e.NewSession(e.Policy())
			if err != nil {
				t.Fatal(err)
			}
			var got []float32
			err = s.Prefill(t.Context(), c.ids, PrefillHooks{Each: func(_ int, logits []float32) error {
				got = append(got, logits...)
				return nil
			}})
			s.Close()
			if err != nil {
				t.Fatal(err)
			}
			d := distance(got, c.logits)
			if e.m.Experts > 0 {
				d = medianDistance(got, c.logits, len(c.ids))
			}
			if !(d <= halfLimit) || d < 1e-5 {
				t.Errorf("%s, %s: logits differ by %.2g, want 1e-5 to %.0g", backend, c.name, d, halfLimit)
			}
			most = max(most, d)
		}
		t.Logf("%s: logits of %d models differ by at most %.2g", backend, len(cases), most)
	}
}

// TestBFloat16HalvesTheDevice compares bytes on the device with float32's.
func TestBFloat16HalvesTheDevice(t *testing.T) {
	for _, backend := range halfBackends(t) {
		var counts [2]xla.Counts
		for i, dtype := range []model.DType{model.Float32, model.BFloat16} {
			e := small(t, Options{Backend: backend, DType: dtype})
			forced(t, e, fakes.IDs(70, 1), fakes.IDs(3, 2))
			counts[i] = e.backend.(xla.Counter).Counts()
		}
		if r := float64(counts[1].WeightBytes) / float64(counts[0].WeightBytes); r > 0.52 {
			t.Errorf("%s: weights in bf16 take %.2f of those in f32", backend, r)
		}
		if r := float64(counts[1].KVPeakBytes) / float64(counts[0].KVPeakBytes); r > 0.6 { // positions stay
			t.Errorf("%s: keys and values in bf16 take %.2f of those in f32", backend, r)
		}
	}
}

// bf16Logits bounds how far logits in bf16 are from float32's, as a share of the largest: 30 layers whose hidden rows are rounded to 8
// bits several times each. XLA on a CPU with AMX, which multiplies in bf16, comes to 0.017.
const bf16Logits = 0.025

// TestBFloat16RealModel wants the reference's top logits within a bound after SmolLM2's golden prompts in bf16, and its likeliest token
// where that leads the next by more than the rounding of both (one prompt's margin is 0.047, less than AMX's difference). The pure Go backend takes 10 s for one prompt: it has TestBFloat16's tiny models, and a real one only where the
// suite of XLA runs.
func TestBFloat16RealModel(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: reads a real model")
	}
	backends := halfBackends(t)
	if len(backends) == 1 && os.Getenv("TERRACE_TEST_XLA") == "" {
		t.Skip("gomlx:go alone has bf16 here, tested by TestBFloat16; a real model is read under -tags xla, or with TERRACE_TEST_XLA set")
	}
	path := golden.Model(t, "smollm2:135m")
	rows := golden.Lines[prompt](t, golden.Shared(t, "data", "golden", "smollm2_logits", "prompts.jsonl"))
	all := golden.Tensors(t, golden.Shared(t, "data", "golden", "smollm2_logits", "logits.safetensors"))
	for _, backend := range backends {
		e := openModel(t, path, Options{Backend: backend, DType: model.BFloat16})
		for i, r := range rows {
			if backend == "gomlx:go" && i >= 1 {
				break
			}
			ids := all[fmt.Sprintf("%d/hf/top_ids", r.Index)].Floats()
			want := all[fmt.Sprintf("%d/hf/top_logits", r.Index)].Floats()
			got := lastLogits(t, e, r.IDs)
			worst, largest := 0.0, 0.0
			for i, id := range ids {
				worst = max(worst, math.Abs(float64(got[int(id)]-want[i])))
				largest = max(largest, math.Abs(float64(want[i])))
			}
			t.Logf("%s, prompt %d: logits differ by %.2g of the largest, margin %.2g", backend, r.Index, worst/largest, r.Margin[0])
			if worst > bf16Logits*largest {
				t.Errorf("%s, prompt %d: logits differ by %.2g of the largest, want %g at most", backend, r.Index, worst/largest, bf16Logits)
			}
			if top := argMax(got); top != int(ids[0]) && float64(r.Margin[0]) > 2*worst {
				t.Errorf("%s, prompt %d: token %d, want %d", backend, r.Index, top, int(ids[0]))
			}
		}
	}
}

// distance is |x - want| / |want|, Euclidean.
func distance(x, want []float32) float64 {
	if len(x) != len(want) {
		return math.NaN()
	}
	var diff, all float64
	for i := range want {
		d := float64(x[i]) - float64(want[i])
		diff, all = diff+d*d, all+float64(want[i])*float64(want[i])
	}
	return math.Sqrt(diff / all)
}

// medianDistance is the median of the distances of rows [n, V].
func medianDistance(x, want []float32, n int) float64 {
	rows := make([]float64, n)
	for i := range rows {
		lo, hi := i*len(want)/n, (i+1)*len(want)/n
		rows[i] = distance(x[lo:hi], want[lo:hi])
	}
	slices.Sort(rows)
	return rows[n/2]
}

// TestFlashAttention reads prompts in chunks, of which the later ones see earlier tokens, on devices that have attention of their
// own, and compares logits with the pure Go backend's in the same type: whole chunks and a short last one, one that is too short.
func TestFlashAttention(t *testing.T) {
	const backend = "xla:cuda"
	if !slices.Contains(parityBackends, backend) {
		t.Skip("no device with attention of its own (cuDNN's, on xla:cuda)")
	}
	for _, n := range []int{128, 300, 390} {
		ids := fakes.IDs(n, 5)
		o := Options{Backend: "gomlx:go", DType: model.BFloat16, ChunkTokens: 128}
		want := forced(t, small(t, o), ids, fakes.IDs(3, 6))
		o.Backend = backend
		e := small(t, o)
		got := forced(t, e, ids, fakes.IDs(3, 6))
		for i := range want {
			if d := distance(got[i], want[i]); !(d <= 0.01) {
				t.Errorf("%d tokens, logits %d differ by %.2g of their length", n, i, d)
			}
		}
		if c := e.backend.(xla.Counter).Counts(); c.Flashes == 0 {
			t.Errorf("%d tokens: the device's attention was not used", n)
		}
	}
}
