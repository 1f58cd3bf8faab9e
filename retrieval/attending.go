package retrieval

import (
	"context"
	"fmt"

	"terrace/attention"
	"terrace/internal/guard"
	"terrace/internal/kvpage"
	"terrace/internal/trace"
	"terrace/offload"
	"terrace/policy"
)

// attending has a text's keys and values on drives that attend to them (InstInfer; algorithms.md 2.1). The prompt passes layer by
// layer: while a layer is computed its pages are in host memory; then its keys and values go down while the next is computed. A decode
// step sends q, k and v of a layer and gets the attention's output; rows of a later prompt do so one after another, densely.
type attending struct {
	resident
	drives offload.Attender
	policy policy.DriveAttention
	home   uint64
	opened bool
	lost   error    // why the drives' part of the text is not what was read; nil = it is
	down   *sending // a layer of the prompt on its way

	q            []float32 // of the rows of a pass, in memory of its own: another pass is computed while the drives attend
	keys, values []byte    // of the rows of a pass, [rows][KVHeads][dim] as stored
	steps        []offload.AttendStep
	out          []float32 // [rows, Heads·ValueDim]
	asked        *asked
	read         int // tokens that the last step attended to
}

// asked is a question about a layer that is under way.
type asked struct {
	done chan struct{}
	err  error
}

// sending is a layer of a prompt that goes down.
type sending struct {
	done  chan struct{}
	err   error
	bytes int64
}

// DriveUse is what a drive that attends has done.
type DriveUse = offload.DriveUse

