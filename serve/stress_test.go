package serve

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"terrace/engine"
	"terrace/engine/draft"
	"terrace/engine/prefixcache"
	"terrace/engine/tier"
	"terrace/grammar"
	"terrace/internal/kvpage"
	"terrace/kvmanager/contexts"
	"terrace/model"
	"terrace/policy"
	"terrace/tokenizer"
)

// What TestStress draws: go test ./serve -run TestStress -stress-requests 10000 -stress-seed 3 -timeout 3h -v
var (
	stressRequests = flag.Int("stress-requests", 240, "requests of TestStress")
	stressRound    = flag.Int("stress-round", -1, "the one server of TestStress that is wanted; -1 = all")
	stressSeed     = flag.Uint64("stress-seed", 25, "what TestStress draws servers and requests from")
)

const (
	stressAsks      = 60 // requests of a server
	stressQuestions = 24 // which they choose from
)

// TestStress: servers of random models, KV types, tiers, batches and stores, and at each many texts at a time under policies of all
// kinds, with prompts that share beginnings and clients that leave: each answer is the one that the text has alone, or a refusal that
// says why; one that has no room alone may be cut, and says so (CutMemory); none is of a prompt that was not read; nothing is left
// (newBench looks), and memory does not grow.
func TestStress(t *testing.T) {
	rounds := max(3, (*stressRequests+stressAsks-1)/stressAsks)
	var sum stressSum
	if *stressRound >= 0 {
		newStress(t, uint64(*stressRound), &sum).run()
		return
	}
	run := func(name string, from, to int) {
		t.Run(name, func(t *testing.T) {
			for i := from; i < to; i++ {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					newStress(t, uint64(i), &sum).run()
				})
			}
		})
	}
	run("first", 0, rounds/3)
	heap, resident := settledBytes(), residentKiB()
	run("rest", rounds/3, rounds)
	after, residentAfter := settledBytes(), residentKiB()
	t.Logf("%d requests of %d servers, seed %d: %d answered as alone, %d cut where memory ends, %d refused by name, %d left; %d texts were swapped out, %d prompt tokens found in stores; heap %d to %d KiB, resident %d to %d KiB",
		sum.answered.Load()+sum.cut.Load()+sum.refused.Load()+sum.left.Load(), rounds, *stressSeed, sum.answered.Load(), sum.cut.Load(), sum.refused.Load(), sum.left.Load(), sum.swapped.Load(), sum.cached.Load(), heap>>10, after>>10, resident, residentAfter)
	sum.kinds.Range(func(kind, n any) bool { t.Logf("%6d %s", n.(*atomic.Int64).Load(), kind); return true })
	if most := heap + 8<<20; after > most {
		t.Errorf("%d KiB of heap, %d after a third of the requests", after>>10, heap>>10)
	}
	if most := resident + resident/2 + 64<<10; residentAfter > most {
		t.Errorf("%d KiB resident, %d after a third of the requests", residentAfter, resident)
	}
	if sum.answered.Load() < int64(rounds*stressAsks/3) || *stressRequests >= 1000 && sum.swapped.Load() == 0 || sum.cached.Load() == 0 { // few leave memory, which depends on what runs beside
		t.Error("the test sees little")
	}
}

// settledBytes is the heap once pools and what finalizers hold are empty.
func settledBytes() int64 {
	for range 3 {
		debug.FreeOSMemory()
	}
	return heapBytes()
}

// stressSum counts over all servers.
type stressSum struct {
	answered, cut, refused, left, swapped, cached atomic.Int64
	kinds                                         sync.Map // of refusals, how often
}

var anyNumber = regexp.MustCompile(`[0-9]+`)

// refuse counts a refusal, by what it says but for its numbers.
func (s *stressSum) refuse(message string) {
	s.refused.Add(1)
	n, _ := s.kinds.LoadOrStore(anyNumber.ReplaceAllString(message, "N"), &atomic.Int64{})
	n.(*atomic.Int64).Add(1)
}

