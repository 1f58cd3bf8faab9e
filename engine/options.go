package engine

import (
	"fmt"
	"runtime"

	"terrace/engine/tier"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/internal/trace"
	"terrace/model"
	"terrace/offload"
	"terrace/policy"
)

// DefaultChunkTokens is how many prompt tokens one prefill pass takes: enough to reuse each weight panel hundreds of times,
// few enough that activations stay small.
const DefaultChunkTokens = 512

// Options of an engine; the zero value is the default path.
type Options struct {
	Backend       string                     // "" = native
	Threads       int                        // 0 = one a CPU
	Exact         bool                       // float32 activations and KV: the reference path
	KType, VType  kvpage.Elem                // element types of the cache; see KVTypeSet
	KVOwn         []kvpage.Own               // layers whose keys and values have other types, beside quantised ones
	KVTypeSet     bool                       // KType and VType were chosen; otherwise f16, f32 with Exact, and on other backends what they compute in
	PageTokens    int                        // tokens a page; 0 = 16, of int3 and int2 keys 128
	KVWindow      int                        // newest tokens that quantised KV keeps in f16; see KVWindowSet
	KVWindowSet   bool                       // KVWindow was chosen, so 0 keeps none but those that do not fill a tile of 16 yet; otherwise 0 = 128
	Rotate        Rotation                   // what is turned by a Hadamard matrix before it is stored
	KVBudgetBytes int64                      // hard limit of the cache in host memory; 0 = none
	WindowOnly    bool                       // sessions without a policy keep of layers with a sliding window only what later rows read; Rewind reads again
	DeviceKVBytes int64                      // KV that a backend with a device of its own may hold there; 0 = no limit
	DeviceLayers  model.Placement            // model.BackendOptions.DeviceLayers, HostExperts
	DType         model.DType                // of weights and KV on a backend's device
	Context       int                        // tokens a session may hold; 0 = what the model was trained for
	Policy        string                     // KV policy, name:key=value,… joined by +; "" = full
	Calibration   []int                      // ids of a sample text, for policies that decompose the model's queries or keys
	Repeat        *RepeatText                // for policies that have the model repeat its prompt; nil = there are no words for that
	Filters       map[string]*policy.Filters // that policies may name (policy.Model.Filters)
	CacheDir      string                     // where such a decomposition is kept; "" = computed each time
	ChunkTokens   int                        // prompt tokens a prefill pass takes; 0 = DefaultChunkTokens
	Tiers         []tier.Tier                // where KV lies, fastest first; empty = host memory, up to KVBudgetBytes
	TierRate      float64                    // bytes a second that an ssd tier reads, as measured, where rates choose what lies there (xcache=auto); 0 = it is measured briefly
	Store         offload.Store              // a lower tier that is open already, the caller's to close; nil = what Tiers names
	Host          offload.HostRates          // this host's throughputs as measured, for policies that balance it with a drive; zero = not measured
	Trace         *trace.Recorder            // timeline of compute, transfers and waits; nil = none
	Batch         int                        // texts that are expected to decode together and share KVBudgetBytes; 0 = 1
	Machine       tier.Machine               // what the engine runs on; zero = this one
}

// Validate fills defaults and names what is wrong.
func (o *Options) Validate(m *model.Model) error {
	if o.Backend == "" {
		o.Backend = "native"
	}
	if o.Threads == 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if o.Machine.Host != nil {
		o.Host = *o.Machine.Host
	}
	if o.Threads < 1 || o.Threads > 1024 {
		return fmt.Errorf("engine: %d threads, want 1 to 1024: %w", o.Threads, ErrOption)
	}
	if o.Context == 0 {
		o.Context = m.Context
	}
	if o.Context < 1 {
		return fmt.Errorf("engine: context of %d tokens: %w", o.Context, ErrOption)
	}
	if o.ChunkTokens == 0 {
		o.ChunkTokens = DefaultChunkTokens
	}
	if o.ChunkTokens < 1 {
		return fmt.Errorf("engine: prefill chunks of %d tokens: %w", o.ChunkTokens, ErrOption)
	}
	if !o.KVTypeSet {
		o.KType, o.VType = kvpage.F16, kvpage.F16
		if o.Exact || o.Backend != "native" { // the other backends compute in float32
			o.KType, o.VType = kvpage.F32, kvpage.F32
		}
		if o.DType == model.BFloat16 {
			o.KType, o.VType = kvpage.BF16, kvpage.BF16
		}
	}
	if o.Exact && o.DType != model.Float32 {
		return fmt.Errorf("engine: the exact path computes in f32, not %v: %w", o.DType, ErrOption)
	}
	if o.Exact && (o.KType != kvpage.F32 || o.VType != kvpage.F32) {
		return fmt.Errorf("engine: the exact path keeps KV in f32, not %v and %v: %w", o.KType, o.VType, ErrOption)
	}
	_, err := marked(m, o)
	return err
}

