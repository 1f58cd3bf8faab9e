package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"terrace/engine/fakes"
	"terrace/internal/golden"
)

// BenchmarkDecodeAtDepth compares policies at depth 8,000 of SmolLM2 step by step in turn, so that neighbours disturb all
// alike; it reports each one's fastest tenth of steps in tokens a second and its ratio to full.
func BenchmarkDecodeAtDepth(b *testing.B) {
	path := golden.Model(b, "smollm2:135m")
	specs := []string{"full", "quest:budget=1024", "topk:budget=1024", "topk:budget=1024,score=int4", "snapkv:ratio=0.75"}
	sessions := make([]*Session, len(specs))
	for i, spec := range specs {
		e := openModel(b, path, Options{Policy: spec, Context: 1 << 15})
		s, err := e.NewSession(e.Policy())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(s.Close)
		if err := s.Prefill(b.Context(), fakes.IDs(8000, 1), PrefillHooks{}); err != nil {
			b.Fatal(err)
		}
		sessions[i] = s
	}
	took := make([][]time.Duration, len(specs))
	for b.Loop() {
		for i, s := range sessions {
			begun := time.Now()
			if err := s.Decode(100); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(begun))
		}
	}
	fast := func(d []time.Duration) float64 {
		d = slices.Sorted(slices.Values(d))
		return 1 / d[len(d)/10].Seconds()
	}
	for i, spec := range specs {
		b.Logf("%-30s %6.1f t/s, %.2f of full", spec, fast(took[i]), fast(took[i])/fast(took[0]))
	}
}

// BenchmarkPrefillPolicies reads prompts of 2,000 and 8,000 tokens of SmolLM2 under each policy and under full in turn: it
// reports the median of the pairs' ratios of time.
func BenchmarkPrefillPolicies(b *testing.B) {
	path := golden.Model(b, "smollm2:135m")
	for _, n := range []int{2000, 8000} {
		for _, spec := range []string{"h2o", "observed_attention", "streaming_llm", "snapkv", "knorm", "keydiff"} {
			b.Run(fmt.Sprintf("%s/%d", spec, n), func(b *testing.B) {
				full, other := openModel(b, path, Options{Context: 1 << 14}), openModel(b, path, Options{Policy: spec, Context: 1 << 14})
				read := func(e *Engine) time.Duration {
					s, err := e.NewSession(e.Policy())
					if err != nil {
						b.Fatal(err)
					}
					defer s.Close()
					begun := time.Now()
					if err := s.Prefill(b.Context(), fakes.IDs(n, 1), PrefillHooks{}); err != nil {
						b.Fatal(err)
					}
					return time.Since(begun)
				}
				read(other) // grows the scratch
				var ratios, fulls []float64
				for b.Loop() {
					var base, under time.Duration
					if len(ratios)%2 == 0 {
						base, under = read(full), read(other)
					} else {
						under, base = read(other), read(full)
					}
					ratios, fulls = append(ratios, under.Seconds()/base.Seconds()), append(fulls, base.Seconds())
				}
				slices.Sort(ratios)
				slices.Sort(fulls)
				b.ReportMetric(ratios[len(ratios)/2], "of-full")
				b.ReportMetric(float64(n)/fulls[len(fulls)/2], "full-t/s")
			})
		}
	}
}

// BenchmarkWidePass reads 1 to 8 tokens in one pass at depths of SmolLM2, widths in turn, as speculation does; it reports the
// fastest tenth of each width's passes as multiples of a pass of one row.
func BenchmarkWidePass(b *testing.B) {
	e := openModel(b, golden.Model(b, "smollm2:135m"), Options{Context: 1 << 14})
	for _, depth := range []int{128, 2300, 7500} {
		b.Run(fmt.Sprint(depth), func(b *testing.B) {
			s, err := e.NewSession(nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if err := s.Prefill(b.Context(), fakes.IDs(depth, 1), PrefillHooks{}); err != nil {
				b.Fatal(err)
			}
			took := make([][]time.Duration, 9)
			for b.Loop() {
				for n := 1; n <= 8; n++ {
					begun := time.Now()
					if _, err := s.readAhead(fakes.IDs(n, 2)); err != nil {
						b.Fatal(err)
					}
					took[n] = append(took[n], time.Since(begun))
					if err := s.text.Truncate(int32(depth)); err != nil {
						b.Fatal(err)
					}
				}
			}
			fast := func(n int) float64 {
				d := slices.Sorted(slices.Values(took[n]))
				return d[len(d)/10].Seconds()
			}
			b.ReportMetric(1000*fast(1), "ms-one")
			for n := 2; n <= 8; n++ {
				b.ReportMetric(fast(n)/fast(1), fmt.Sprintf("x%d", n))
			}
		})
	}
}