// stress is one server, and what it is asked.
type stress struct {
	t         *testing.T
	rnd       *rand.Rand
	sum       *stressSum
	b         *bench
	wide      func() *engine.Engine // of the same options without a bound on memory
	words     *grammar.Vocabulary
	questions []stressQuestion
	streams   int // requests at a time
	busy      bool
	said      string // the server, in a line
}

// stressQuestion is a request, and what becomes of it alone.
type stressQuestion struct {
	policy, prompt, salt string
	tokens, choices      int
	o                    model.SamplerOptions
	gbnf                 string
	stops                []string

	want []stressAnswer // by choice
	read int            // the prompt's tokens
	err  error          // alone, on a server's own tiers
}

// stressAnswer is what becomes of a choice.
type stressAnswer struct {
	text string
	end  Finish
	why  string // stop_reason
}

// newStress draws a server.
func newStress(t *testing.T, seed uint64, sum *stressSum) *stress {
	rnd := rand.New(rand.NewPCG(seed, *stressSeed))
	s := &stress{t: t, rnd: rnd, sum: sum, streams: 1 + rnd.IntN(24), busy: rnd.IntN(8) == 0}
	arch := stressArchs[rnd.IntN(len(stressArchs))]
	path := stressModel(t, arch)
	eo := engine.Options{Context: 400, ChunkTokens: 32 << rnd.IntN(4), PageTokens: 16 << rnd.IntN(2), Repeat: repeatText, WindowOnly: rnd.IntN(4) == 0, Rotate: engine.Rotation(rnd.IntN(5))}
	if arch == "deepseek2" { // latent keys, which are their values, in a type that each token has alone
		eo.Rotate, eo.KVTypeSet, eo.KType = engine.RotateAuto, true, []kvpage.Elem{kvpage.F32, kvpage.F16, kvpage.BF16}[rnd.IntN(3)]
		eo.VType = eo.KType
	} else if rnd.IntN(3) > 0 {
		types := []kvpage.Elem{kvpage.F32, kvpage.F16, kvpage.BF16, kvpage.I8, kvpage.I8, kvpage.I4, kvpage.I3, kvpage.I2}
		eo.KVTypeSet, eo.KType, eo.VType = true, types[rnd.IntN(len(types))], types[rnd.IntN(len(types))]
		if rnd.IntN(2) == 0 {
			eo.VType = eo.KType
		}
		if eo.KType.KeyGroup() > kvpage.Tile {
			eo.PageTokens = 0
		}
		if quantised := (kvpage.Types{K: eo.KType, V: eo.VType}).Quantised(); quantised && arch == "llama" && rnd.IntN(2) == 0 {
			own, elem := rnd.IntN(4), kvpage.F16
			if eo.KType == kvpage.F32 || eo.VType == kvpage.F32 {
				elem = kvpage.F32
			}
			eo.KVOwn = []kvpage.Own{{First: own, Last: min(own+rnd.IntN(2), 3), Elem: elem}}
		}
		eo.KVWindowSet, eo.KVWindow = true, 32*rnd.IntN(5)
	}
	for i := range 300 {
		eo.Calibration = append(eo.Calibration, 5+i*7%250)
	}
	host, ssd := s.drawTiers(arch, path, eo)
	above := ssd && rnd.IntN(2) == 0 // a level above the one that has all
	each := func() engine.Options {
		o := eo
		if host > 0 {
			o.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: host}}
		}
		if above {
			o.Tiers = append(o.Tiers, tier.Tier{Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 512 << 10})
		}
		if ssd {
			o.Tiers = append(o.Tiers, tier.Tier{Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 16 << 20})
		}
		return o
	}
	o := Options{Batch: 1 + rnd.IntN(9), Queue: 64, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))}
	if s.busy {
		o.Queue = rnd.IntN(4)
	}
	guess := rnd.IntN(4) == 0
	if guess {
		o.Speculate = func() draft.Drafter { return draft.NewNGram() }
	}
	store := rnd.IntN(2) == 0
	s.b = newBenchOn(t, path, func(*tokenizer.Vocab) {}, each, o, func(e *engine.Engine) {
		if store {
			s.keep(e)
		}
	})
	s.wide = sync.OnceValue(func() *engine.Engine {
		e, err := engine.Open(s.b.alone.Model(), eo)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	})
	s.words = grammar.NewVocabulary(s.b.tok.Pieces(nil))
	s.said = fmt.Sprintf("%s, host %d, ssd %v, another above %v, %v and %s with a window of %d, chunks of %d, pages of %d, windows only %t, rotation %v, batch of %d, queue of %d, guesses %t, store %t, %d at a time",
		arch, host, ssd, above, eo.KType, fmt.Sprint(eo.VType, eo.KVOwn), eo.KVWindow, eo.ChunkTokens, eo.PageTokens, eo.WindowOnly, eo.Rotate, o.Batch, o.Queue, guess, store, s.streams)
	return s
}

