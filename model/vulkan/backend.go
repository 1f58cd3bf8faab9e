package vulkan

import (
	"fmt"
	"slices"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/vulkan"
	"terrace/model"
)

func init() {
	for _, name := range []string{GPU, CPU} {
		model.RegisterBackend(name, func(m *model.Model, o model.BackendOptions) (model.Backend, error) { return newBackend(name, m, o) })
	}
}

// The names of the backend: on the best GPU of the loader, and on a driver that computes on the CPU (Mesa's lavapipe).
const (
	GPU = "vulkan"
	CPU = "vulkan:cpu"
)

// widest is the largest head that attention has shared memory for.
const widest = 512

// backend implements model.Backend, model.QueryGuesser, model.Recurrent, model.Chooser and model.KVKeeper.
type backend struct {
	*recorder
	name    string
	m       *model.Model
	apart   []bool // layers whose experts are computed elsewhere
	weights weights
	rotary  *model.RotaryRows
	mirrors mirrors

	results
	scratch
	mixes
	mixing mixing
}

// results are what calls return.
type results struct {
	embedded, hidden, q, attended, logits, guessed slot
	k, v                                           [2]slot // until the second next call
	turn                                           int
}

// scratch is what a call needs beside its results.
type scratch struct{ normed, block, gate, up, narrow, parts, stats, weightsOf, chosen slot }

func newBackend(name string, m *model.Model, o model.BackendOptions) (model.Backend, error) {
	if o.DeviceLayers != model.AllLayers || o.HostExperts > 0 {
		return openSome(name, m, o)
	}
	if err := m.OnlyPlain(name, computed...); err != nil {
		return nil, fmt.Errorf("vulkan: %w", err)
	}
	if err := computes(name, m); err != nil {
		return nil, err
	}
	all := make([]bool, len(m.Layer))
	for i := range all {
		what := lacks(m, i)
		if what == "" {
			what = lacksExperts(m, i)
		}
		if what != "" {
			return nil, noKernels(name, what)
		}
		all[i] = true
	}
	return newDevice(name, m, o, placed(all))
}

// newDevice opens the device for some of a model's layers.
func newDevice(name string, m *model.Model, o model.BackendOptions, at placement) (*backend, error) {
	d, done, err := open(name)
	if err != nil {
		return nil, err
	}
	r, err := newRecorder(d)
	r.done = done
	if err != nil {
		r.close()
		return nil, deviceError(err)
	}
	b := &backend{recorder: r, name: name, m: m, apart: at.apart, rotary: model.NewRotaryRows(&m.Config), mirrors: newMirrors(r, m, o.DeviceKVBytes),
		weights: weights{r: r, matrices: map[*model.Linear]*matrix{}, shared: map[source]span{}, vectors: map[*model.Vector]span{}}}
	if err := b.weights.load(m, &at); err != nil {
		r.close()
		return nil, err
	}
	return b, nil
}

// computed are the features beyond the plain decoder that there are kernels for.
var computed = []model.Feature{model.ClampedActivations, model.SquaredReLUs, model.LogitBiases, model.AttentionSinks, model.WholeRowNorms,
	model.NormedValues, model.KeysAsValues, model.OutputFactors,
	model.SigmoidRouters, model.SparseMixers, model.RouterBiases, model.ScaledExperts, model.CappedRouters, model.ExpertGroups,
	model.WeighedExpertInputs, model.LatentExperts, model.SharedExperts, model.ExpertBiases, model.ExpertFactors, model.ExpertsBesideNetwork,
	model.ShortConvolutions, model.GatedDeltaNet, model.DecaysByChannel, model.StateSpaces, model.SideBySide, model.NetworksAlone, model.MixersAlone, model.OutputGates}

