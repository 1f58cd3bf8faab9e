package retrieval

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"terrace/attention"
	"terrace/kvmanager"
	"terrace/policy"
)

// Sequence is one text's KV under its policy. Free it. What a policy may see and decide of a text is a
// method here, most of them a line that asks the cache.
type Sequence struct {
	f    *Shared
	seq  *kvmanager.Sequence
	set  *policy.Set // of this text alone
	read int32       // positions read so far
	long bool        // SetLong
	obs  observer
	sel  *selector // nil = a step reads everything
	res  residency

	watchers []*watcher // of the prompt's queries, for forks

	verdict verdict
	apart   bool          // another thread works for another text meanwhile
	spent   *atomic.Int64 // by the policy, in nanoseconds

	stepReads, stepTokens int64 // by decode attention: layers and KV heads, and tokens in them
	stepBytes             int64 // K and V of those tokens
	stepMost              int64 // bytes of host memory that a step has taken
}

// SequenceOptions say under what a text is read.
type SequenceOptions struct {
	Policy     *policy.Spec
	HostScores bool // the host scores all keys, although the drive could
}

// NewSequence returns an empty text.
func (f *Shared) NewSequence(o SequenceOptions) (*Sequence, error) {
	return f.newSequence(f.o.KV.NewSequence(), 0, nil, o)
}

// newSequence takes the sequence over, which holds read positions. A set that is nil is made from the options.
func (f *Shared) newSequence(seq *kvmanager.Sequence, read int32, set *policy.Set, o SequenceOptions) (_ *Sequence, err error) {
	if set == nil {
		if set, err = o.Policy.New(f.o.Shape.Model); err != nil {
			seq.Free()
			return nil, fmt.Errorf("retrieval: %w", err)
		}
	}
	if err := observable(set); err != nil {
		seq.Free()
		return nil, err
	}
	t := &Sequence{f: f, seq: seq, set: set, read: read, spent: f.accounts.spent.of(set)}
	t.obs.init(t)
	if a := newAttending(t); a != nil {
		t.res = a
		return t, nil
	}
	if set.Selector != nil {
		if t.sel, err = newSelector(t, o.Policy); err != nil {
			seq.Free()
			return nil, err
		}
	}
	t.res = newResidency(t, o.HostScores)
	return t, nil
}

// Fork returns a text that shares the KV so far and goes on under a policy that has seen nothing of it, or its queries (Watch).
func (t *Sequence) Fork(o SequenceOptions) (*Sequence, error) {
	set, err := t.taken(o.Policy)
	if err != nil {
		return nil, err
	}
	seq, err := t.seq.Fork()
	if err != nil {
		return nil, err
	}
	return t.f.newSequence(seq, t.read, set, o)
}

// Free gives back the KV and what is kept beside it. What is under way for the text belongs to nobody any more.
func (t *Sequence) Free() error {
	err := errors.Join(t.res.free(), t.sel.free())
	t.seq.Free()
	return err
}

// Seq is the text's KV.
func (t *Sequence) Seq() *kvmanager.Sequence { return t.seq }

// Policy is the set of policies that the text is read under.
func (t *Sequence) Policy() *policy.Set { return t.set }

// Needs are the policy's.
func (t *Sequence) Needs() *policy.Needs { return &t.obs.needs }

// Read is the number of positions read so far: the next token's position.
func (t *Sequence) Read() int32 { return t.read }

// Plain reports whether no policy acts on the text.
func (t *Sequence) Plain() bool { return t.set.Lossless() }

// Causal reports whether all that was read is there, and each token's part as it would be without what came later (policy.Set.Causal).
func (t *Sequence) Causal() bool { return t.set.Causal() }

// SetLong says whether the text's positions are turned as those of a text beyond the length where the model changes its frequencies.
func (t *Sequence) SetLong(long bool) { t.long = long }

// Selects reports whether decode steps read only a part.
func (t *Sequence) Selects() bool { return t.sel != nil }

// Truncate forgets the positions from n on; kvmanager.ErrSlid where a sliding window has let go of what they read.
func (t *Sequence) Truncate(n int32) error {
	if err := t.seq.Truncate(n); err != nil {
		return err
	}
	t.read = min(t.read, n)
	t.sel.cut(t.read)
	return nil
}

