package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"terrace/csdshim"
	"terrace/internal/cacheshape"
	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/offload"
	"terrace/policy"
	"terrace/retrieval"
)

// pipe is decoding without a model, on the product's own code: policy, retrieval, kvmanager with its token cache, offload's queue and
// csdshim's drive decide, score, hold, move and fetch real (synthetic) keys and values, on one clock of events that queue, drive and
// the layers' compute share. What computes is behind computer: times, no numbers.
//
// It is a model in miniature. A token's keys and values in a layer are a scale-th of the real ones, and so is every rate; latencies,
// tokens, selections and what overlaps what are as they are. A text stands for batch/texts sequences. Few layers are run; the
// last ones, which are alike, stand for those that are not.
type pipe struct {
	policy  string
	tokens  int // of the prompt
	texts   int
	scale   float64 // real bytes of a token in a layer, of all sequences that a text stands for, over those of the miniature
	host    float64 // share of the KV cache that host memory may hold
	hosts   offload.HostRates
	profile csdshim.Profile
	compute computer
	trace   scores
}

// computer is what computes: a layer's time and what host and links take, in seconds of real bytes.
type computer interface {
	score(kv float64) float64   // the host scores keys of that much KV
	deliver(kv float64) float64 // from host memory to where attention runs
	layer(kv float64) float64   // one layer of a step for all sequences, which attends to that much KV
}

// pipeRun is what a run gave.
type pipeRun struct {
	step      float64 // seconds, of all layers of the real model
	early     float64 // likewise, right behind the prompt
	hot       float64 // share of the tokens that the host holds and scores
	share     float64 // of them that the policy's balance wants hot, whether or not they fit
	read      float64 // bytes of chosen keys and values a step, of all layers
	crossed   float64 // of them, and of tokens that changed place, what came from the drive
	questions float64 // to the drive, a step
}

const (
	pipeLayers = 5
	pipeDim    = 128 // numbers of a key in the miniature: one KV head
	pipeToken  = 4 * pipeDim
	pipeChunks = 8
	pipeSteps  = 48 // of which the last are timed
	pipeTimed  = 24
	pipeEarly  = 12 // steps behind the prompt, in which tokens change places most
)

// pipeState is a run under way.
type pipeState struct {
	*pipe
	clock  *clock.Events
	shared *retrieval.Shared
	drive  *csdshim.Drive
	live   []*retrieval.Sequence
	gpu    time.Duration             // when it is done
	cpu    time.Duration             // when the host has scored
	link   time.Duration             // when host memory has delivered
	scored int64                     // tokens, counted so far
	read   float64                   // bytes delivered
	layers [pipeLayers]time.Duration // time spent in each
}

func (d *pipe) run(layers int) (out pipeRun, err error) {
	spec, err := policy.Parse(d.policy)
	if err != nil {
		return out, err
	}
	s := &pipeState{pipe: d, clock: clock.NewEvents()}
	page := kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: pipeDim, ValueDim: pipeDim, Tokens: csdshim.GroupTokens, TokenMajor: spec.Needs().TokenGranularity}
	shape := cacheshape.Equal(pipeLayers, 1, cacheshape.KV{Heads: 1, KeyDim: pipeDim, ValueDim: pipeDim})
	record := offload.Shape{Layers: shape, Page: page, GroupTokens: csdshim.GroupTokens}
	all := int64((d.tokens + pipeSteps + csdshim.GroupTokens) * d.texts * pipeLayers * pipeToken)
	store, err := newLocalDrive(d.profile, record, csdshim.CodesInt8, all*3/2, s.clock)
	if err != nil {
		return out, err
	}
	s.drive = store.drive
	queue := offload.NewQueue(store, offload.QueueOptions{Clock: s.clock, DepthBytes: math.MaxInt64, MaxWaiting: 1 << 24})
	budget := d.budget(all)
	kv, err := kvmanager.New(kvmanager.Options{Layers: shape, Layout: page, BudgetBytes: budget, Backing: queue, Clock: s.clock})
	if err != nil {
		return out, err
	}
	model := policy.Model{Name: "miniature", Layers: shape, Hidden: pipeDim, Context: 1 << 20, KVBytes: pipeLayers * pipeToken}
	s.shared = retrieval.NewShared(retrieval.Options{Shape: retrieval.Shape{Model: model, RowWidth: pipeDim, Scores: slices.Repeat([]retrieval.Score{{Scale: 1}}, pipeLayers), Rope: func(int, bool) retrieval.Rope { return still{} }}, KV: kv, Store: store, Record: record,
		BudgetBytes: budget, ChunkTokens: d.chunk(), Threads: 1, Host: d.hosts, Clock: s.clock})
	out, err = s.decode(spec, layers)
	for _, t := range s.live {
		err = errors.Join(err, t.Free())
	}
	_ = s.clock.Sleep(context.Background(), time.Hour) // until nothing is under way
	return out, errors.Join(err, kv.Close(), queue.Close(), store.Close())
}