// computes refuses models that this backend has no kernels for in any layer.
func computes(name string, m *model.Model) error {
	if err := m.PlainOutside(name, computed...); err != nil {
		return fmt.Errorf("vulkan: %w", err)
	}
	switch {
	case m.LogN:
		return noKernels(name, "queries that grow with the position (LogN)")
	case m.Act == model.XIELU:
		return noKernels(name, fmt.Sprintf("activation %d", m.Act))
	}
	return nil
}

func noKernels(name, what string) error {
	return fmt.Errorf("vulkan: backend %s has no kernels for %s: %w", name, what, model.ErrUnsupported)
}

// lacks is what of a layer there are no kernels for; empty = nothing.
func lacks(m *model.Model, layer int) string {
	switch a := &m.Layer[layer]; {
	case max(a.KeyDim, a.ValDim) > widest:
		return fmt.Sprintf("heads of %d numbers (%d at most)", max(a.KeyDim, a.ValDim), widest)
	}
	if what := lacksMixer(&m.Layer[layer]); what != "" {
		return what
	}
	return string(m.Beyond(layer, computed...))
}

// open opens the device of a backend's name; done closes it.
func open(name string) (d *vulkan.Device, done func(), err error) {
	i, err := vulkan.Open()
	if err != nil {
		return nil, nil, err
	}
	list, err := i.Devices()
	if err == nil {
		var p *vulkan.Physical
		if p, err = choose(name, list); err == nil {
			d, err = p.Open()
		}
	}
	if err != nil {
		i.Close()
		return nil, nil, err
	}
	return d, func() {
		d.Close()
		i.Close()
	}, nil
}

// choose takes the device for a backend's name: the first discrete GPU, else an integrated or a virtual one; a CPU only by its name.
func choose(name string, list []*vulkan.Physical) (*vulkan.Physical, error) {
	kinds := []vulkan.Kind{vulkan.Discrete, vulkan.Integrated, vulkan.Virtual}
	if name == CPU {
		kinds = []vulkan.Kind{vulkan.CPU}
	}
	for _, kind := range kinds {
		for _, p := range list {
			if p.Kind == kind {
				return p, nil
			}
		}
	}
	switch {
	case len(list) == 0:
		return nil, fmt.Errorf("vulkan: the loader finds no driver with a device, see 'infer devices': %w", vulkan.ErrNoDevice)
	case name == CPU:
		return nil, fmt.Errorf("vulkan: no driver computes on the CPU (Debian: mesa-vulkan-drivers): %w", vulkan.ErrNoDevice)
	}
	return nil, fmt.Errorf("vulkan: no GPU, only %s (%v); --backend %s takes a driver for the CPU: %w", list[0].Name, list[0].Kind, CPU, vulkan.ErrNoDevice)
}

// DeviceLayers implements model.LayerPlacer.
func (b *backend) DeviceLayers() (int, string) { return len(b.m.Layer), "" }

// Name implements model.Backend.
func (b *backend) Name() string { return b.name }

// Close implements model.Backend.
func (b *backend) Close() error {
	b.close()
	return nil
}

// input is where the values of a tensor lie on the device; they are uploaded to a slot where they lie elsewhere.
func (b *backend) input(t *tensor.Dense, s *slot) (span, error) {
	if h, ok := t.Engine().(*held); ok && h.b == b.recorder && !h.wrote {
		return h.on, nil
	}
	x := t.Float32s()
	to, err := s.room(b.recorder, len(x))
	if err != nil {
		return span{}, deviceError(err)
	}
	b.use.UpBytes += int64(4 * len(x))
	return to, b.upload(to, vulkan.Bytes(x))
}

// begin is Embed of a pass whose first layers are computed elsewhere.
func (b *backend) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mirrors.pass++
	return b.settle()
}