// keep gives the server's engine a store of prompts.
func (s *stress) keep(e *engine.Engine) {
	specs := []contexts.Spec{{Kind: "host", CapacityBytes: 64 << 10 << s.rnd.IntN(6), Lent: s.rnd.IntN(2) == 0}}
	if s.rnd.IntN(2) == 0 {
		specs = append(specs, contexts.Spec{Kind: "ssd", Place: s.t.TempDir(), CapacityBytes: 8 << 20})
	}
	store, err := contexts.Open(s.t.Context(), specs, contexts.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = store.Close() })
	if _, err := prefixcache.Use(e, store, "small"); err != nil {
		s.t.Fatal(err)
	}
}

// draw is a question, answered alone.
func (s *stress) draw(bases []string) stressQuestion {
	rnd := s.rnd
	q := stressQuestion{policy: "full", tokens: []int{1 + rnd.IntN(40), 100}[rnd.IntN(8)/7], choices: 1, salt: []string{"", "", "other"}[rnd.IntN(3)]}
	if rnd.IntN(3) > 0 {
		names := policy.Names()
		q.policy = stressPolicies[names[rnd.IntN(len(names))]]
		if strings.Contains(q.policy, "%d") {
			q.policy = fmt.Sprintf(q.policy, 20+rnd.IntN(60))
		}
	}
	base := bases[rnd.IntN(len(bases))]
	q.prompt = base[:rnd.IntN(len(base)+1)] + strings.Repeat(fmt.Sprintf("text %d of many; ", rnd.IntN(1000)), 24)[:1+rnd.IntN(300)]
	q.prompt = q.prompt[:min(len(q.prompt), 340)]
	if rnd.IntN(3) == 0 {
		q.o = model.SamplerOptions{Temperature: 0.8, TopK: 40, TopP: 0.95, TopPSet: true, MinP: 0.02, RepeatPenalty: 1.1, PresencePenalty: 0.2, Seed: rnd.Uint64N(1000)}
		q.choices = 1 + rnd.IntN(3)
	}
	switch rnd.IntN(6) {
	case 0:
		q.gbnf = `root ::= ("ab" | "cd" [e-z])* "."`
	case 1:
		q.stops = []string{"e", "\x01"}
	}
	for i := range q.choices {
		answer, read, err := s.alone(s.b.alone, &q, i)
		if crash := (*engine.Crash)(nil); errors.As(err, &crash) {
			s.t.Errorf("%s: %q under %s: %v", s.said, q.prompt, q.policy, err)
		}
		if q.read = read; err != nil {
			q.err = err
		}
		q.want = append(q.want, answer)
	}
	if q.err != nil && short(q.err) { // a text that comes and goes in parts may fit all the same
		for i := range q.want {
			answer, _, err := s.alone(s.wide(), &q, i)
			if err != nil {
				q.err = err // which no memory mends
			}
			q.want[i] = answer
		}
	}
	return q
}

