package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/trace"
)

// Pass is what the rows of one pass have in common, and where they stand. Rows of one sequence are adjacent and in order.
type Pass struct {
	Phase kernels.Phase // arithmetic: fast prefill, fast decode, or exact float32
	Pos   []int32       // [n] position of each row
	Len   []int32       // [n] length of the row's sequence as rotary scaling sees it; nil = Pos+1
	Steps int           // of a Prefill pass: so many of the last rows are decode steps, computed in the Decode phase (Mixer)
}

// Backend is the seam between what computes and what decides: four calls a layer, so that selection of KV and pruning of
// rows can stand between them whatever computes. n is the rows of the pass, each of Config.RowWidth numbers; tensors are float32, row-major.
//
// Returned tensors are the backend's scratch: they hold until the same method is called again (hidden: until the next pass).
type Backend interface {
	// Name is the name the backend was asked for by, as results show it.
	Name() string
	// Embed returns the hidden rows [n, RowWidth] of token ids at their positions; an id outside the vocabulary is ErrToken.
	Embed(p *Pass, ids []int32) (*tensor.Dense, error)
	// Project returns q [n, H·dk], k [n, G·dk] (both rotated) and v [n, G·dv] of the layer for hidden [n, RowWidth].
	Project(p *Pass, layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error)
	// Attend returns attention output [n, H·dv] of q [n, H·dk] over the sequences' KV; seqs partition the rows in order.
	// Their Q, Pos and Out fields are filled by the backend.
	Attend(p *Pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error)
	// Finish adds the attention block and the feed-forward block to hidden [n, RowWidth], which it may change in place, and
	// returns it.
	Finish(p *Pass, layer int, hidden, attended *tensor.Dense) (*tensor.Dense, error)
	// Logits returns [n, V] of hidden [n, RowWidth].
	Logits(p *Pass, hidden *tensor.Dense) (*tensor.Dense, error)
	// Close gives back threads and device memory.
	Close() error
}

// QueryGuesser is the optional capability of speculating the next layer's query: W_Q(layer)·norm(hidden), rotated, where
// hidden is an earlier layer's input (InfiniGen; HillInfer step 2 of algorithms.md 1.3).
type QueryGuesser interface {
	GuessQuery(p *Pass, layer int, hidden *tensor.Dense) (*tensor.Dense, error)
}

// RowReader is the optional capability of saying what of its rows a layer works on, of models whose rows are more than the residual.
type RowReader interface {
	// LayerRows returns the rows [n, D] that a layer norms, of hidden [n, RowWidth] as Project takes it.
	LayerRows(p *Pass, layer int, hidden *tensor.Dense) ([]float32, error)
}

// MixerFinisher is the optional capability of ending a layer behind its attention, where another backend computes its network.
type MixerFinisher interface {
	// FinishMixer adds the attention block alone to hidden, which is changed in place; ErrUnsupported where a layer does more with it.
	FinishMixer(p *Pass, layer int, hidden, attended *tensor.Dense) error
}

// Chooser is the optional capability of choosing where the logits were computed, so that they need not be moved.
type Chooser interface {
	// Argmax returns for each row that Logits returned last the id of its largest logit, the lowest of equals, and whether
	// all of the row's are finite.
	Argmax() (ids []int32, finite []bool, err error)
}

// Mixer is the optional capability of passes in which rows of prompts and decode steps lie together (Pass.Steps). A row computes there
// what it computes in a pass of its own.
type Mixer interface{ MixesPhases() }

// PoolLender is the optional capability of lending the backend's threads to whoever works between its calls.
type PoolLender interface{ Pool() *kernels.Pool }

// KVKeeper is the optional capability of keeping copies of keys and values on a device, by the version of their pages. What its
// Project returns as k and v holds until the second next call, so that they can be read while the next layer is projected.
type KVKeeper interface {
	// ForgetKV drops the copies of a sequence that is gone (attention.View.Cache).
	ForgetKV(cache uint64)
	// UploadKV begins to copy to the device what a layer's views show and the device does not have, if there is room, beside
	// the calls for the layer before. Until the layer's Attend, or SettleKV, the pages stay as they are but for tokens added
	// behind.
	UploadKV(layer int, views []attention.View)
	// SettleKV ends and forgets what UploadKV began and no Attend has taken.
	SettleKV()
	// DeviceUse are the device's accounts since the backend was opened.
	DeviceUse() DeviceUse
}

