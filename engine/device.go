package engine

import (
	"errors"
	"fmt"
	"math"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/model"
	"terrace/retrieval"
)

// device is what a backend with memory of its own adds: downloads of new keys and values and uploads of cached ones beside
// the computing, and logits that stay there until somebody wants them. Without such a backend it does nothing.
type device struct {
	e       *Engine
	keeper  model.KVKeeper    // the backend, if it keeps copies of KV
	placer  model.LayerPlacer // the backend, if it shares layers with the CPU
	chooser model.Chooser     // the backend, if it chooses tokens where the logits lie
	coming  *kvDownload       // nil = nothing is on its way
	left    deviceLogits
}

func (d *device) init(e *Engine) {
	d.e = e
	d.keeper, _ = e.backend.(model.KVKeeper)
	d.chooser, _ = e.backend.(model.Chooser)
	d.placer, _ = e.backend.(model.LayerPlacer)
}

// DeviceLayers is how many layers the backend's device computes, and why no more; some is false where the backend shares none with the CPU.
func (e *Engine) DeviceLayers() (n int, why string, some bool) {
	if e.device.placer == nil {
		return 0, "", false
	}
	n, why = e.device.placer.DeviceLayers()
	return n, why, true
}

// kvDownload is a layer's new keys and values on their way from the device into their pages, while the device goes on with the
// layer and projects the next one.
type kvDownload struct {
	done chan struct{}
	err  error
}

// later reports whether another goroutine downloads keys and values: a prompt's, and a step's that no policy reads. Late rows come between
// others.
func (d *device) later(p *pass) bool {
	if d.keeper == nil || p.source != nil || len(p.sessions) != 1 || p.e.o.Rotate.turns() || !p.e.kv.DefersAppend() || observes(p.sessions[0]) {
		return false
	}
	switch reading := p.kv.Rows[0].Reading; reading {
	case retrieval.Late:
		return false
	case retrieval.Step:
		return !p.kv.Asks() && !p.sessions[0].text.Selects()
	default:
		return true
	}
}

// observes reports whether something is worked out from every row of the session's prompts, and their keys.
func observes(s *Session) bool {
	needs := s.text.Needs()
	return needs.ObservesPrompt() || s.text.Policy().Watcher != nil
}

// download takes a layer's new tokens into the cache; their bytes follow.
func (d *device) download(p *pass, layer int, k, v *tensor.Dense) error {
	if err := errors.Join(d.landed(), p.kv.Join()); err != nil {
		return err
	}
	fill, err := p.sessions[0].text.Seq().AppendLater(layer, p.rows.Pos)
	if err != nil {
		return err
	}
	c := &kvDownload{done: make(chan struct{})}
	d.coming = c
	go func() {
		defer close(c.done)
		c.err = guarded(func() error {
			var values []float32
			if v != nil { // else latent: the value is the key
				values = floats(v)
			}
			fill(floats(k), values)
			return nil
		})
	}()
	return nil
}

// landed waits until the pages hold what was projected.
func (d *device) landed() error {
	if d.coming == nil {
		return nil
	}
	c := d.coming
	<-c.done
	d.coming = nil
	return c.err
}

// await has whoever reads pages wait for them first.
func (d *device) await(seqs []attention.Seq) {
	if d.coming == nil {
		return
	}
	for i := range seqs {
		seqs[i].Await = d.landed
	}
}

// upload begins to copy the next layer's keys and values to the device while it computes this one. Selecting policies read few
// of them, lower tiers have not brought them to host memory yet: these go up when the layer needs them.
func (d *device) upload(p *pass, next int) {
	if d.keeper == nil || p.source != nil || d.e.retrieval.Tiered() || next >= d.e.m.Layers || !d.e.cache.Reads(next) || next == d.e.m.Layers-1 && p.want == 0 {
		return
	}
	for _, s := range p.sessions {
		if !s.text.Selects() {
			d.keeper.UploadKV(next, s.text.Seq().Views(next))
		}
	}
}

// settle ends a pass: nothing is on its way between host and device.
func (d *device) settle(err error) error {
	if d.keeper == nil {
		return err
	}
	d.keeper.SettleKV()
	return errors.Join(err, d.landed())
}

// forget drops the copies of a sequence that is gone.
func (d *device) forget(t *retrieval.Sequence) {
	if d.keeper != nil {
		d.keeper.ForgetKV(t.Seq().ID())
	}
}