// SketchBytes is the memory of what the policy scans instead of the keys.
func (t *Sequence) SketchBytes() int64 { return t.sel.indexBytes() }

// IndexBytes is the most that what the policy scans of a layer takes in host memory once n tokens were read, the first of them a prompt;
// nothing before the prompt's end, nor where its hashes have no tokens to be trained on.
func (t *Sequence) IndexBytes(layer, prompt, n int) int64 {
	if t.sel == nil || !t.Acts(layer) {
		return 0
	}
	if sketch := &t.obs.needs.Sketch; sketch.Kind == policy.SketchHashes && prompt <= sketch.Sinks+sketch.Recent {
		return 0
	}
	return indexSize(t.sel, layer, n).Bytes
}

// ChargedBytes is what of that counts against the budget now.
func (t *Sequence) ChargedBytes() int64 {
	if t.sel == nil {
		return 0
	}
	return t.sel.charged
}

// StepReads are the tokens that decode attention read, and of how many layers and KV heads.
func (t *Sequence) StepReads() (tokens, headsRead int64) { return t.stepTokens, t.stepReads }

// StepBytes are the bytes that decode steps read on the host to attend: K and V of the tokens read, in the cache's element types,
// and what the policy scanned to choose them (sketches, bounds, codes; keys, where it scores with these), once a KV head however
// many query heads share it, and wherever they lay. What a drive scores where it lies is not in it.
func (t *Sequence) StepBytes() (kv, scanned int64) { return t.stepBytes, scannedBytes(t.sel) }

// StepMost is the most bytes of host memory that the text had in a decode step, whatever others had: pages, states and what the policy scans.
func (t *Sequence) StepMost() int64 { return t.stepMost }

// CountReads adds what a decode step reads of a layer.
func (t *Sequence) CountReads(layer int, seq *attention.Seq) {
	for g := range seq.Views {
		n := t.seq.Tokens(layer, g)
		if a := t.onDrives(); a != nil {
			n = a.read
		}
		if t.res.caches(t.f.o.Shape.owner(layer)) {
			n = seq.Views[g].Tokens()
		}
		if w := t.obs.window(layer); w > 0 {
			n = min(n, w)
		}
		if seq.Select != nil && seq.Select[g] != nil {
			n = len(seq.Select[g])
		}
		t.stepTokens += int64(n * len(seq.Pos))
		layout := &seq.Views[g].Layout
		t.stepBytes += int64(n*len(seq.Pos)) * int64(layout.PageBytes()/layout.Tokens)
		t.stepReads += int64(len(seq.Pos))
	}
}

// lowest is the first position that a row at a position reads of a layer.
func (t *Sequence) lowest(layer int, pos int32) int32 {
	if w := t.obs.window(layer); w > 0 {
		return pos - int32(w) + 1
	}
	return 0
}

// Prunes reports whether hidden rows leave after a layer's attention.
func (t *Sequence) Prunes(layer int) bool {
	return t.set.Pruner != nil && slices.Contains(t.set.Pruner.PruneLayers(), layer)
}

// SetRead says how many positions have been read of a text whose prompt passed layer by layer.
func (t *Sequence) SetRead(n int32) {
	t.read = n
	t.seq.States().Commit(n)
}

// Prefetch begins to bring a layer into host memory that a decode step reads whole.
func (t *Sequence) Prefetch(layer int) { t.res.prefetch(layer, t.read, true) }

// Bring begins to read what came back of a layer and is to stay in host memory (kvmanager.Swaps.Bring).
func (t *Sequence) Bring(layer int) { t.seq.Swaps().Bring(layer, t.lowest(layer, t.read)) }

// AwaitSwaps waits for tokens that come and go as a whole.
func (t *Sequence) AwaitSwaps() error { return t.f.storeError(t.seq.Swaps().Await()) }

// Home is the number under which the backing store keeps the text.
func (t *Sequence) Home() uint64 { return t.seq.Home() }

// CacheBytes is the host memory of the token cache; 0 = there is none.
func (t *Sequence) CacheBytes() int64 {
	if c, ok := t.res.(*cached); ok && c.cache != nil {
		return c.cache.Bytes()
	}
	return 0
}