// DeviceUse is what a device has done, held and moved, weights left out of the bytes.
type DeviceUse struct {
	KVPeakBytes int64 // most keys and values at a time
	UpBytes     int64 // host > device: activations, positions, keys and values
	DownBytes   int64 // device > host: results that were read

	Compute, Up, Down time.Duration // of programs and transfers, weights' included; they may overlap
}

// BackendOptions are what every backend is built with.
type BackendOptions struct {
	Threads       int             // worker threads, at least 1
	DeviceKVBytes int64           // keys and values that a backend with a device of its own may hold there; 0 = no limit
	DeviceLayers  int             // layers that a backend with a device computes there, the last ones; AllLayers, AutoLayers
	HostExperts   int             // layers, the first ones, whose experts such a backend leaves to the CPU
	DType         DType           // of weights, keys and values on the device; a backend that is not Typed has Float32 only
	Trace         *trace.Recorder // timeline of a device's computing and transfers; nil = none
}

// Values of BackendOptions.DeviceLayers: all layers, refused where the device cannot compute one or has no room; as many as it can compute
// and has room for.
const (
	AllLayers  = 0
	AutoLayers = -1
)

// Placement is BackendOptions.DeviceLayers and HostExperts.
type Placement struct{ Layers, HostExperts int }

// ParsePlacement parses "all", "auto" or a number of layers, at least 1; behind it may stand ",cpu-moe", which leaves the experts of all layers to
// the CPU, or ",cpu-moe=N", those of the first N. ErrConfig names what it is instead.
func ParsePlacement(s string) (p Placement, err error) {
	layers, experts, some := strings.Cut(s, ",")
	if some {
		what, n, counted := strings.Cut(experts, "=")
		if p.HostExperts = maxLayers; counted {
			p.HostExperts, err = strconv.Atoi(n)
		}
		if what != "cpu-moe" || err != nil || p.HostExperts < 0 {
			return Placement{}, fmt.Errorf("model: experts %q, want cpu-moe or cpu-moe=N of the first N layers: %w", experts, ErrConfig)
		}
	}
	switch layers {
	case "all":
		p.Layers = AllLayers
	case "auto":
		p.Layers = AutoLayers
	default:
		if p.Layers, err = strconv.Atoi(layers); err != nil || p.Layers < 1 {
			return Placement{}, fmt.Errorf("model: layers %q, want all, auto or a number from 1: %w", layers, ErrConfig)
		}
	}
	return p, nil
}

// LayerPlacer is the optional capability of computing some layers on a device and the others on the CPU.
type LayerPlacer interface {
	// DeviceLayers is how many layers the device computes whole, and why it computes no more; empty where that was not asked for.
	DeviceLayers() (n int, why string)
}

// NewBackend builds a backend for a model. Backends register themselves by name.
type NewBackend func(m *Model, o BackendOptions) (Backend, error)

var backends = map[string]NewBackend{}

// RegisterBackend is called from the init of each backend's package; a name given twice is a bug.
func RegisterBackend(name string, build NewBackend) {
	if _, dup := backends[name]; dup {
		panic("model: backend registered twice: " + name)
	}
	backends[name] = build
}

// Backends lists the registered backends.
func Backends() []string { return slices.Sorted(maps.Keys(backends)) }

// OpenBackend builds the named backend; an unknown name is ErrUnknownBackend with the known ones, a type that the backend does
// not compute in is ErrUnsupported.
func OpenBackend(name string, m *Model, o BackendOptions) (Backend, error) {
	build, ok := backends[name]
	if !ok {
		return nil, fmt.Errorf("model: backend %q: %w (known: %s)", name, ErrUnknownBackend, strings.Join(Backends(), ", "))
	}
	b, err := build(m, o)
	if err != nil {
		return nil, err
	}
	if _, places := b.(LayerPlacer); !places && (o.DeviceLayers != AllLayers || o.HostExperts > 0) {
		return nil, errors.Join(fmt.Errorf("model: backend %s computes all layers, and has none to share with the CPU: %w", name, ErrUnsupported), b.Close())
	}
	if o.DType == Float32 {
		return b, nil
	}
	if typed, ok := b.(Typed); !ok || typed.DType() != o.DType {
		return nil, errors.Join(fmt.Errorf("model: backend %s cannot compute in %v: %w", name, o.DType, ErrUnsupported), b.Close())
	}
	return b, nil
}
