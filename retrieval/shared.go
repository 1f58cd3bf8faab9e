package retrieval

import (
	"errors"
	"fmt"

	"terrace/attention"
	"terrace/csdshim"
	"terrace/internal/cacheshape"
	"terrace/internal/clock"
	"terrace/internal/kernels"
	"terrace/internal/trace"
	"terrace/kvmanager"
	"terrace/offload"
	"terrace/policy"
)

// Rope rotates one head's vector as a layer's position embedding does, and back.
type Rope = policy.Rope

// Shape is the part of a model that retrieval works with.
type Shape struct {
	policy.Model
	RowWidth int                                // numbers of a row between layers
	Scores   []Score                            // of each layer
	Rope     func(layer int, long bool) Rope    // of texts up to the length where a model changes its frequencies, or of longer ones; asked once each
	Output   func(layer int) ([]float32, error) // the projection of a layer's output from values as stored [Hidden, Heads·ValueDim]; nil = not known
	Turned   bool                               // values are stored turned (kernels.RotateBlock); policies see them as they were
}

// Score is how a layer's attention makes scores of q·k.
type Score struct {
	Scale   float32   // of q·k before softmax
	Softcap float32   // scores become Softcap·tanh(score/Softcap); 0 = none
	Sinks   []float32 // [Heads] scores of sinks without value; nil = none
}

// kv is the keys and values that a layer reads.
func (s *Shape) kv(layer int) cacheshape.KV { return s.Layers.KV(layer) }

// owner is the layer whose keys and values a layer reads.
func (s *Shape) owner(layer int) int { return s.Layers.Owner(layer) }

// queryWidth is the numbers of a row's queries in a layer.
func (s *Shape) queryWidth(layer int) int { return s.Layers[layer].Heads * s.kv(layer).KeyDim }

// outWidth is the numbers of a row's attention in a layer.
func (s *Shape) outWidth(layer int) int { return s.Layers[layer].Heads * s.kv(layer).ValueDim }

// Options of what texts share.
type Options struct {
	Shape       Shape
	KV          *kvmanager.Manager
	Store       offload.Store     // backing store below host memory; nil = everything stays in host memory
	Record      offload.Shape     // of the backing store's records
	Drives      offload.Attender  // hold and attend to texts whose policy they compute, beside no store; nil = none
	Exact       bool              // drives attend in the Exact class
	BudgetBytes int64             // of KV in host memory; 0 = none
	Sequences   int               // that are expected to share it; 0 = 1
	WindowOnly  bool              // texts without a policy keep of layers with a sliding window only what later rows read
	ChunkTokens int               // prompt rows that a pass takes at most
	Threads     int               // that compute
	Pool        *kernels.Pool     // threads to score with between a backend's calls; nil = the caller alone
	Host        offload.HostRates // this host's throughputs as measured; zero = not measured
	Trace       *trace.Recorder
	Clock       clock.Clock // what talks to a drive beside the caller waits on; nil = clock.Real

	// Scored hears the scores that a TokenScoring policy ranks a layer's cached tokens by, where the host makes all of them; nil = nobody
	// listens. Texts that are ranked together call it at once.
	Scored func(layer int, scores []float32)
}

// Shared is what the texts of one engine share: the cache, the backing store, the threads, and the accounts.
type Shared struct {
	o     Options
	drive offload.Scorer // the store, where it scores keys; nil = the host scores
	ropes [2][]Rope      // of short texts and long ones, by layer

	accounts Accounts
	charged  int64 // host memory of the store that is counted
	rows     int64 // of a prompt's rows between two layers, counted too
	caches   int   // token caches open
	overlap  overlap
	asking   []asking // questions of a pass that are ready
	growths  []kvmanager.Growth
}

// NewShared returns what an engine's texts share; whoever made cache and store closes them.
func NewShared(o Options) *Shared {
	f := &Shared{o: o, ropes: [2][]Rope{make([]Rope, len(o.Shape.Layers)), make([]Rope, len(o.Shape.Layers))}, accounts: Accounts{spent: policyTimes{}}}
	f.drive, _ = o.Store.(offload.Scorer)
	return f
}

