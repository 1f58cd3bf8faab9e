package simulate

import (
	"context"
	"time"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/clock"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/offload"
)

// Host is a hardware file of one machine: what it does in a second, measured, from which steps on its tiers are predicted
// (PaceHost). Times are seconds.
type Host struct {
	Cores   int                   `json:"cores"`
	Rates   offload.HostRates     `json:"host"`
	Storage *offload.StorageRates `json:"storage,omitempty"` // nil = no SSD tier
	Device  *Device               `json:"device,omitempty"`  // nil = as Storage and Rates say
	Drive   *Drive                `json:"drive,omitempty"`   // nil = no csd tier
	Compute Compute               `json:"compute,omitzero"`
}

// Compute is what one decode step takes of a core, by the calls of the backend, for a model, a policy and a batch: while all KV is in host
// memory, or beside a tier's traffic (Learn).
type Compute struct {
	Policy  string  `json:"policy"`
	Batch   int     `json:"batch"`
	Embed   float64 `json:"embed_s"`   // a call
	Project float64 `json:"project_s"` // a call
	Finish  float64 `json:"finish_s"`
	Logits  float64 `json:"logits_s"`
	Guess   float64 `json:"guess_s"`
	Attend  float64 `json:"attend_s"` // for each token and KV head that is read
	Layer   float64 `json:"layer_s"`  // of a layer, outside of these calls and of Scan
	Prompt  float64 `json:"prompt_s"` // of reading a prompt, a row and layer, attention and all
	Scan    float64 `json:"scan_s"`   // for each byte of keys and values whose keys are scored and chosen from
	Ask     float64 `json:"ask_s"`    // for each record or single token that the tier below is asked for: planning it, and putting it where it is read
	Take    float64 `json:"take_s"`   // for each operation of a device that is taken, beside its checksums
}

// Balanced is what a policy that balances this host with a drive is told: keys scored as fast as Compute has it, all else as measured.
func (h *Host) Balanced() offload.HostRates {
	r := h.Rates
	if h.Compute.Scan <= 0 { // learnt with the rest of a layer
		return r
	}
	r.Scan, r.ByShape, r.Threads = map[string]float64{}, nil, max(r.Threads, 1)
	for _, e := range []kvpage.Elem{kvpage.F16, kvpage.I8, kvpage.I4} {
		r.Scan[e.String()] = 1 / h.Compute.Scan
	}
	return r
}

// Timed measures a backend's calls in decode steps.
type Timed struct {
	model.Backend
	clock  clock.Clock
	spent  Compute // seconds of all calls
	calls  [5]int  // embed, project, finish, logits, guess
	tokens int     // attended to, a token and KV head

	prompt float64 // seconds of calls for prompts; Reset leaves it
	rows   int     // of prompts, in all layers

	heard func(kind string, n int, from, to time.Duration) // is told of each call of a decode step; nil = nobody
}

// NewTimed measures a backend by a clock; nil = clock.Real.
func NewTimed(b model.Backend, c clock.Clock) *Timed { return &Timed{Backend: b, clock: clock.Or(c)} }

// Spent is what the calls of all decode steps took together, in seconds each.
func (b *Timed) Spent() Compute { return b.spent }

// Reset forgets what was measured.
func (b *Timed) Reset() { b.spent, b.calls, b.tokens = Compute{}, [5]int{}, 0 }

// Compute is what a call took on average, Layer and Scan left open; all is what the calls of a step took together.
func (b *Timed) Compute() (c Compute, all float64) {
	each := func(sum float64, calls int) float64 { return sum / float64(max(calls, 1)) }
	s := b.spent
	c = Compute{Embed: each(s.Embed, b.calls[0]), Project: each(s.Project, b.calls[1]), Finish: each(s.Finish, b.calls[2]), Logits: each(s.Logits, b.calls[3]),
		Guess: each(s.Guess, b.calls[4]), Attend: each(s.Attend, b.tokens), Prompt: each(b.prompt, b.rows)}
	return c, each(s.Embed+s.Project+s.Finish+s.Logits+s.Guess+s.Attend, b.calls[3])
}

