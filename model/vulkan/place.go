package vulkan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"terrace/internal/units"
	"terrace/model"
)

// besideWeights is how much of a device's memory is left for what passes need beside weights and KV: staging, activations, logits.
const besideWeights = 256 << 20

// placement is where layers are computed.
type placement struct {
	on    []bool // the device computes the layer,
	apart []bool // but for its experts, and the network beside them, which the host computes
	alone []bool // the device computes these alone, and the host the layer
	why   string // there are no more; empty where that was not asked for
}

// placed is a placement of layers that are whole.
func placed(on []bool) placement {
	return placement{on: on, apart: make([]bool, len(on)), alone: make([]bool, len(on))}
}

// ofMixers are features of a layer that its network knows nothing of.
var ofMixers = []model.Feature{model.ShortConvolutions, model.GatedDeltaNet, model.DecaysByChannel, model.StateSpaces, model.SideBySide, model.NetworksAlone,
	model.LatentKeys, model.SharedKeys, model.OutputGates, model.Chunks, model.Temperatures, model.NormsAfterRotation,
	model.HeadNormWeights}

// count is how many layers the device computes whole, and why no more.
func (p *placement) count() (n int, why string) {
	apart, alone := 0, 0
	for i, on := range p.on {
		switch {
		case p.apart[i]:
			apart++
		case p.alone[i]:
			alone++
		case on:
			n++
		}
	}
	var all []string
	if apart > 0 {
		all = append(all, fmt.Sprintf("of %d the device computes all but the experts", apart))
	}
	if alone > 0 {
		all = append(all, fmt.Sprintf("of %d the device computes the experts alone", alone))
	}
	if p.why != "" {
		all = append(all, p.why)
	}
	return n, strings.Join(all, "; ")
}

// openSome opens the device for the last layers, as many as were asked for or have room, without those that it has no kernels for.
func openSome(name string, m *model.Model, o model.BackendOptions) (model.Backend, error) {
	if err := computes(name, m); err != nil {
		return nil, err
	}
	free := int64(math.MaxInt64)
	if o.DeviceLayers == model.AutoLayers {
		size, err := memoryOf(name)
		if err != nil {
			return nil, err
		}
		free = size - size/10 - besideWeights - o.DeviceKVBytes
	}
	at, lacking := place(m, o, free)
	switch none := !slices.Contains(at.on, true) && !slices.Contains(at.alone, true); {
	case lacking != "" && (none || o.DeviceLayers == model.AllLayers):
		return nil, noKernels(name, lacking)
	case none:
		return nil, fmt.Errorf("vulkan: backend %s: %s; --backend native needs none: %w", name, at.why, model.ErrDeviceMemory)
	}
	return openPlaced(name, m, o, at)
}

// place chooses the layers that the device computes in so many bytes of its memory: the last ones, all but their experts first, since it has the
// keys and values of whatever it attends in; then the experts of the last ones. lacking is what of them there are no kernels for.
func place(m *model.Model, o model.BackendOptions, free int64) (at placement, lacking string) {
	at = placed(make([]bool, len(m.Layer)))
	left := o.DeviceLayers // of AutoLayers it is never 0
	if left == model.AllLayers {
		left = len(m.Layer)
	}
	miss := func(what string, layer int) {
		lacking, at.why = what, fmt.Sprintf("there are no kernels for %s, which layer %d has", what, layer)
	}
	last := len(m.Layer) - 1
	for i := last; i >= 0 && left != 0; i-- {
		left--
		if what := lacks(m, i); what != "" {
			miss(what, i)
			at.alone[i] = m.Layer[i].MoE && m.Beyond(i, slices.Concat(computed, ofMixers)...) == ""
			continue
		}
		at.apart[i] = m.Layer[i].MoE
		need := bytesOf(ofLayer(at.part(m, i)))
		if i == last {
			need += bytesOf(behind(&m.Params))
		}
		if i == 0 {
			need += bytesOf(before(&m.Params))
		}
		if need > free {
			at.apart[i], at.why = false, fmt.Sprintf("the device has no room for layer %d, which takes %s", i, units.FormatBytes(need))
			break
		}
		free -= need
		at.on[i] = true
	}
	free -= mixingBytes(m)
	for i := range min(o.HostExperts, last+1) {
		at.alone[i] = false
	}
	for i := last; i >= o.HostExperts; i-- {
		if !at.apart[i] && !at.alone[i] {
			continue
		}
		need := networkBytes(&m.Params.Layers[i])
		if what := lacksExperts(m, i); what != "" {
			miss(what, i)
			at.alone[i] = false
		} else if need > free {
			at.why = fmt.Sprintf("it has no room for those of layer %d, which take %s", i, units.FormatBytes(need))
			clear(at.alone[:i+1])
			break
		} else {
			free -= need
			at.apart[i] = false
		}
	}
	return at, lacking
}

// part is what of a layer the device computes.
func (p *placement) part(m *model.Model, layer int) *model.LayerParams {
	l := &m.Params.Layers[layer]
	switch {
	case p.alone[layer]:
		return &model.LayerParams{FFNNorm: l.FFNNorm, PostFFNNorm: l.PostFFNNorm, Gate: l.Gate, Up: l.Up, Down: l.Down, Beside: l.Beside,
			Router: l.Router, RouterBias: l.RouterBias, ExpertScale: l.ExpertScale, ExpertIn: l.ExpertIn, ExpertOut: l.ExpertOut,
			SharedGate: l.SharedGate, SharedUp: l.SharedUp, SharedDown: l.SharedDown, SharedRouter: l.SharedRouter,
			ExpertGate: l.ExpertGate, ExpertUp: l.ExpertUp, ExpertDown: l.ExpertDown}
	case !p.apart[layer]:
		return l
	}
	mixer := *l
	mixer.Gate, mixer.Up, mixer.Down, mixer.Beside, mixer.ExpertIn, mixer.ExpertOut = nil, nil, nil, nil, nil, nil
	mixer.Router, mixer.RouterBias, mixer.ExpertScale = nil, nil, nil
	mixer.SharedGate, mixer.SharedUp, mixer.SharedDown, mixer.SharedRouter = nil, nil, nil, nil
	mixer.ExpertGate, mixer.ExpertUp, mixer.ExpertDown = nil, nil, nil
	return &mixer
}

// networkBytes is what experts and the network beside them take on the device.
func networkBytes(l *model.LayerParams) int64 {
	n := bytesOf([]*model.Linear{l.Gate, l.Up, l.Down, l.Router, l.SharedRouter, l.SharedGate, l.SharedUp, l.SharedDown, l.ExpertIn, l.ExpertOut}, nil)
	for _, list := range expertsOf(l) {
		n += bytesOf(list, nil)
	}
	return n
}

// mixingBytes is what a pass of a prompt needs for the pairs of its rows with experts.
func mixingBytes(m *model.Model) (most int64) {
	const rows = 512
	for i := range m.Params.Layers {
		if l := &m.Params.Layers[i]; len(l.ExpertUp) > 0 {
			most = max(most, rows*int64(m.TopK)*4*int64(2*l.ExpertUp[0].Rows+m.ExpertRow()))
		}
	}
	return most * 5 / 4 // slots have a quarter more
}