// backend is what the backend is opened with.
func (o *Options) backend() model.BackendOptions {
	return model.BackendOptions{Threads: o.Threads, DeviceKVBytes: o.DeviceKVBytes, DeviceLayers: o.DeviceLayers.Layers, HostExperts: o.DeviceLayers.HostExperts, DType: o.DType, Trace: o.Trace}
}

// format is the layout of the cache's pages but for the widths, which are each layer's: keys lie token by token where the policy picks
// single ones, unless they share scales.
func (o *Options) format(spec *policy.Spec) kvpage.Layout {
	return kvpage.Layout{K: o.KType, V: o.VType, Tokens: o.PageTokens, TokenMajor: spec.Needs().TokenGranularity && !o.KType.Quantised()}
}

// checkKV refuses, before anything is read, what would fail or mislead in the middle.
func (o *Options) checkKV(m *model.Model, spec *policy.Spec) error {
	for i := range m.Layer {
		if m.Layer[i].Latent != nil && (o.Rotate.turns() || o.KType != o.VType || o.KType.Quantised()) {
			return fmt.Errorf("engine: layer %d keeps latent keys, which are its values too: want f32, f16 or bf16 for both, not turned by a matrix: %w", i, model.ErrUnsupported)
		}
		if dim := m.Layer[i].KeyDim; o.Rotate.Keys() && m.Layer[i].Heads > 0 && kernels.RotateBlock(dim) == 1 {
			return fmt.Errorf("engine: heads of %d numbers cannot be rotated, an odd number has no Hadamard matrix: %w", dim, model.ErrUnsupported)
		}
	}
	if n := spec.Needs(); o.Rotate.Keys() && n.OwnChannels {
		return fmt.Errorf("engine: policy %s needs queries or keys in the model's own channels, which the rotation hides; --kv-rotate=v leaves keys as they are: %w", spec, model.ErrUnsupported)
	}
	if (o.KType.Quantised() || o.VType.Quantised()) && spec.DropsEachStep() {
		return fmt.Errorf("engine: policy %s drops a token at each step, which would quantise the same %v keys and %v values again and again; use f16 KV, or decoding:, which cuts seldom: %w",
			spec, o.KType, o.VType, model.ErrUnsupported)
	}
	return o.checkFollow(spec)
}

// checkFollow refuses what cannot be followed.
func (o *Options) checkFollow(spec *policy.Spec) error {
	block, ok := spec.Follows()
	if !ok {
		return nil
	}
	if o.KType.Quantised() || o.VType.Quantised() {
		return fmt.Errorf("engine: policy %s brings tokens back between others, which %v keys and %v values do not allow; use f16 KV, or revive=none: %w", spec, o.KType, o.VType, model.ErrUnsupported)
	}
	if page := pageTokens(o); block > 1 && block%page != 0 {
		return fmt.Errorf("engine: policy %s swaps blocks of %d tokens, want a multiple of the page's %d, or revive=none: %w", spec, block, page, model.ErrUnsupported)
	}
	return nil
}

// underWayBytes is how much may be under way between host memory and a tier below it: what is staged for it counts as host
// memory, so that little of that means little of this.
func underWayBytes(o *Options) int64 {
	const most, least = 2 << 20, 64 << 10
	if o.KVBudgetBytes == 0 {
		return most
	}
	return max(least, min(most, o.KVBudgetBytes/32))
}