// budget is the host memory that leaves the wanted share of the tokens hot beside what reading a prompt takes: two layers whole, the
// low-bit keys, a step's selection.
func (d *pipe) budget(all int64) int64 {
	layer := float64(d.tokens * pipeToken)
	hot := d.host * float64(all) * (1 + 0.25 + 0.02)
	return int64(hot + 3*layer + 4*float64(d.texts)*layer/4 + 1<<20)
}

// still rotates nothing.
type still struct{}

func (still) Rotate([]float32, int)   {}
func (still) Unrotate([]float32, int) {}

// decode reads the prompts and takes the steps.
func (s *pipeState) decode(spec *policy.Spec, layers int) (out pipeRun, err error) {
	for range s.texts {
		t, err := s.shared.NewSequence(retrieval.SequenceOptions{Policy: spec})
		if err != nil {
			return out, err
		}
		s.live = append(s.live, t)
	}
	for _, t := range s.live {
		if err := s.prompt(t); err != nil {
			return out, err
		}
	}
	_ = s.clock.Sleep(context.Background(), time.Hour) // the prompts are stored
	s.gpu, s.cpu, s.link = 0, 0, 0
	s.layers = [pipeLayers]time.Duration{}
	before, gathered := s.shared.Accounts().Scores(), s.drive.Stats().TokensGathered
	for step := range pipeSteps {
		if step == pipeEarly {
			out.early = s.spent(layers) / pipeEarly
		}
		if step == pipeSteps-pipeTimed {
			s.layers, s.read, before, gathered = [pipeLayers]time.Duration{}, 0, s.shared.Accounts().Scores(), s.drive.Stats().TokensGathered
		}
		if err := s.pass(retrieval.Step, 1, s.live...); err != nil {
			return out, err
		}
	}
	use := s.shared.Accounts().Scores()
	if u := s.shared.Accounts().Balance(); u != nil {
		out.share = u.Share
	}
	out.step = s.spent(layers) / pipeTimed
	real := float64(layers) / pipeLayers / pipeTimed // layers and one step of all that was counted
	out.read = s.read * real
	out.crossed = float64(s.drive.Stats().TokensGathered-gathered) * pipeToken * s.scale * real
	out.questions = float64(use.Questions-before.Questions) * real
	if total := use.HostTokens + use.DriveTokens - before.HostTokens - before.DriveTokens; total > 0 {
		out.hot = float64(use.HostTokens-before.HostTokens) / float64(total)
	}
	return out, nil
}

// spent is what the layers took so far, of all the real model's.
func (s *pipeState) spent(layers int) float64 {
	all := time.Duration(0)
	for _, d := range s.layers {
		all += d
	}
	alike := s.layers[2 : pipeLayers-1] // those that have two layers before them and one behind
	between := (alike[0] + alike[1]).Seconds() / 2
	return all.Seconds() + between*float64(layers-pipeLayers)
}