// alone is what an engine says to nobody else, and how many tokens the prompt has.
func (s *stress) alone(e *engine.Engine, q *stressQuestion, choice int) (a stressAnswer, read int, err error) {
	ids, err := s.b.tok.Encode(q.prompt, true, true)
	if err != nil {
		s.t.Fatal(err)
	}
	session, err := e.NewSession(mustPolicy(s.t, q.policy))
	if err != nil {
		return a, len(ids), err
	}
	defer session.Close()
	o := q.o
	o.Seed += uint64(choice)
	r := engine.Request{IDs: ids, MaxTokens: q.tokens, CutToFit: true, Sampler: o, Stops: q.stops, IsEnd: s.b.tok.IsEOG, Text: s.b.tok.NewDetokenizer()}
	if q.gbnf != "" {
		g, err := grammar.GBNF(q.gbnf)
		if err != nil {
			s.t.Fatal(err)
		}
		m, err := grammar.NewMachine(g, s.words)
		if err != nil {
			s.t.Fatal(err)
		}
		r.Constrain = m.Start()
	}
	res, err := session.Generate(s.t.Context(), r)
	if err != nil {
		return a, len(ids), err
	}
	a = stressAnswer{text: res.Text, end: FinishStop, why: res.Stop}
	if res.Finish != "stop" {
		if a.end = FinishLength; len(res.IDs) < q.tokens {
			a.why = string(CutContext)
		}
	}
	return a, len(ids), nil
}

// run asks.
func (s *stress) run() {
	var bases []string
	for i := range 4 {
		bases = append(bases, strings.Repeat(fmt.Sprintf("base %d that texts share, ", i), 12)[:s.rnd.IntN(260)])
	}
	for range stressQuestions {
		s.questions = append(s.questions, s.draw(bases))
	}
	type ask struct {
		q      *stressQuestion
		stream bool
		leaves int // 0 = not, 1 = while it waits for the answer, more = after so many lines of it
		wait   time.Duration
	}
	asks := make(chan ask, stressAsks)
	for range stressAsks {
		a := ask{q: &s.questions[s.rnd.IntN(stressQuestions)], stream: s.rnd.IntN(2) == 0, wait: time.Duration(s.rnd.IntN(8)) * time.Millisecond}
		if s.rnd.IntN(7) == 0 {
			a.leaves = 1 + s.rnd.IntN(5)
		}
		asks <- a
	}
	close(asks)
	var wg sync.WaitGroup
	for range s.streams {
		wg.Go(func() {
			for a := range asks {
				if a.leaves > 0 {
					s.leave(a.q, a.stream, a.leaves, a.wait)
				} else if err := s.ask(a.q, a.stream); err != nil {
					s.t.Errorf("%s: %q under %s, %d tokens, %d choices of %+v, grammar %q, stops %q, alone %v: %v", s.said, a.q.prompt, a.q.policy, a.q.tokens, a.q.choices, a.q.o, a.q.gbnf, a.q.stops, a.q.err, err)
				}
			}
		})
	}
	wg.Wait()
	until(s.t, "nothing runs or waits", s.b.stand(0, 0))
	s.sum.swapped.Add(int64(s.b.m.preemptions.Value()))
	s.sum.cached.Add(int64(valueIn(s.t, s.b, "terrace_prompt_tokens_cached_total")))
	for line := range strings.Lines(metricsOf(s.t, s.b)) {
		if strings.HasPrefix(line, "terrace_requests_total{") && strings.Contains(line, `code="5`) {
			s.t.Errorf("%s: %s", s.said, line)
		}
	}
}

// body is a question as JSON.
func (q *stressQuestion) body(stream bool) string {
	fields := map[string]any{"prompt": q.prompt, "max_tokens": q.tokens, "kv_policy": q.policy, "stream": stream, "temperature": q.o.Temperature, "cache_salt": q.salt, "n": q.choices}
	if stream {
		fields["stream_options"] = map[string]bool{"include_usage": true}
	}
	if q.o.Temperature > 0 {
		fields["top_k"], fields["top_p"], fields["min_p"], fields["repeat_penalty"], fields["presence_penalty"], fields["seed"] = q.o.TopK, q.o.TopP, q.o.MinP, q.o.RepeatPenalty, q.o.PresencePenalty, q.o.Seed
	}
	if q.gbnf != "" {
		fields["grammar"] = q.gbnf
	}
	if q.stops != nil {
		fields["stop"] = q.stops
	}
	text, _ := json.Marshal(fields)
	return string(text)
}