// Embed implements model.Backend. Only ids and positions are uploaded.
func (b *backend) Embed(p *model.Pass, ids []int32) (*tensor.Dense, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, n := b.m, len(ids)
	for i, id := range ids {
		if id < 0 || int(id) >= m.Vocab {
			return nil, fmt.Errorf("vulkan: token %d of the pass is id %d, the vocabulary has %d: %w", i, id, m.Vocab, model.ErrToken)
		}
	}
	b.mirrors.pass++
	if err := b.settle(); err != nil {
		return nil, err
	}
	s := b.steps(p)
	width := m.Params.Embed.Cols
	first := &b.embedded
	if !m.Params.EmbedIn.Absent() {
		first = &b.narrow
	}
	s.lookup(m.Params.Embed, ids, s.room(first, n*width), orOne(m.EmbedScale), !m.Params.EmbedIn.Absent(), 0)
	if !m.Params.EmbedIn.Absent() {
		s.product(m.Params.EmbedIn, s.on(first), s.room(&b.embedded, n*m.Hidden), n, 1, 0)
	}
	if m.Params.Positions != nil {
		rows := make([]int32, n)
		for i, pos := range p.Pos {
			if rows[i] = pos + int32(m.PosOffset); int(rows[i]) >= m.Params.Positions.Rows {
				return nil, fmt.Errorf("vulkan: position %d, the model has learned %d: %w", pos, m.Params.Positions.Rows-m.PosOffset, model.ErrConfig)
			}
		}
		s.lookup(m.Params.Positions, rows, s.on(&b.embedded), 1, false, addTo)
	}
	if !m.Params.EmbedNorm.W.Absent() && m.Params.EmbedIn.Absent() {
		s.norm(m.Params.EmbedNorm, s.on(&b.embedded), s.on(&b.embedded), n, m.Hidden)
	}
	return s.result(&b.embedded, n, m.Hidden, false)
}

// Project implements model.Backend. Keys and values come down with the submission that the first reading of them makes.
func (b *backend) Project(p *model.Pass, layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, l, n := &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer], len(p.Pos)
	b.turn = 1 - b.turn
	s := b.steps(p)
	x := s.attentionInput(l, s.input(hidden, &b.block), n)
	s.give(layer)
	width := a.KVHeads * a.ValDim
	qs, ks, vs := s.room(&b.q, n*l.Q.Rows), s.room(&b.k[b.turn], n*l.K.Rows), s.room(&b.v[b.turn], n*width)
	s.product(l.Q, x, qs, n, 1, 0)
	s.besides(func() { s.product(l.K, x, ks, n, 1, 0) })
	if l.V != nil {
		s.besides(func() { s.product(l.V, x, vs, n, 1, 0) })
	} else {
		s.copyRows(vs, ks, n*width)
	}
	if !l.VNorm.W.Absent() {
		s.norm(l.VNorm, vs, vs, n*a.KVHeads, a.ValDim)
	}
	s.turn(layer, qs, a.Heads, a.KeyDim, l.QNorm)
	s.turn(layer, ks, a.KVHeads, a.KeyDim, l.KNorm)
	if q, err = s.result(&b.q, n, l.Q.Rows, false); err == nil {
		if k, err = s.result(&b.k[b.turn], n, l.K.Rows, true); err == nil {
			v, err = s.result(&b.v[b.turn], n, width, true)
		}
	}
	return q, k, v, err
}

// GuessQuery implements model.QueryGuesser.
func (b *backend) GuessQuery(p *model.Pass, layer int, hidden *tensor.Dense) (*tensor.Dense, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, l, n := &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer], len(p.Pos)
	s := b.steps(p)
	x := s.attentionInput(l, s.input(hidden, &b.block), n)
	s.give(layer)
	qs := s.room(&b.guessed, n*l.Q.Rows)
	s.product(l.Q, x, qs, n, 1, 0)
	s.turn(layer, qs, a.Heads, a.KeyDim, l.QNorm)
	return s.result(&b.guessed, n, l.Q.Rows, true)
}

