package engine

import (
	"errors"
	"slices"
	"testing"

	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/golden"
	"terrace/internal/tierspec"
	"terrace/model"
	"terrace/model/xla"
)

// deviceBackends are those of parityBackends that keep copies of keys and values on a device.
func deviceBackends() (out []string) {
	for _, b := range parityBackends {
		if b != "native" && b != "gorgonia" {
			out = append(out, b)
		}
	}
	return out
}

// story runs a session through everything that changes its KV: a prompt in chunks, steps, a fork that goes its own way beside
// it in a batch, a rewind and another continuation. It returns the logits after each.
func story(t *testing.T, e *Engine) (out [][]float32) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := e.NewSession(e.Policy())
	must(err)
	defer s.Close()
	must(s.Prefill(t.Context(), fakes.IDs(90, 1), PrefillHooks{}))
	out = append(out, slices.Clone(s.Logits()))
	for _, id := range fakes.IDs(70, 2) {
		must(s.Decode(id))
	}
	out = append(out, slices.Clone(s.Logits()))
	if s.text.Plain() {
		f, err := s.Fork(s.Policy())
		must(err)
		defer f.Close()
		for _, id := range fakes.IDs(3, 3) {
			must(e.DecodeBatch([]*Session{s, f}, []int{id, id + 1}))
			out = append(out, slices.Clone(s.Logits()), slices.Clone(f.Logits()))
		}
	}
	must(s.Rewind(84))
	must(s.Prefill(t.Context(), fakes.IDs(9, 4), PrefillHooks{}))
	out = append(out, slices.Clone(s.Logits()))
	must(s.Decode(7))
	return append(out, slices.Clone(s.Logits()))
}

// TestDeviceStory compares device backends with the native one where the copies on the device must follow what policies,
// forks and rewinds do to the pages, with all KV on the device and with room for a part. The selecting policy scores with exact
// keys: with topk's 8-bit queries a difference of 1e-6 between backends turns a near tie round at some budgets, and the token
// that is read instead changes logits by 0.17.
func TestDeviceStory(t *testing.T) {
	for _, policy := range []string{"", "h2o:budget=60", "oracle:budget=20"} {
		want := [][]float32(nil)
		for _, backend := range append([]string{"native"}, deviceBackends()...) {
			for _, room := range []int64{0, 200 << 10} {
				if backend == "native" && room != 0 || room != 0 && policy == "h2o:budget=60" {
					continue
				}
				e := small(t, Options{Backend: backend, Exact: true, Policy: policy, ChunkTokens: 40, DeviceKVBytes: room, Calibration: fakes.IDs(80, 9)})
				got := story(t, e)
				if backend == "native" {
					want = got
					continue
				}
				if d := fakes.Worst(got, want); !(d <= 2e-3) {
					t.Errorf("%s, policy %q, %d bytes on the device: logits differ by %g", backend, policy, room, d)
				}
				counter, counted := e.backend.(xla.Counter)
				if !counted {
					continue
				}
				counts := counter.Counts()
				if room != 0 && (counts.KVPeakBytes > room || counts.KVPeakBytes == 0) {
					t.Errorf("%s, policy %q: %d bytes of KV on the device, the budget is %d", backend, policy, counts.KVPeakBytes, room)
				}
				if (counts.Raised > 0) != (policy != "oracle:budget=20" && (room != 0 || policy == "")) {
					t.Errorf("%s, policy %q, %d bytes on the device: %d layers went up ahead", backend, policy, room, counts.Raised)
				}
				if counts.KVBytes != 0 {
					t.Errorf("%s, policy %q: %d bytes of KV on the device after the last session", backend, policy, counts.KVBytes)
				}
			}
		}
	}
}