// post sends a question.
func (s *stress) post(ctx context.Context, q *stressQuestion, stream bool) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.b.http.URL+"/v1/completions", strings.NewReader(q.body(stream)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(r)
}

// leave asks and goes away.
func (s *stress) leave(q *stressQuestion, stream bool, lines int, wait time.Duration) {
	s.sum.left.Add(1)
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	if lines == 1 {
		defer time.AfterFunc(wait, cancel).Stop()
	}
	r, err := s.post(ctx, q, stream)
	if err != nil {
		return
	}
	defer r.Body.Close()
	if r.StatusCode >= 500 {
		s.t.Errorf("%s: %s under %s: %s", s.said, q.prompt, q.policy, r.Status)
	}
	for b := make([]byte, 64); lines > 1 && err == nil; lines-- {
		_, err = r.Body.Read(b)
	}
}

// ask checks an answer.
func (s *stress) ask(q *stressQuestion, stream bool) error {
	r, err := s.post(s.t.Context(), q, stream)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	out, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return s.refused(q, r.StatusCode, out)
	}
	answers, usage := make([]stressAnswer, q.choices), (*openAIUsage)(nil)
	frames := [][]byte{out}
	if stream {
		frames = bytes.Split(bytes.TrimSuffix([]byte(withoutComments(string(out))), []byte("data: [DONE]\n\n")), []byte("\n\n"))
	}
	for _, f := range frames {
		if f = bytes.TrimPrefix(f, []byte("data: ")); len(f) == 0 {
			continue
		}
		if bytes.HasPrefix(f, []byte(`{"error"`)) { // after the stream began
			return s.refused(q, http.StatusBadRequest, f)
		}
		var c completion
		if err := json.Unmarshal(f, &c); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		for _, x := range c.Choices {
			a := &answers[x.Index]
			if a.text += x.Text; x.FinishReason != nil {
				a.end, a.why = *x.FinishReason, x.StopReason
			}
		}
		if c.Usage != nil {
			usage = c.Usage
		}
	}
	switch {
	case usage == nil || usage.PromptTokens != q.read:
		return fmt.Errorf("usage %+v, want %d prompt tokens", usage, q.read)
	case q.err != nil && !short(q.err):
		return errors.New("answered, and alone refused")
	}
	cut := false
	for i, a := range answers {
		switch want := q.want[i]; {
		case a == want:
		case q.err != nil && a.end == FinishLength && a.why == string(CutMemory) && strings.HasPrefix(want.text, strings.TrimRight(a.text, "\ufffd")):
			cut = true
		default:
			return fmt.Errorf("%+v, want %+v: %s", a, want, out)
		}
	}
	if cut {
		s.sum.cut.Add(1)
	} else {
		s.sum.answered.Add(1)
	}
	return nil
}

// refused checks a refusal: of what is refused alone too, or of a full queue, with one line that says so.
func (s *stress) refused(q *stressQuestion, status int, out []byte) error {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	message := ""
	if json.Unmarshal(out, &e) == nil {
		message = e.Error.Message
	}
	full := status == http.StatusTooManyRequests && s.busy
	// A server may refuse what could have no room, and here was shorter.
	long := strings.Contains(message, "to generate need more room") && s.b.alone.KVTokens(q.read+q.tokens-1) > valueOf(message, "than the %d tokens")
	if named := message != "" && !strings.Contains(message, "\n") && !strings.Contains(message, "bug") && !strings.Contains(message, "internal"); !named || !full && !long && (status != http.StatusBadRequest || q.err == nil) {
		return fmt.Errorf("%d %s", status, out)
	}
	s.sum.refuse(message)
	return nil
}