// OpenDrives connects to drives that attend, for texts under policies that they compute (policy.DriveAttention).
func OpenDrives(ctx context.Context, sockets []string, shape offload.AttendShape, o offload.DrivesOptions) (offload.Attender, error) {
	d, err := offload.OpenDrives(ctx, sockets, shape, o)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// newAttending is the residency of a text whose policy the drives compute; nil for others.
func newAttending(t *Sequence) *attending {
	p, ok := t.set.Selector.(policy.DriveAttention)
	if t.f.o.Drives == nil || !ok {
		return nil
	}
	return &attending{resident: resident{t}, drives: t.f.o.Drives, policy: p, home: t.f.o.KV.NewHome()}
}

// onDrives is the text's residency where drives attend; nil elsewhere.
func (t *Sequence) onDrives() *attending {
	a, _ := t.res.(*attending)
	return a
}

// OnDrives reports whether drives attend to the text.
func (t *Sequence) OnDrives() bool { return t.onDrives() != nil }

// drives is what attends to the rows on drives, nil where the host does: all but those of a prompt that passes layer by layer.
func (r *Rows) drives() *attending {
	if r.Reading.byLayer() {
		return nil
	}
	return r.Sequence.onDrives()
}

// start begins the text on the drives.
func (a *attending) start(expected int) error {
	if a.opened {
		return a.lost
	}
	dims, tokens := a.policy.Groups()
	columns := a.policy.Attention(a.t.f.o.Shape.kv(0).KeyDim, 1<<30).Dims > 0
	a.opened = true
	return a.drives.Open(context.Background(), a.home, offload.Groups{Dims: dims, Tokens: tokens, Expected: expected, Columns: columns})
}

// prompted sends a layer that the prompt has passed and lets go of its pages.
func (a *attending) prompted(layer, rows int) error {
	n := a.t.seq.Tokens(layer, 0)
	if n == 0 {
		return nil // its rows have gone down one by one
	}
	if err := a.start(n); err != nil {
		return err
	}
	if err := a.sent(); err != nil {
		return err
	}
	keys, values := a.encoded(layer, n)
	for g := range a.t.f.o.Shape.kv(layer).Heads {
		if err := a.t.seq.Keep(layer, g, nil); err != nil {
			return fmt.Errorf("retrieval: %w", err)
		}
	}
	s := &sending{done: make(chan struct{}), bytes: int64(len(keys) + len(values))}
	if err := a.t.f.o.KV.Charge(s.bytes); err != nil {
		return fmt.Errorf("retrieval: a layer of the prompt on its way to the drives: %w", err)
	}
	a.down = s
	inBackground(a.t.f, func() {
		defer close(s.done)
		defer a.t.f.o.Trace.Layer(trace.Write, "prompt to drives", layer).End()
		s.err = guard.Run(func() error { return a.drives.Append(context.Background(), a.home, layer, 0, n, keys, values) })
	})
	return nil
}

// sent waits for the layer that is on its way.
func (a *attending) sent() error {
	if a.down == nil {
		return nil
	}
	waitFor(a.t.f, a.down.done)
	err := a.down.err
	a.t.f.o.KV.Refund(a.down.bytes)
	a.down = nil
	return err
}

// encoded is a layer's keys and values token by token, as stored.
func (a *attending) encoded(layer, n int) (keys, values []byte) {
	kv, l, e := a.t.f.o.Shape.kv(layer), a.t.f.o.KV.Layout(layer), a.elem()
	keyRow, valueRow := kv.KeyDim*e.Bits()/8, kv.ValueDim*e.Bits()/8
	keys, values = make([]byte, n*kv.Heads*keyRow), make([]byte, n*kv.Heads*valueRow)
	x := make([]float32, kv.KeyDim)
	for g, v := range a.t.seq.Views(layer) {
		at := g
		for _, p := range v.Pages {
			for slot := range p.N {
				kvpage.ReadK(l, p.Data, slot, x)
				kvpage.PutRow(e, keys[at*keyRow:(at+1)*keyRow], x)
				copy(values[at*valueRow:(at+1)*valueRow], l.VRow(p.Data, slot))
				at += kv.Heads
			}
		}
	}
	return keys, values
}

// elem is the type of keys and values, which drives have alike.
func (a *attending) elem() kvpage.Elem { return a.t.f.o.KV.Format().K }

// append keeps a layer's new keys [rows, KVHeads·KeyDim] and values until they go down with their queries.
func (a *attending) append(k, v []float32) error {
	e := a.elem()
	size := e.Bits() / 8
	a.keys, a.values = sizedBytes(a.keys, len(k)*size), sizedBytes(a.values, len(v)*size)
	kvpage.PutRow(e, a.keys, k)
	kvpage.PutRow(e, a.values, v)
	return a.lost
}

func sizedBytes(b []byte, n int) []byte {
	if cap(b) < n {
		b = make([]byte, n+n/4)
	}
	return b[:n]
}

// ask sends the rows' queries q [rows, Heads·KeyDim] with what append has kept.
func (a *attending) ask(layer int, q []float32, r *Rows) error {
	f := a.t.f
	shape, rows := &f.o.Shape, len(r.Pos)
	if err := a.start(r.Len); err != nil {
		return err
	}
	if err := a.sent(); err != nil {
		return err
	}
	keyBytes, valueBytes := len(a.keys)/rows, len(a.values)/rows
	score, width, out := shape.Scores[layer], shape.queryWidth(layer), shape.outWidth(layer)
	a.q = append(a.q[:0], q...)
	a.out, a.steps = sized(a.out, rows*out), a.steps[:0]
	for i := range rows {
		s := offload.AttendStep{Seq: a.home, Layer: layer, At: int(r.Pos[i]), Keys: a.keys[i*keyBytes : (i+1)*keyBytes], Values: a.values[i*valueBytes : (i+1)*valueBytes],
			Q: a.q[i*width : (i+1)*width], Exact: f.o.Exact, Scale: score.Scale, Softcap: score.Softcap, Window: a.t.obs.window(layer), Out: a.out[i*out : (i+1)*out]}
		if r.Reading == Step && s.Window == 0 {
			s.SparF = a.policy.Attention(shape.kv(layer).KeyDim, s.At+1)
		}
		a.steps = append(a.steps, s)
	}
	a.read = a.steps[0].At + 1
	if n := a.steps[0].SparF.Tokens; n > 0 {
		a.read = n
	}
	question := &asked{done: make(chan struct{})}
	a.asked = question
	inBackground(f, func() {
		defer close(question.done)
		defer f.o.Trace.Layer(trace.Read, "attend on drives", layer).End()
		question.err = guard.Run(func() error {
			for i := range a.steps {
				if err := a.drives.Attend(context.Background(), &a.steps[i]).Wait(); err != nil {
					return fmt.Errorf("retrieval: attention of layer %d on the drives: %w", layer, err)
				}
			}
			return nil
		})
	})
	return nil
}

// answered waits for the rows' outputs.
func (a *attending) answered() error {
	if a.asked == nil {
		return nil
	}
	question := a.asked
	a.asked = nil
	waitFor(a.t.f, question.done)
	return question.err
}

// cut gives the text up: the drives may have some layers' newest tokens, and do not take them back.
func (a *attending) cut(int32) error {
	_ = a.answered() // it belongs to a pass that has failed
	a.lost = fmt.Errorf("retrieval: the drives have a part of a token that was taken back: %w", offload.ErrTier)
	return nil
}

func (a *attending) free() error {
	_, _ = a.answered(), a.sent() // nobody waits for them any more
	if !a.opened {
		return nil
	}
	a.opened = false
	a.lost = fmt.Errorf("retrieval: the text has left the drives: %w", offload.ErrTier)
	return a.drives.Drop(a.home)
}

// FromDrives is a layer's attention output of all rows [rows, Heads·ValueDim] where drives have computed it, zeros where the text has failed;
// nil elsewhere.
func (p *Pass) FromDrives(layer int) []float32 {
	var out []float32
	for i := range p.Rows {
		r := &p.Rows[i]
		switch a := r.drives(); {
		case a == nil:
		case r.Err != nil:
			out = append(out, make([]float32, len(r.Pos)*p.f.o.Shape.outWidth(layer))...)
		default:
			out = append(out, a.out...)
		}
	}
	return out
}

// Held is how many tokens the text has of a layer and KV head, wherever they lie.
func (t *Sequence) Held(layer, kvHead int) int {
	if t.OnDrives() {
		return int(t.read)
	}
	return t.seq.Tokens(layer, kvHead)
}

// Positions are those that a layer and KV head hold, wherever they lie.
func (t *Sequence) Positions(layer, kvHead int) []int32 {
	if !t.OnDrives() {
		return t.seq.PositionList(layer, kvHead)
	}
	all := make([]int32, t.read)
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// selectOnDrives asks the drives for a layer.
func (a *attending) selectOnDrives(r *Rows, layer int, q []float32, seq *attention.Seq) error {
	seq.Views = a.t.seq.Views(layer)
	return a.ask(layer, q, r)
}