// TestDevicePolicies: a policy that looks at keys while a prompt is read, or has rows computed late, sees on a device what it sees on the CPU.
func TestDevicePolicies(t *testing.T) {
	prompt, next := fakes.IDs(300, 1), fakes.IDs(6, 2)
	for _, spec := range []string{"lazyllm", "lazyllm:layers=1/2,keep=30%", "sliminfer:layers=1/2,keep=160/96,block=32,gamma=1", "double_sparsity:budget=24,rank=4,dense_layers=0"} {
		want := forced(t, small(t, Options{Threads: 2, Policy: spec, Exact: true}), prompt, next)
		for _, name := range deviceBackends() {
			got := forced(t, small(t, Options{Threads: 2, Policy: spec, Exact: true, Backend: name}), prompt, next)
			if d := fakes.Worst(want, got); d > 1e-3 {
				t.Errorf("%s on %s: logits differ by %g", spec, name, d)
			}
		}
	}
}

// TestDeviceUploadsTheTokenOnly counts what goes up in a decode step: the token's id and position, its cosines and sines,
// and three numbers that say where its keys and values go. It does not grow with the context, and no weight and no program
// is needed again.
func TestDeviceUploadsTheTokenOnly(t *testing.T) {
	for _, backend := range deviceBackends() {
		e := openModel(t, golden.Shared(t, "data", "golden", "tiny_hf", "llama_gqa"), Options{Backend: backend})
		counter, ok := e.backend.(xla.Counter)
		if !ok {
			continue // Vulkan records transfers in command buffers (model/vulkan's tests)
		}
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), fakes.IDs(70, 1), PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Decode(6); err != nil {
			t.Fatal(err)
		}
		before := counter.Counts()
		for i := range 50 {
			if err := s.Decode(i); err != nil {
				t.Fatal(err)
			}
			after := counter.Counts()
			up, want := after.UploadBytes-before.UploadBytes, int64(4*(2+2)+4*e.m.Layer[0].KeyDim) // key dim = 2 · dim/2
			if up != want {
				t.Fatalf("%s: step %d uploaded %d bytes, want %d", backend, i, up, want)
			}
			if after.Programs != before.Programs || after.WeightBytes != before.WeightBytes {
				t.Fatalf("%s: step %d compiled %d programs", backend, i, after.Programs-before.Programs)
			}
			before = after
		}
	}
}

// TestDeviceTier opens the device as the top tier: its accounts are reported, and a backend without a device refuses it.
func TestDeviceTier(t *testing.T) {
	device, err := tierspec.Parse("device=1MiB")
	if err != nil || device.Kind != tier.Device || device.CapacityBytes != 1<<20 {
		t.Fatalf("device=1MiB is %+v, %v", device, err)
	}
	path := fakes.Small(t)
	m := openFile(t, path)
	if _, err := Open(m, Options{Tiers: []tier.Tier{device}}); !errors.Is(err, ErrOption) {
		t.Errorf("native with a device tier: %v, want ErrOption", err)
	}
	e := small(t, Options{Backend: "gomlx:go", Tiers: []tier.Tier{device}})
	forced(t, e, fakes.IDs(20, 1), fakes.IDs(2, 2))
	use := e.TierUse()
	if p := use.PeakBytes["device"]; p <= 0 || p > 1<<20 || use.MovedBytes["host>device"] <= 0 || use.MovedBytes["device>host"] <= 0 {
		t.Errorf("accounts of the device: %+v", use)
	}
}

// TestDeviceChooses generates greedily with the token chosen on the device and with the logits on the host: the same ids, and
// a step brings down its keys and values and 8 bytes. The logits are there for who asks, also after another session's step.
func TestDeviceChooses(t *testing.T) {
	for _, backend := range deviceBackends() {
		e := small(t, Options{Backend: backend})
		counter, counted := e.backend.(xla.Counter) // Vulkan's transfers are its own tests' matter
		down := func() int64 {
			if !counted {
				return 0
			}
			return counter.Counts().DownloadBytes
		}
		var ids [2][]int
		for i, chooser := range []model.Chooser{e.device.chooser, nil} {
			if i == 0 && chooser == nil {
				t.Fatalf("%s chooses no tokens", backend)
			}
			e.device.chooser = chooser
			s, err := e.NewSession(e.Policy())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Prefill(t.Context(), fakes.IDs(10, 1), PrefillHooks{}); err != nil {
				t.Fatal(err)
			}
			sampler := model.NewSampler(model.SamplerOptions{})
			for range 12 {
				before := down()
				id, err := s.Choose(sampler)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Decode(id); err != nil {
					t.Fatal(err)
				}
				ids[i] = append(ids[i], id)
				if got := down() - before; i == 0 && counted && got != int64(e.KVBytesPerToken()+8) {
					t.Errorf("%s: a step brought %d bytes down, want %d", backend, got, e.KVBytesPerToken()+8)
				}
			}
			s.Close()
		}
		if !slices.Equal(ids[0], ids[1]) || len(ids[0]) != 12 {
			t.Errorf("%s: ids %v chosen on the device, %v on the host", backend, ids[0], ids[1])
		}
	}
}

