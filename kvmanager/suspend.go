package kvmanager

import (
	"errors"
	"fmt"

	"terrace/offload"
)

// suspendBytes is about how much of a state is on its way at a time, between its memory and the backing store.
const suspendBytes = 1 << 20

var errSuspended = fmt.Errorf("kvmanager: the sequence is suspended: %w", ErrPlan)

// Suspend moves to the backing store what a sequence keeps in host memory as long as it runs: the state of its recurrent layers, the
// blocks that it writes to, and what was held for its next pass. The windows of a quantised cache and what a policy scans stay. Saved
// states (States.Save) are forgotten. Until Resume there is but Free: what reads or writes tokens is refused with ErrPlan. ErrPlan
// where there is no backing store, or a drive, which takes keys and values only; after an error the sequence goes on as it was.
func (s *Sequence) Suspend() error {
	t, ok := s.store.(*tiered)
	switch {
	case s.closed:
		return fmt.Errorf("kvmanager: suspend: %w", ErrClosed)
	case !ok || s.states.suspended:
		return fmt.Errorf("kvmanager: suspend of a sequence without a tier below, or of a suspended one: %w", ErrPlan)
	}
	if _, drive := t.k.queue.Store().(offload.Scorer); drive {
		return fmt.Errorf("kvmanager: suspend of a sequence on a drive: %w", ErrPlan)
	}
	s.settleAll()
	if err := s.states.store(t.k); err != nil {
		return err
	}
	s.states.suspended = true
	for layer := range t.layers {
		s.m.note(suspendLayer(t, layer)) // blocks that are not written stay, and makeRoom tries again
	}
	return nil
}

// Resume brings back what Suspend has moved. After an error, ErrBudget where there is no room, the sequence is suspended as before.
func (s *Sequence) Resume() error {
	t, ok := s.store.(*tiered)
	if s.closed || !ok || !s.states.suspended {
		return fmt.Errorf("kvmanager: resume of a sequence that is not suspended: %w", ErrPlan)
	}
	err := s.states.load(t.k)
	for layer := 0; layer < len(t.layers) && err == nil; layer++ {
		err = resumeLayer(t, layer)
	}
	if err != nil {
		for layer := range t.layers {
			s.m.note(suspendLayer(t, layer))
		}
		s.states.unload()
		return err
	}
	s.states.suspended = false
	s.m.note(s.states.dropStored(t.k))
	return nil
}

// suspendLayer lets go of the blocks of a layer that are held or written to, and begins to write those that are newer than the store.
func suspendLayer(t *tiered, layer int) error {
	lb := &t.layers[layer]
	lb.prefetched = false
	for _, b := range lb.writable {
		b.writable--
	}
	clear(lb.writable)
	lb.writable = lb.writable[:0]
	return t.release(layer)
}

// resumeLayer brings the blocks of a layer that have room for tokens back.
func resumeLayer(t *tiered, layer int) error {
	t.mark(layer)
	for i, b := range t.layers[layer].writable {
		if err := t.k.load(b); err != nil {
			for _, b := range t.layers[layer].writable[i:] { // those that are not in memory
				b.writable--
			}
			t.layers[layer].writable = t.layers[layer].writable[:i]
			return err
		}
	}
	t.show(layer, 0, false)
	return nil
}

// pieces calls move with the parts of the state, as records of the first layer that has any: their keys, and the numbers that belong to
// each.
func (x *States) pieces(move func(recs []offload.Record, numbers []float32) error) error {
	layer := 0
	for x.m.layers[layer].recordBytes() == 0 {
		layer++
	}
	size := x.m.layers[layer].recordBytes()
	each := size / 4 // numbers of a record
	buffer := offload.AlignedBytes(max(1, suspendBytes/size) * size)
	for at, group := 0, int32(0); at < len(x.now.data); {
		n := min(len(buffer)/size, (len(x.now.data)-at+each-1)/each)
		recs := make([]offload.Record, n)
		for i := range recs {
			recs[i] = offload.Record{Key: offload.Key{Seq: x.home, Layer: int32(layer), Group: group}, Data: buffer[i*size : (i+1)*size]}
			group++
		}
		to := min(at+n*each, len(x.now.data))
		if err := move(recs, x.now.data[at:to]); err != nil {
			return err
		}
		at = to
	}
	return nil
}

// store writes the state to the backing store and gives its memory back; after an error it is as it was.
func (x *States) store(k *backing) error {
	if x.now.data == nil {
		return nil
	}
	if err := x.now.settle(x.m); err != nil {
		return err
	}
	x.home = k.next()
	err := x.pieces(func(recs []offload.Record, numbers []float32) error {
		size := len(recs[0].Data)
		for i, r := range recs {
			appendFloats(r.Data[:0], numbers[min(i*size/4, len(numbers)):min((i+1)*size/4, len(numbers))])
		}
		return x.m.Await(k.queue.Write(offload.WriteBack, recs), len(recs))
	})
	if errors.Is(err, ErrStalled) {
		x.home = 0 // the store may write yet
	}
	if err != nil {
		return errors.Join(fmt.Errorf("kvmanager: storing the state of recurrent layers: %w", err), x.dropStored(k))
	}
	for len(x.saved) > 0 {
		x.dropSaved(0)
	}
	x.pin = 0
	x.unload()
	return nil
}

// load reads the state back; the store keeps it.
func (x *States) load(k *backing) error {
	if x.home == 0 {
		return nil
	}
	if err := x.Reserve(); err != nil {
		return err
	}
	err := x.pieces(func(recs []offload.Record, numbers []float32) error {
		err := x.m.Await(k.queue.Read(offload.Demand, recs), len(recs))
		size := len(recs[0].Data)
		for i := 0; i < len(recs) && err == nil; i++ {
			part := numbers[i*size/4 : min((i+1)*size/4, len(numbers))]
			readFloats(part, recs[i].Data[:4*len(part)])
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("kvmanager: reading the state of recurrent layers: %w", err)
	}
	return nil
}

// unload gives the memory of the state back; where it belongs to in the text is not forgotten.
func (x *States) unload() {
	if x.now.data != nil {
		x.m.Refund(2 * x.m.StateBytes())
	}
	x.now.forget()
	x.other.forget()
	x.now.data, x.other.data, x.other.at, x.pending = nil, nil, -1, nil
}

// dropStored has the backing store forget the state.
func (x *States) dropStored(k *backing) error {
	if x.home == 0 {
		return nil
	}
	seq := x.home
	x.home = 0
	return k.queue.Drop(seq)
}