// note books what a call of a decode step has taken.
func (b *Timed) note(p *model.Pass, kind string, n int, sum *float64, calls *int, begun time.Duration) {
	now := b.clock.Now()
	if p.Phase == kernels.Decode {
		*sum += (now - begun).Seconds()
		*calls++
		if b.heard != nil {
			b.heard(kind, n, begun, now)
		}
		return
	}
	b.prompt += (now - begun).Seconds()
	if sum == &b.spent.Project {
		b.rows += len(p.Pos)
	}
}

// Pool lends the backend's threads.
func (b *Timed) Pool() *kernels.Pool { return poolOf(b.Backend) }

// Embed implements model.Backend.
func (b *Timed) Embed(p *model.Pass, ids []int32) (*tensor.Dense, error) {
	defer b.note(p, "embed", len(p.Pos), &b.spent.Embed, &b.calls[0], b.clock.Now())
	return b.Backend.Embed(p, ids)
}

// Project implements model.Backend.
func (b *Timed) Project(p *model.Pass, layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error) {
	defer b.note(p, "project", len(p.Pos), &b.spent.Project, &b.calls[1], b.clock.Now())
	return b.Backend.Project(p, layer, hidden)
}

// Attend implements model.Backend.
func (b *Timed) Attend(p *model.Pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	calls, tokens := 0, 0
	if p.Phase == kernels.Decode {
		tokens = attended(seqs)
		b.tokens += tokens
	}
	defer b.note(p, "attend", tokens, &b.spent.Attend, &calls, b.clock.Now())
	return b.Backend.Attend(p, layer, q, seqs)
}

// Finish implements model.Backend.
func (b *Timed) Finish(p *model.Pass, layer int, hidden, att *tensor.Dense) (*tensor.Dense, error) {
	defer b.note(p, "finish", len(p.Pos), &b.spent.Finish, &b.calls[2], b.clock.Now())
	return b.Backend.Finish(p, layer, hidden, att)
}

// Logits implements model.Backend.
func (b *Timed) Logits(p *model.Pass, hidden *tensor.Dense) (*tensor.Dense, error) {
	defer b.note(p, "logits", len(p.Pos), &b.spent.Logits, &b.calls[3], b.clock.Now())
	return b.Backend.Logits(p, hidden)
}

// GuessQuery implements model.QueryGuesser.
func (b *Timed) GuessQuery(p *model.Pass, layer int, hidden *tensor.Dense) (*tensor.Dense, error) {
	defer b.note(p, "guess", len(p.Pos), &b.spent.Guess, &b.calls[4], b.clock.Now())
	return guessQuery(b.Backend, p, layer, hidden)
}

// attended is what is read of sequences, a token and KV head.
func attended(seqs []attention.Seq) (n int) {
	for i := range seqs {
		for g := range seqs[i].Views {
			if sel := seqs[i].Select; g < len(sel) && sel[g] != nil {
				n += len(sel[g])
			} else {
				n += seqs[i].Views[g].Tokens()
			}
		}
	}
	return n
}

func poolOf(b model.Backend) *kernels.Pool {
	if lender, ok := b.(model.PoolLender); ok {
		return lender.Pool()
	}
	return nil
}

func guessQuery(b model.Backend, p *model.Pass, layer int, hidden *tensor.Dense) (*tensor.Dense, error) {
	if g, ok := b.(model.QueryGuesser); ok {
		return g.GuessQuery(p, layer, hidden)
	}
	return nil, model.ErrUnsupported
}

// cores are a host's, on a clock of events: who has work takes the one that is free first.
type cores struct {
	clock *clock.Events
	free  []time.Duration
}