// prompt reads a text's, in chunks: what the drive caches of a layer's keys is what came first.
func (s *pipeState) prompt(t *retrieval.Sequence) error {
	for left := s.tokens; left > 0; {
		n, reading := min(left, s.chunk()), retrieval.Chunk
		if n == left {
			reading = retrieval.LastChunk
		}
		if err := s.pass(reading, n, t); err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// chunk is how many tokens of a prompt go through the layers together.
func (d *pipe) chunk() int { return max(64, (d.tokens/pipeChunks+15)/16*16) }

// pass takes rows through the layers, in the order that package retrieval gives.
func (s *pipeState) pass(reading retrieval.Reading, n int, texts ...*retrieval.Sequence) error {
	var p retrieval.Pass
	p.Open(s.shared)
	for _, t := range texts {
		pos := make([]int32, n)
		for i := range pos {
			pos[i] = t.Read() + int32(i)
		}
		length := int(t.Read()) + n
		if reading.Prompt() {
			length = s.tokens
		}
		p.Rows = append(p.Rows, retrieval.Rows{Sequence: t, Reading: reading, New: n, Pos: pos, Len: length})
	}
	err := s.shared.Begin(&p)
	for layer := 0; err == nil && layer < pipeLayers; layer++ {
		err = s.layer(&p, layer, reading == retrieval.Step)
	}
	if err == nil {
		err = p.Join()
	}
	if err == nil {
		p.End()
		for i := range p.Rows {
			err = errors.Join(err, p.Rows[i].Err)
		}
	}
	p.Undo(err != nil)
	return err
}

func (s *pipeState) layer(p *retrieval.Pass, layer int, step bool) error {
	s.until(s.gpu) // the layer before is computed, and with it this one's query, key and value
	began := s.clock.Now()
	k, v, q := s.rows(p, layer, s.trace.key), s.rows(p, layer, s.trace.value), s.rows(p, layer, s.trace.query)
	if err := p.Append(layer, k, v); err != nil {
		return err
	}
	p.Observe(layer, q)
	p.Select(layer, q)
	s.scores(step)
	own := s.cpu
	guess := func(layer int) ([]float32, error) { return s.rows(p, layer, s.trace.guess), nil }
	if err := p.Prepare(layer+1, guess); err != nil {
		return err
	}
	s.scores(step)
	s.until(own)
	seqs := p.Fetch(layer)
	bytes := 0.0
	for i := range p.Rows {
		if err := p.Rows[i].Err; err != nil {
			return fmt.Errorf("layer %d: %w", layer, err)
		}
		for g := range seqs[i].Views {
			for _, page := range seqs[i].Views[g].Pages {
				bytes += float64(page.N) * pipeToken * s.scale
			}
		}
	}
	if step {
		s.link = max(s.clock.Now(), s.link) + modelled(s.compute.deliver(bytes)) // while the host goes on
		s.gpu = max(s.gpu, s.link) + modelled(s.compute.layer(bytes))
		s.read += bytes
	}
	p.Attended(layer, make([]float32, len(q)))
	s.until(s.cpu) // the next layer's scores of the host are there
	p.Overlap(layer + 1)
	s.layers[layer] += max(s.clock.Now(), s.gpu) - began
	return nil
}

// scores charges what the host has scored since the last call to its cores.
func (s *pipeState) scores(step bool) {
	n := s.shared.Accounts().Scores().HostTokens
	if step {
		s.cpu = max(s.clock.Now(), s.cpu) + modelled(s.compute.score(float64(n-s.scored)*pipeToken*s.scale))
	}
	s.scored = n
}

func (s *pipeState) until(at time.Duration) {
	_ = s.clock.Sleep(context.Background(), at-s.clock.Now())
}

// modelled is seconds as the clock counts them.
func modelled(s float64) time.Duration { return time.Duration(math.Round(min(s, 1e8) * 1e9)) }

// rows are the vectors of all rows of a pass.
func (s *pipeState) rows(p *retrieval.Pass, layer int, of func(dst []float32, text, layer, pos int)) []float32 {
	n := 0
	for i := range p.Rows {
		n += len(p.Rows[i].Pos)
	}
	all, at := make([]float32, n*pipeDim), 0
	for i := range p.Rows {
		for _, pos := range p.Rows[i].Pos {
			of(all[at:at+pipeDim], i, layer, int(pos))
			at += pipeDim
		}
	}
	return all
}