// TestLateLogits looks at logits that a later step of another session would overwrite, of a fork, and after a rewind.
func TestLateLogits(t *testing.T) {
	e, plain := small(t, Options{Backend: "gomlx:go"}), small(t, Options{Backend: "gomlx:go"})
	plain.device.chooser = nil
	var got, want [][]float32
	for _, x := range []struct {
		e   *Engine
		out *[][]float32
	}{{e, &got}, {plain, &want}} {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		a, err := x.e.NewSession(x.e.Policy())
		must(err)
		b, err := x.e.NewSession(x.e.Policy())
		must(err)
		must(a.Prefill(t.Context(), fakes.IDs(5, 1), PrefillHooks{}))
		must(b.Prefill(t.Context(), fakes.IDs(6, 2), PrefillHooks{}))
		must(x.e.DecodeBatch([]*Session{a, b}, []int{1, 2}))
		f, err := a.Fork(a.Policy())
		must(err)
		must(b.Decode(3))
		must(a.Decode(4))
		*x.out = append(*x.out, slices.Clone(f.Logits()), slices.Clone(b.Logits()), slices.Clone(a.Logits()))
		must(a.Decode(5))
		must(a.Rewind(4))
		must(a.Decode(6))
		b.Close()
		must(f.Decode(7))
		*x.out = append(*x.out, slices.Clone(a.Logits()), slices.Clone(f.Logits()))
		f.Close()
		a.Close()
	}
	for i := range want {
		if !slices.Equal(got[i], want[i]) || len(want[i]) != e.m.Vocab {
			t.Errorf("logits %d differ from those fetched at once", i)
		}
	}
}

// TestDeviceAboveSSD runs with three tiers at once: a device that holds some layers, host memory that holds part of the KV, and
// a file below. The logits are those of the native backend without tiers, and every tier has held and moved something.
func TestDeviceAboveSSD(t *testing.T) {
	prompt, next := fakes.IDs(800, 1), fakes.IDs(6, 2)
	for _, policy := range []string{"", "hillinfer:alpha=0.2,score=int8,guess_from=1"} {
		want := forced(t, small(t, Options{Exact: true, Policy: policy}), prompt, next)
		for _, backend := range deviceBackends() {
			tiers := []tier.Tier{{Kind: tier.Device, CapacityBytes: 1600 << 10}, {Kind: tier.Host, CapacityBytes: 1 << 20}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 8 << 20}}
			e := small(t, Options{Backend: backend, Exact: true, Policy: policy, ChunkTokens: 128, Tiers: tiers})
			got := forced(t, e, prompt, next)
			if d := fakes.Worst(got, want); !(d <= 2e-3) {
				t.Errorf("%s, policy %q: logits differ by %g", backend, policy, d)
			}
			use := e.TierUse()
			for _, tier := range tiers {
				if n := use.PeakBytes[string(tier.Kind)]; n <= 0 || n > tier.CapacityBytes {
					t.Errorf("%s, policy %q: %d bytes on tier %s of %d", backend, policy, n, tier.Kind, tier.CapacityBytes)
				}
			}
			for _, way := range []string{"host>device", "device>host", "host>ssd", "ssd>host"} {
				if use.MovedBytes[way] <= 0 {
					t.Errorf("%s, policy %q: nothing moved %s: %v", backend, policy, way, use.MovedBytes)
				}
			}
		}
	}
}
