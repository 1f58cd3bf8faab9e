package terrace_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"terrace"
	"terrace/internal/golden"
)

// BenchmarkClients has clients take turns at 4 questions each to SmolLM2: 128 tokens after a prompt of 512 that nobody else has. It
// reports generated tokens a second of all, their ratio to one client's, and the times between two tokens of a text.
func BenchmarkClients(b *testing.B) {
	path := golden.Model(b, "smollm2:135m")
	alone := 0.0
	for _, clients := range []int{1, 8, 32} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			m, err := terrace.Open(b.Context(), path, terrace.Options{Batch: clients, Context: 1024})
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			ask := func(seed uint64, most int) (gaps []time.Duration, err error) {
				var last time.Time
				for p, err := range m.Generate(b.Context(), words(seed, 512), terrace.Settings{MaxTokens: most, IgnoreEnd: true}) {
					if err != nil {
						return nil, err
					}
					if now := time.Now(); len(p.Tokens) > 0 {
						if !last.IsZero() {
							gaps = append(gaps, now.Sub(last))
						}
						last = now
					}
				}
				return gaps, nil
			}
			if _, err := ask(0, 1); err != nil { // weights are in memory
				b.Fatal(err)
			}
			var mu sync.Mutex
			var gaps []time.Duration
			tokens, begun := 0, time.Now()
			for b.Loop() {
				var wg sync.WaitGroup
				var asked atomic.Int64
				for range clients {
					wg.Go(func() {
						for n := asked.Add(1); n <= int64(4*clients); n = asked.Add(1) {
							g, err := ask(uint64(n), 128)
							if err != nil {
								b.Error(err)
								return
							}
							mu.Lock()
							gaps, tokens = append(gaps, g...), tokens+128
							mu.Unlock()
						}
					})
				}
				wg.Wait()
			}
			rate := float64(tokens) / time.Since(begun).Seconds()
			if clients == 1 {
				alone = rate
			}
			slices.Sort(gaps)
			b.ReportMetric(rate, "tokens/s")
			if alone > 0 {
				b.ReportMetric(rate/alone, "of-one")
			}
			b.ReportMetric(gaps[len(gaps)/2].Seconds()*1e3, "itl-p50-ms")
			b.ReportMetric(gaps[len(gaps)*99/100].Seconds()*1e3, "itl-p99-ms")
		})
	}
}

// words are n words, of which each is a token.
func words(seed uint64, n int) string {
	rnd := rand.New(rand.NewPCG(seed, 7))
	some := strings.Fields("time year people way day man thing woman life child world school state family student group country problem hand part place case week company system program question work number night point home water room mother area money story fact month lot right study book eye job word business issue side kind head house service friend father power hour game line end member law car city name")
	var text strings.Builder
	for range n {
		text.WriteString(" " + some[rnd.IntN(len(some))])
	}
	return text.String()
}