// inBackground runs what talks to a drive beside the caller.
func inBackground(f *Shared, talk func()) { clock.Go(f.o.Clock, talk) }

// waitFor waits until what inBackground has run is over.
func waitFor(f *Shared, over <-chan struct{}) { clock.Wait(f.o.Clock, over, nil) }

// awaitScores is await of a drive's scores.
func awaitScores(f *Shared, over <-chan struct{}) {
	c := clock.Or(f.o.Clock)
	from := c.Now()
	waitFor(f, over)
	f.accounts.scores.Waited += c.Now() - from
}

// scanned tells the clock that a layer's tokens were scored.
func (f *Shared) scanned(layer, tokens int) {
	clock.Spend(f.o.Clock, clock.Scan, f.layerBytes(layer, tokens))
}

// gathered tells the clock that the selected tokens of a layer were copied together.
func (f *Shared) gathered(layer int, picks [][]int32, views []attention.View) {
	n := 0
	for g := range views {
		if g < len(picks) && picks[g] != nil {
			n += len(picks[g])
		} else {
			n += views[g].Tokens()
		}
	}
	clock.Spend(f.o.Clock, clock.Gather, f.layerBytes(layer, n)/int64(f.o.Shape.kv(layer).Heads))
}

// Tiered reports whether there is a backing store below host memory.
func (f *Shared) Tiered() bool { return f.o.Store != nil }

// Recovers reports whether KV lies where it may be lost, and is computed again then.
func (f *Shared) Recovers() bool { return f.Tiered() || f.o.Drives != nil }

// Accounts are those of all texts.
func (f *Shared) Accounts() *Accounts { return &f.accounts }

// Shape is the model for policies that are made from now on: what they need to know of it beside the text is filled in there.
func (f *Shared) Shape() *Shape { return &f.o.Shape }

// rope is a layer's, in a text that is long or not (Sequence.SetLong).
func (f *Shared) rope(layer int, long bool) Rope {
	ropes := f.ropes[0]
	if long {
		ropes = f.ropes[1]
	}
	if ropes[layer] == nil {
		ropes[layer] = f.o.Shape.Rope(layer, long)
	}
	return ropes[layer]
}

// kvBytesPerToken is what one token takes in pages over the layers that policies act on, rounded down.
func (f *Shared) kvBytesPerToken() int { return f.o.Shape.KVBytes }

// layerBytes is what tokens take in the pages of a layer, rounded down.
func (f *Shared) layerBytes(layer, tokens int) int64 {
	l := f.o.KV.Layout(layer)
	return int64(tokens) * int64(f.o.Shape.kv(layer).Heads*l.PageBytes()/l.Tokens)
}

// mostBytes is layerBytes of the layer whose tokens take most.
func (f *Shared) mostBytes(tokens int) int64 {
	most := int64(0)
	for layer := range f.o.Shape.Layers {
		if f.o.Shape.Layers.Keeps(layer) {
			most = max(most, f.layerBytes(layer, tokens))
		}
	}
	return most
}

// blockTokens is the number of tokens of what the backing store keeps as one record.
func (f *Shared) blockTokens() int { return f.o.KV.Format().Tokens }

// Yield lets what talks to a drive run between two pieces of work, where it shares a core with those who compute.
func (f *Shared) Yield() {
	if f.drive != nil {
		yield()
	}
}