// work returns when a core has done something that takes some seconds.
func (c *cores) work(seconds float64) {
	first := 0
	for i, at := range c.free {
		if at < c.free[first] {
			first = i
		}
	}
	end := max(c.clock.Now(), c.free[first]) + modelled(seconds)
	c.free[first] = end
	_ = c.clock.Sleep(context.Background(), end-c.clock.Now())
}

// Paced is a host on a clock of events: an engine that is opened on it (engine.Options.Machine) computes real numbers, so that its policy
// chooses what it would, and takes the time that the host's rates give.
type Paced struct {
	Clock *clock.Events
	Disk  *Disk
	host  Host
	cores cores
	drive time.Duration // when a drive's process will have done what it was asked
}

// PaceHost returns the host's clock, with its costs, and its disk. The caller is the clock's first task.
func PaceHost(h Host) *Paced {
	p := &Paced{Clock: clock.NewEvents(), host: h}
	p.cores = cores{p.Clock, make([]time.Duration, max(h.Cores, 1))}
	p.Clock.Cost = p.cost
	if h.Storage != nil {
		p.Disk = newDisk(h, &p.cores)
	}
	return p
}

// cost is what work of the code under test takes.
func (p *Paced) cost(w clock.Work, n int64) {
	switch w {
	case clock.Scan:
		p.cores.work(float64(n) * p.host.Compute.Scan)
	case clock.Gather:
		p.cores.work(float64(n) / p.host.Rates.Copy)
	case clock.Ask:
		p.cores.work(float64(n) * p.host.Compute.Ask)
	case clock.Take:
		if p.Disk != nil {
			p.cores.work(p.Disk.d.Take + p.Disk.d.TakeByte*float64(n))
		}
	}
}

// Settle lets what is under way end.
func (p *Paced) Settle() { _ = p.Clock.Sleep(context.Background(), time.Hour) }

// Wrap makes a backend take the host's time.
func (p *Paced) Wrap(b model.Backend) model.Backend { return paced{b, p} }

type paced struct {
	model.Backend
	p *Paced
}

func (b paced) take(p *model.Pass, seconds float64) {
	if p.Phase == kernels.Decode {
		b.p.cores.work(seconds)
	}
}

// prompt takes a layer's time of a prompt's rows.
func (b paced) prompt(p *model.Pass) {
	if p.Phase != kernels.Decode {
		b.p.cores.work(b.p.host.Compute.Prompt * float64(len(p.Pos)))
	}
}

// Pool lends the backend's threads.
func (b paced) Pool() *kernels.Pool { return poolOf(b.Backend) }

// Embed implements model.Backend.
func (b paced) Embed(p *model.Pass, ids []int32) (*tensor.Dense, error) {
	b.take(p, b.p.host.Compute.Embed)
	return b.Backend.Embed(p, ids)
}

// Project implements model.Backend.
func (b paced) Project(p *model.Pass, layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error) {
	b.take(p, b.p.host.Compute.Project+b.p.host.Compute.Layer)
	return b.Backend.Project(p, layer, hidden)
}

// Attend implements model.Backend.
func (b paced) Attend(p *model.Pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	b.take(p, b.p.host.Compute.Attend*float64(attended(seqs)))
	return b.Backend.Attend(p, layer, q, seqs)
}

// Finish implements model.Backend.
func (b paced) Finish(p *model.Pass, layer int, hidden, att *tensor.Dense) (*tensor.Dense, error) {
	b.take(p, b.p.host.Compute.Finish)
	b.prompt(p)
	return b.Backend.Finish(p, layer, hidden, att)
}

// Logits implements model.Backend.
func (b paced) Logits(p *model.Pass, hidden *tensor.Dense) (*tensor.Dense, error) {
	b.take(p, b.p.host.Compute.Logits)
	return b.Backend.Logits(p, hidden)
}

// GuessQuery implements model.QueryGuesser.
func (b paced) GuessQuery(p *model.Pass, layer int, hidden *tensor.Dense) (*tensor.Dense, error) {
	b.take(p, b.p.host.Compute.Guess)
	return guessQuery(b.Backend, p, layer, hidden)
}
