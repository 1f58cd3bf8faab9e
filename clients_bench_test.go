package terrace_test

import (
	"context"
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

// BenchmarkClients has clients take turns at 4 questions each to SmolLM2: 128 tokens after a prompt that nobody else has, of 512
// tokens, and of 8. It reports generated tokens a second of all, their ratio to one client's, and the times between two tokens of a
// text. Run it with -benchtime 1x.
func BenchmarkClients(b *testing.B) {
	path := golden.Model(b, "smollm2:135m")
	for _, prompt := range []int{512, 8} {
		alone := 0.0
		for _, clients := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("prompts=%d/clients=%d", prompt, clients), func(b *testing.B) {
				m := served(b, path, clients, 1024)
				var mu sync.Mutex
				var all []gap
				tokens, begun := 0, time.Now()
				for b.Loop() {
					var wg sync.WaitGroup
					var asked atomic.Int64
					for range clients {
						wg.Go(func() {
							for n := asked.Add(1); n <= int64(4*clients); n = asked.Add(1) {
								g, err := ask(b.Context(), m, uint64(n), prompt, 128, nil)
								if err != nil {
									b.Error(err)
									return
								}
								mu.Lock()
								all, tokens = append(all, g...), tokens+len(g)+1
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
				b.ReportMetric(rate, "tokens/s")
				b.ReportMetric(float64(tokens)/float64(4*clients*b.N), "tokens/answer")
				if alone > 0 {
					b.ReportMetric(rate/alone, "of-one")
				}
				b.ReportMetric(quantile(all, 0.5), "itl-p50-ms")
				b.ReportMetric(quantile(all, 0.99), "itl-p99-ms")
			})
		}
	}
}

// BenchmarkArrival has a prompt of 4,000 tokens arrive while clients get their answers, after prompts of 512. It reports the times
// between two tokens of a text before it came and while it was read, and how long that took.
func BenchmarkArrival(b *testing.B) {
	path := golden.Model(b, "smollm2:135m")
	for _, clients := range []int{1, 8, 32} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			m := served(b, path, clients+1, 8192)
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			var wg sync.WaitGroup
			var mu sync.Mutex
			var all []gap
			told := make(chan bool, clients)
			var settling atomic.Bool
			for n := range clients {
				wg.Go(func() {
					seen, settled := 0, 0
					_, err := ask(ctx, m, uint64(n+1), 512, 5000, func(g gap) {
						mu.Lock()
						all = append(all, g)
						mu.Unlock()
						if seen++; settling.Load() {
							settled++
						}
						if seen == 1 || settled == 20 {
							told <- true
						}
					})
					if ctx.Err() == nil {
						b.Error("an answer ended too soon: ", err)
					}
				})
			}
			for range clients { // all prompts are read
				<-told
			}
			began := time.Now()
			settling.Store(true)
			for range clients {
				<-told
			}
			came := time.Now()
			if _, err := ask(ctx, m, 1000, 4000, 1, nil); err != nil {
				b.Fatal(err)
			}
			read := time.Now()
			stop()
			wg.Wait()
			var before, during []gap
			for _, g := range all {
				switch {
				case g.end.Add(-g.took).After(began) && g.end.Before(came):
					before = append(before, g)
				case g.end.After(came) && g.end.Before(read):
					during = append(during, g)
				}
			}
			b.ReportMetric(quantile(before, 0.5), "before-p50-ms")
			b.ReportMetric(quantile(during, 0.5), "during-p50-ms")
			b.ReportMetric(quantile(during, 0.99), "during-p99-ms")
			b.ReportMetric(quantile(during, 0.99)/quantile(before, 0.5), "p99/p50")
			b.ReportMetric(read.Sub(came).Seconds(), "prompt-s")
		})
	}
}

// served is SmolLM2 behind a server's loop, its weights in memory.
func served(b *testing.B, path string, batch, tokens int) *terrace.Model {
	m, err := terrace.Open(b.Context(), path, terrace.Options{Batch: batch, Context: tokens})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	if _, err := ask(b.Context(), m, 0, 64, 1, nil); err != nil {
		b.Fatal(err)
	}
	return m
}

// gap is the time between two tokens of a text, and when it ended.
type gap struct {
	took time.Duration
	end  time.Time
}

// ask has a text continued and returns the times between its tokens; see is shown each as it comes, nil = nobody is.
func ask(ctx context.Context, m *terrace.Model, seed uint64, prompt, most int, see func(gap)) (gaps []gap, err error) {
	var last time.Time
	for p, err := range m.Generate(ctx, words(seed, prompt), terrace.Settings{MaxTokens: most, IgnoreEnd: true}) {
		if err != nil {
			return gaps, err
		}
		now := time.Now()
		for range p.Tokens {
			if !last.IsZero() {
				gaps = append(gaps, gap{now.Sub(last), now})
				if see != nil {
					see(gaps[len(gaps)-1])
				}
			}
			last = now
		}
	}
	return gaps, nil
}

// quantile in milliseconds.
func quantile(gaps []gap, q float64) float64 {
	if len(gaps) == 0 {
		return 0
	}
	slices.SortFunc(gaps, func(a, b gap) int { return int(a.took - b.took) })
	return gaps[min(int(q*float64(len(gaps))), len(gaps)-1)].took.Seconds() * 1e3
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