// deviceLogits are the logits of a step that still lie where the backend computed them: a greedy step asks for the likeliest
// token there, and moves 8 bytes a row instead of a number a token of the vocabulary. Who wants them all gets them then.
type deviceLogits struct {
	t  *tensor.Dense // [len(of), V]
	of []*Session    // the session of each row; nil = nobody wants it any more
}

// logits is the backend's Logits. What it overwrites is fetched first for sessions that have not looked at it, those of this
// pass excepted.
func (d *device) logits(p *model.Pass, hidden *tensor.Dense, sessions []*Session) (*tensor.Dense, error) {
	for _, s := range sessions {
		s.dropLogits()
	}
	for _, s := range d.left.of {
		if s != nil {
			if err := d.fetchLogits(); err != nil {
				return nil, err
			}
			break
		}
	}
	return d.e.backend.Logits(p, hidden)
}

// postpone leaves a step's logits on the device, if the backend can choose there; each session's are a row.
func (d *device) postpone(out *tensor.Dense, sessions []*Session) bool {
	if d.chooser == nil || out.Shape()[0] != len(sessions) {
		return false
	}
	if _, remote := out.Engine().(model.Remote); !remote {
		return false
	}
	d.left.t, d.left.of = out, append(d.left.of[:0], sessions...)
	for _, s := range sessions {
		s.onDevice = true
	}
	return true
}

// fetchLogits brings the logits on the device to the sessions that may still want them.
func (d *device) fetchLogits() error {
	return guarded(func() error {
		x, v := floats(d.left.t), d.e.m.Vocab
		for i, s := range d.left.of {
			if s != nil {
				s.logits, s.onDevice = append(s.logits[:0], x[i*v:(i+1)*v]...), false
			}
		}
		d.left = deviceLogits{of: d.left.of[:0]}
		return nil
	})
}

// row is a session's row of the logits on the device.
func (d *device) row(s *Session) int {
	for i, x := range d.left.of {
		if x == s {
			return i
		}
	}
	panic("engine: logits on the device of no row")
}

// dropLogits forgets logits on the device that nobody has looked at.
func (s *Session) dropLogits() {
	if s.onDevice {
		d := &s.e.device
		d.left.of[d.row(s)], s.onDevice, s.logits = nil, false, s.logits[:0]
	}
}

// fetched is the session's logits, brought to the host if they are not there.
func (s *Session) fetched() ([]float32, error) {
	if s.onDevice {
		if err := s.e.device.fetchLogits(); err != nil {
			return nil, err
		}
	}
	return s.logits, nil
}

// Logits are the logits [V] after the last token; they hold until the next call. Where a device fails to deliver them they are
// NaN.
func (s *Session) Logits() []float32 {
	x, err := s.fetched()
	if err == nil {
		return x
	}
	x = make([]float32, s.e.m.Vocab)
	for i := range x {
		x[i] = float32(math.NaN())
	}
	return x
}

// Choose draws the next token; where the sampler is greedy and the logits lie on a device, there. ErrNotFinite where no token
// can be chosen honestly, weights.ErrFileChanged where that comes of a model file that changed.
func (s *Session) Choose(sampler *model.Sampler) (int, error) {
	if s.onDevice && sampler.Greedy() {
		return s.argmax()
	}
	logits, err := s.fetched()
	if err != nil {
		return 0, err
	}
	if err := CheckFinite(logits); err != nil {
		return 0, s.e.CheckAfter(err)
	}
	return sampler.Next(logits, s.tokens), nil
}

// argmax asks the device for the token of a row.
func (s *Session) argmax() (id int, err error) {
	row := s.e.device.row(s)
	err = guarded(func() error {
		ids, finite, err := s.e.device.chooser.Argmax()
		if err != nil {
			return err
		}
		if !finite[row] {
			return s.e.CheckAfter(fmt.Errorf("engine: %w (%s)", ErrNotFinite, notFiniteHint))
		}
		id = int(ids[row])
		return nil
	})
	return id, err
}

// notFiniteHint says what to do about logits that are not finite.
const notFiniteHint = "a weight or the arithmetic is broken; 'infer show --verify' scans the weights"

// CheckFinite refuses logits from which no token can be chosen honestly: ErrNotFinite.
func CheckFinite(logits []float32) error {
	if !kernels.Finite(logits) {
		return fmt.Errorf("engine: %w (%s)", ErrNotFinite, notFiniteHint)
	}
	return nil
}

// TouchLogits does what a greedy step does with logits that lie on a device: its token is chosen there. Else it does nothing.
func (s *Session) TouchLogits() error {
	if !s.onDevice {
		return nil
	}
	_, err := s.argmax()
	return err
}
