package retrieval

import (
	"fmt"
	"time"

	"terrace/kvmanager"
	"terrace/policy"
)

// verdict is the scratch of a policy's decision on what stays.
type verdict struct {
	picks policy.Selection
	keep  []int
}

// EndPrompt has the policy decide what stays of a layer that the whole prompt has passed, and prepares what decode steps
// need: the index, and the token cache. rows are those of the prompt that the text does not count as read yet. Keys that several layers
// read are decided on behind the last of them, by what was seen where they are kept: until then all of them read all.
func (t *Sequence) EndPrompt(layer, rows int) error {
	if a := t.onDrives(); a != nil {
		return a.prompted(layer, rows)
	}
	if layer = t.ends(layer); layer < 0 || !t.Acts(layer) {
		return nil
	}
	t.seq.Settle(layer)
	t.obs.prompt = int(t.read) + rows
	if t.sel != nil {
		if o, ok := t.set.Selector.(policy.PromptObserver); ok {
			begun := time.Now()
			l, err := t.Decided(layer, rows)
			if err != nil {
				return err
			}
			o.ObservePrompt(l)
			t.decided(begun)
		}
	}
	if t.set.Keeper != nil {
		t.verdict.picks.Reset(t.f.o.Shape.kv(layer).Heads)
		begun := time.Now()
		l, err := t.Decided(layer, rows)
		if err != nil {
			return err
		}
		t.set.Keeper.KeepPrompt(l, &t.verdict.picks)
		t.decided(begun)
		if err := t.keepPicks(layer, &t.verdict.picks); err != nil {
			return err
		}
		if m, ok := t.set.Keeper.(policy.KeyMover); ok && m.ClosesGaps() {
			if err := t.closeGaps(layer, t.obs.prompt); err != nil {
				return err
			}
		}
	}
	if err := t.zeroChannels(layer, rows); err != nil {
		return err
	}
	if err := t.res.prompted(layer, rows); err != nil {
		return err
	}
	t.obs.forget(layer)
	return nil
}

// ends is the layer whose keys and values no layer behind one reads any more in a pass, of those that this one reads; -1 = a later one
// reads them, or it reads none.
func (t *Sequence) ends(layer int) int {
	layers := t.f.o.Shape.Layers
	owner := layers.Owner(layer)
	if owner < 0 || layers.LastReader(owner) != layer {
		return -1
	}
	return owner
}

// closeGaps moves the tokens of each KV head of a layer to the positions before end, in their order.
func (t *Sequence) closeGaps(layer, end int) error {
	rope, dim := t.f.rope(layer, t.long), t.f.o.Shape.kv(layer).KeyDim
	for g := range t.f.o.Shape.kv(layer).Heads {
		old := t.seq.PositionList(layer, g)
		first := end - len(old)
		if len(old) == 0 || int(old[0]) == first {
			continue // there are none
		}
		err := t.seq.MoveKeys(layer, g, int32(first), func(from int, keys []float32) {
			for i := 0; i < len(keys)/dim; i++ {
				key := keys[i*dim : (i+1)*dim]
				rope.Unrotate(key, int(old[from+i]))
				rope.Rotate(key, first+from+i)
			}
		})
		if err != nil {
			return fmt.Errorf("retrieval: policy %s: %w", t.set, err)
		}
	}
	return nil
}

// zeroChannels has the policy choose channels of a layer's keys, as far as these stay, and sets them to 0.
func (t *Sequence) zeroChannels(layer, rows int) error {
	if t.set.Channels == nil {
		return nil
	}
	t.verdict.picks.Reset(t.f.o.Shape.kv(layer).Heads)
	begun := time.Now()
	l, err := t.Decided(layer, rows)
	if err != nil {
		return err
	}
	t.set.Channels.ZeroChannels(l, &t.verdict.picks)
	t.decided(begun)
	dim := t.f.o.Shape.kv(layer).KeyDim
	for g, channels := range t.verdict.picks.Heads {
		if len(channels) == 0 {
			continue
		}
		err := t.seq.EditKeys(layer, g, func(_ int, keys []float32) {
			for at := 0; at < len(keys); at += dim {
				for _, d := range channels {
					keys[at+int(d)] = 0
				}
			}
		})
		if err != nil {
			return fmt.Errorf("retrieval: policy %s: %w", t.set, err)
		}
	}
	return nil
}

// endStep has a dropping policy decide after a layer's attention, at the steps that it acts at.
func (t *Sequence) endStep(layer int) error {
	o := &t.obs
	if layer = t.ends(layer); layer < 0 || t.set.Dropper == nil || !t.Acts(layer) || o.scheduler != nil && !o.scheduler.Due(int(t.read)+1, o.prompt) {
		return nil
	}
	t.verdict.picks.Reset(t.f.o.Shape.kv(layer).Heads)
	begun := time.Now()
	l, err := t.Decided(layer, 1)
	if err != nil {
		return err
	}
	t.set.Dropper.DropStep(l, &t.verdict.picks)
	t.decided(begun)
	o.layers[layer].sumsAt = 0
	return t.dropPicks(layer, &t.verdict.picks)
}

// keepPicks keeps what was picked in every head.
func (t *Sequence) keepPicks(layer int, picks *policy.Selection) error {
	if picks.All {
		return nil
	}
	for g, idx := range picks.Heads {
		keep := t.verdict.keep[:0]
		for _, i := range idx {
			keep = append(keep, int(i))
		}
		t.verdict.keep = keep
		if err := t.seq.Keep(layer, g, keep); err != nil {
			return fmt.Errorf("retrieval: policy %s: %w", t.set, err)
		}
	}
	return nil
}

// dropPicks keeps everything but what was picked.
func (t *Sequence) dropPicks(layer int, picks *policy.Selection) error {
	if picks.All {
		return fmt.Errorf("retrieval: policy %s drops every token: %w", t.set, kvmanager.ErrPlan)
	}
	for g, idx := range picks.Heads {
		if len(idx) == 0 {
			continue
		}
		keep, at := t.verdict.keep[:0], 0
		for i := range t.seq.Tokens(layer, g) {
			if at < len(idx) && int(idx[at]) == i {
				at++
				continue
			}
			keep = append(keep, i)
		}
		t.verdict.keep = keep
		if err := t.seq.Keep(layer, g, keep); err != nil {
			return fmt.Errorf("retrieval: policy %s: %w", t.set, err)
		}
	}
	return nil
}

// EndReread is EndPrompt of a layer of a prompt that has been read, and whose policy had a second look at it (policy.Reconstructor).
// Shared.Begin has planned for the text.
func (t *Sequence) EndReread(layer int) error {
	owner := t.ends(layer)
	if owner < 0 {
		return nil
	}
	if err := t.res.whole(owner, 0); err != nil {
		return err
	}
	if err := t.EndPrompt(layer, 0); err != nil {
		return err
	}
	return t.res.release(owner)
}
