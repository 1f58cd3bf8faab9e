package csdshim

import (
	"context"
	"fmt"
	"testing"
	"time"

	"terrace/csdshim/profiles"
	"terrace/internal/kvpage"
)

// BenchmarkModelled prints what a SmartSSD takes for a layer by its profile (modelled-us): scores of all tokens from DRAM and from flash,
// forty single tokens, and all keys and values. No clock of this machine is in it.
func BenchmarkModelled(b *testing.B) {
	ctx := context.Background()
	for _, x := range []struct{ heads, dim, tokens int }{{3, 64, 3000}, {3, 64, 8000}, {8, 128, 16000}, {8, 128, 32000}} {
		for _, keys := range []KeyPlace{KeysDDR, KeysNAND} {
			shape := Shape{Layers: 1, KVHeads: x.heads, Codes: CodesInt8, Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: x.dim, ValueDim: x.dim, Tokens: 16, TokenMajor: true}}
			d := openDrive(b, b.TempDir(), func(o *Options) {
				o.CapacityBytes, o.NoSync, o.Keys = 1<<30, true, keys
				p, err := profiles.Load("smartssd")
				if err != nil {
					b.Fatal(err)
				}
				o.Profile, o.Clock = p, nil
			})
			s := d.Connect([16]byte{1}, 0)
			groups, data := make([]Group, x.tokens/GroupTokens), make([]byte, shape.RecordBytes())
			for i := range groups {
				groups[i] = Group{Index: i, Data: data}
			}
			if err := s.OpenSequence(1, shape); err != nil {
				b.Fatal(err)
			}
			for _, part := range cut(groups, 128) {
				if _, err := s.Write(ctx, 1, part); err != nil {
					b.Fatal(err)
				}
			}
			scales := make([]float32, x.heads)
			for i := range scales {
				scales[i] = 1
			}
			if _, err := s.SetScales(ctx, 1, 0, scales); err != nil {
				b.Fatal(err)
			}
			q := &Query{Codes: CodesInt8, Int8: make([]int8, shape.Width()), Block: 256}
			var forty []int32
			for i := range 40 {
				forty = append(forty, int32(i*x.tokens/40))
			}
			few := make([]byte, gatherBytes(shape, len(forty)))
			for _, ask := range []struct {
				name string
				do   func() (Timing, error)
			}{
				{"score", func() (Timing, error) {
					return s.Score(ctx, 1, 0, q, func(*Block, time.Duration) error { return nil })
				}},
				{"gather-40", func() (Timing, error) { return s.Gather(ctx, 1, 0, forty, few) }},
				{"fetch", func() (Timing, error) { return s.Read(ctx, 1, groups) }},
			} {
				b.Run(fmt.Sprintf("%dx%d/%d/%v/%s", x.heads, x.dim, x.tokens, keys, ask.name), func(b *testing.B) {
					var t Timing
					for b.Loop() {
						var err error
						if t, err = ask.do(); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(t.TotalNs)/1e3, "modelled-us")
				})
			}
			if err := d.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
