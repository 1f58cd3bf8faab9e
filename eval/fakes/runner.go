// Package fakes is a deterministic Runner without a model, for the tests of suites, runs and work sharing.
//
// It owns a byte-level vocabulary of 256 tokens, logits that are a hash of the tokens visible under a policy (the last
// 64, or 8 under "few"), and a clock that advances by a fixed step a call. It never reads weights. Results are the same
// on every machine. Not safe for concurrent use.
package fakes

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"time"

	"terrace/engine/stops"
	"terrace/eval"
)

// Vocab is the number of tokens: one a byte.
const Vocab = 256

// Runner is a fake eval.Runner; the zero value works.
type Runner struct {
	// Answer, if set, is what Generate says after a prompt; otherwise text follows from the hash.
	Answer func(prompt, policy string) string
	// Fail, if set, makes the prompts it returns an error for fail.
	Fail func(prompt, policy string) error
	// Delay is slept at each prompt (real time), for tests that kill processes.
	Delay    time.Duration
	Context  int // 0 = no limit
	NoChat   bool
	now      time.Duration
	Prefills int // prompts read
}

func (r *Runner) Model() eval.Model {
	return eval.Model{Name: "fake", Fingerprint: "fake-1", Vocab: Vocab, Context: r.Context, HasChat: !r.NoChat}
}

func (r *Runner) Encode(text string) ([]int, error) { return r.EncodePlain(text) }

func (r *Runner) EncodePlain(text string) ([]int, error) {
	ids := make([]int, len(text))
	for i := range ids {
		ids[i] = int(text[i])
	}
	return ids, nil
}

func (r *Runner) EncodeChat(text string) ([]int, error) {
	return r.EncodePlain("<user>" + text + "<assistant>")
}

func (r *Runner) Decode(ids []int) string {
	b := make([]byte, len(ids))
	for i, id := range ids {
		b[i] = byte(id)
	}
	return string(b)
}

func (r *Runner) BOS() (int, bool) { return 0, false }

func (r *Runner) Now() time.Time {
	r.now += time.Millisecond
	return time.Unix(1, 0).Add(r.now)
}

func (r *Runner) Prompt(ctx context.Context, ids []int, policies []string, use func(int, eval.Session, error) error) error {
	if r.Delay > 0 {
		time.Sleep(r.Delay)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.Prefills++
	r.now = 0
	if r.Context > 0 && len(ids) > r.Context {
		return fmt.Errorf("fakes: %d tokens, the context holds %d: %w", len(ids), r.Context, eval.ErrTooLong)
	}
	for i, p := range policies {
		if r.Fail != nil {
			if err := r.Fail(r.Decode(ids), p); err != nil {
				if err := use(i, nil, err); err != nil {
					return err
				}
				continue
			}
		}
		if err := use(i, &session{r: r, ids: ids, policy: p, shared: !strings.HasPrefix(p, "alone")}, nil); err != nil {
			return err
		}
	}
	return nil
}

type session struct {
	r      *Runner
	ids    []int
	policy string
	shared bool
}

func (s *session) window() int {
	if strings.HasPrefix(s.policy, "few") {
		return 8
	}
	return 64
}

func (s *session) Logits() []float32 {
	h := fnv.New64a()
	for _, id := range s.ids[max(0, len(s.ids)-s.window()):] {
		h.Write([]byte{byte(id)})
	}
	x := h.Sum64()
	out := make([]float32, Vocab)
	for i := range out {
		x = x*6364136223846793005 + 1442695040888963407
		out[i] = float32(x>>40) / (1 << 22)
	}
	return out
}

func (s *session) Generate(ctx context.Context, o eval.Generate) (*eval.Generation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g := &eval.Generation{First: 2 * time.Millisecond, Finish: "length"}
	if s.r.Answer != nil {
		ids, _ := s.r.EncodePlain(s.r.Answer(s.r.Decode(s.ids), s.policy))
		g.IDs, g.Finish = ids, "stop"
		if len(ids) > o.MaxTokens {
			g.IDs, g.Finish = ids[:o.MaxTokens], "length"
		}
	} else {
		ids := s.ids
		for range min(o.MaxTokens, 12) {
			id := 97 + argmax(s.Logits())%26
			s.ids = append(s.ids[:len(s.ids):len(s.ids)], id)
			g.IDs = append(g.IDs, id)
		}
		s.ids = ids
	}
	s.cut(g, o.Stops)
	for i := range max(0, len(g.IDs)-1) {
		g.Gaps = append(g.Gaps, time.Duration(1+i%3)*time.Millisecond)
	}
	return g, nil
}

// cut ends the answer with the token that completes a stop text, as engines do.
func (s *session) cut(g *eval.Generation, texts []string) {
	scan := stops.Scanner{Stops: texts}
	for i, id := range g.IDs {
		show, met := scan.Push(s.r.Decode([]int{id}))
		g.Text += show
		if met {
			g.IDs, g.Finish = g.IDs[:i+1], "stop"
			return
		}
	}
	g.Text += scan.Flush()
}

func argmax(x []float32) int {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}

func (s *session) Force(ctx context.Context, ids []int, each func(int, []float32) error) error {
	for i, id := range ids {
		s.ids = append(s.ids[:len(s.ids):len(s.ids)], id)
		if err := each(i, s.Logits()); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (s *session) Continue(ctx context.Context, ids []int) ([]eval.TokenScore, error) {
	saved := s.ids
	defer func() { s.ids = saved }()
	var out []eval.TokenScore
	for _, id := range ids {
		l := s.Logits()
		var sum float64
		for _, v := range l {
			sum += math.Exp(float64(v))
		}
		out = append(out, eval.TokenScore{LogProb: float64(l[id]) - math.Log(sum), Greedy: argmax(l) == id})
		s.ids = append(s.ids[:len(s.ids):len(s.ids)], id)
	}
	return out, ctx.Err()
}

func (s *session) Cost() eval.Cost {
	kept := min(len(s.ids), s.window())
	return eval.Cost{Prefill: time.Duration(len(s.ids)) * time.Microsecond, Shared: s.shared,
		KVBytes: map[string]int64{"host": int64(64 * len(s.ids))}, KVHeld: map[string]int64{"host": int64(64 * kept)}, Kept: float64(kept),
		StepKV: float64(64 * kept), StepScanned: float64(len(s.ids))}
}