// Finish implements model.Backend. A layer whose experts are computed elsewhere ends behind its attention block.
func (b *backend) Finish(p *model.Pass, layer int, hidden, attended *tensor.Dense) (*tensor.Dense, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, n := b.m, hidden.Shape()[0]
	s := b.steps(p)
	x, from := s.room(&b.hidden, n*m.Hidden), s.input(hidden, &b.hidden)
	var out span
	if attended != nil {
		out = s.input(attended, &b.block)
	}
	if from != x {
		s.copyRows(x, from, n*m.Hidden)
	}
	if attended != nil {
		s.finishMixer(layer, out, x, n)
	}
	if b.apart[layer] {
		return s.result(&b.hidden, n, m.Hidden, true)
	}
	return s.network(layer, x, n)
}

// network is what Finish does behind the attention block.
func (b *backend) network(p *model.Pass, layer int, hidden *tensor.Dense) (*tensor.Dense, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, n := b.steps(p), hidden.Shape()[0]
	x, from := s.room(&b.hidden, n*b.m.Hidden), s.input(hidden, &b.hidden)
	if from != x {
		s.copyRows(x, from, n*b.m.Hidden)
	}
	return s.network(layer, x, n)
}

// Logits implements model.Backend.
func (b *backend) Logits(p *model.Pass, hidden *tensor.Dense) (*tensor.Dense, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, n := b.m, hidden.Shape()[0]
	s := b.steps(p)
	x := s.input(hidden, &b.block)
	if !m.NoFinal {
		x = s.normed(m.Params.FinalNorm, x, n, m.Hidden)
	}
	if w := m.Params.EmbedOut; !w.Absent() {
		narrow := s.room(&b.narrow, n*w.Rows)
		s.product(w, x, narrow, n, 1, 0)
		x = narrow
	}
	width := m.Params.Output.Rows
	y := s.room(&b.logits, n*width)
	s.product(m.Params.Output, x, y, n, orOne(m.LogitScale), 0)
	if m.LogitSoftcap > 0 {
		s.activate(softCap, y, span{}, y, n*width, m.LogitSoftcap)
	}
	return s.result(&b.logits, n, width, false)
}

// Argmax implements model.Chooser: 8 bytes a row come down.
func (b *backend) Argmax() (ids []int32, finite []bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.logits.h
	if h == nil {
		return nil, nil, fmt.Errorf("vulkan: likeliest tokens before any logits: %w", model.ErrUnsupported)
	}
	width := b.m.Params.Output.Rows
	n := len(h.host) / width
	s := b.steps(&model.Pass{Phase: kernels.Decode})
	y := s.room(&b.chosen, 2*n)
	s.run("argmax", push{}.at(h.on).at(y).int(width), n, 1, 1)
	if _, err = s.result(&b.chosen, n, 2, true); err != nil {
		return nil, nil, err
	}
	got, err := b.chosen.h.now()
	if err != nil {
		return nil, nil, err
	}
	both := vulkan.Ints(got)
	for i := range n {
		ids, finite = append(ids, both[2*i]), append(finite, both[2*i+1] != 0)
	}
	return ids, finite, nil
}

// DeviceUse implements model.KVKeeper.
func (b *backend) DeviceUse() model.DeviceUse {
	b.mu.Lock()
	defer b.mu.Unlock()
	use := b.use
	use.KVPeakBytes = b.mirrors.peak
	return use
}

// ForgetKV implements model.KVKeeper.
func (b *backend) ForgetKV(cache uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, m := range b.mirrors.all {
		if key.cache == cache {
			b.mirrors.drop(key, m)
		}
	}
}

// UploadKV implements model.KVKeeper: what the next layer's views show goes up beside the next Attend (aside.go), if there is room.
func (b *backend) UploadKV(layer int, views []attention.View) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known(views) {
		b.mirrors.aside.next = append(b.mirrors.aside.next, upload{layer, slices.Clone(views)})
	}
}

// SettleKV implements model.KVKeeper. A device that fails is told by the next call.
func (b *backend) SettleKV() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mirrors.aside.next = nil
	_ = b.mirrors.aside.wait()
}

func orOne(f float32) float32 {
	if f == 0 {
		return 1
	}
	return f
}