// Begin plans what stays in host memory while the passes of one step run, and begins the decode steps among them.
func (f *Shared) Begin(passes ...*Pass) error {
	if f.o.KV.StateBytes() > 0 {
		for _, p := range passes {
			for i := range p.Rows {
				if err := p.Rows[i].Sequence.seq.States().Reserve(); err != nil {
					return fmt.Errorf("retrieval: %w", err)
				}
			}
		}
	}
	if !f.Tiered() {
		return nil
	}
	err := f.chargeStore()
	if err != nil && !errors.Is(err, kvmanager.ErrBudget) {
		return err
	}
	f.growths = f.growths[:0]
	for _, p := range passes {
		for i := range p.Rows {
			r := &p.Rows[i]
			x := kvmanager.Growth{Seq: r.Sequence.seq, Rows: len(r.Pos), ByLayer: r.Reading.byLayer()}
			if r.Reading.Prompt() {
				x.Tokens = r.Len
			} else {
				r.Sequence.res.step()
			}
			x = r.Sequence.res.growth(x)
			x.Beside += f.indexGrowth(int(r.Sequence.read), r.Sequence.tokensAfter(&x)) + r.waiting()
			f.growths = append(f.growths, x)
		}
	}
	if err == nil {
		err = f.o.KV.Plan(f.growths)
	}
	if !errors.Is(err, kvmanager.ErrBudget) {
		return err
	}
	// How much the store has for transfers depends on how they came to overlap: nothing is refused before it has given that back.
	if err := f.o.KV.Settle(); err != nil {
		return err
	}
	f.o.Store.Trim()
	if err := f.chargeStore(); err != nil {
		return err
	}
	return f.o.KV.Plan(f.growths)
}

// PlanStep plans a step of an empty text as if it had so many tokens.
func (f *Shared) PlanStep(t *Sequence, had int) error {
	x := t.res.growth(kvmanager.Growth{Seq: t.seq, Rows: 1, Had: had})
	x.Beside += f.indexGrowth(0, had+1)
	return f.o.KV.Plan([]kvmanager.Growth{x})
}

// PlanFork plans a pass of a fork of an empty text as if that had so many tokens: it adds so many more.
func (f *Shared) PlanFork(t *Sequence, had, more int) error {
	x := streamed{resident{t}}.growth(kvmanager.Growth{Seq: t.seq, Rows: min(more, f.o.ChunkTokens), Tokens: had + more})
	x.Beside += f.indexGrowth(0, had) + f.indexGrowth(0, had+more) + f.o.KV.TailBytes(had) + 2*f.o.KV.StateBytes()
	return f.o.KV.Plan([]kvmanager.Growth{x})
}

// indexGrowth is what the store's index of a text takes more when it has grown from some tokens to more: chargeStore will count it.
func (f *Shared) indexGrowth(from, to int) int64 {
	t := f.blockTokens()
	return f.o.Store.IndexBytes((to+t-1)/t) - f.o.Store.IndexBytes((from+t-1)/t)
}

// chargeStore counts what the backing store holds in host memory (index, checksums, staging) against the budget. It grows
// with what is stored, so it is looked at before each step.
func (f *Shared) chargeStore() error {
	n := f.o.Store.Stats().HostBytes
	if more := n - f.charged; more > 0 {
		if err := f.o.KV.Charge(more); err != nil {
			return fmt.Errorf("retrieval: what tier %s keeps in host memory: %w", f.o.Store.Name(), err)
		}
	} else {
		f.o.KV.Refund(-more)
	}
	f.charged = n
	return nil
}

// storeError says which tier an error is of.
func (f *Shared) storeError(err error) error {
	if err == nil || !f.Tiered() {
		return err
	}
	return fmt.Errorf("retrieval: KV of %s: %w", f.o.Store.Name(), err)
}

// Refused reports whether an error is of a drive that does not score as it should; what it stores may be good.
func Refused(err error) bool { return errors.Is(err, errScoring) }

// Gone reports whether an error says that the connection to a drive had ended and did not come back, or that it did not
// answer: reading a text again would not help.
func Gone(err error) bool {
	return errors.Is(err, csdshim.ErrLost) || errors.Is(err, csdshim.ErrTimeout)
}

// StoreBytes is the host memory of the backing store that is counted against the budget.
func (f *Shared) StoreBytes() int64 { return f.charged }
