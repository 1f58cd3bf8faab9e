package convert

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"terrace/internal/kernels/quant"
	"terrace/weights"
	"terrace/weights/gguf"
)

// Wider is a shape of keys and values that a model is brought to; 0 = the model's own.
type Wider struct {
	KVHeads int // heads of keys and values, at least the model's
	HeadDim int // numbers of a key and of a value, at least the model's
	Layers  int // fewer: the first ones alone; more: layers that attend and add nothing
}

// WidenArchs are the architectures that Widen can write.
var WidenArchs = []string{"llama", "qwen2", "qwen3", "gemma3"}

// Widen writes the model src as the GGUF file dst with more and wider heads, so that its KV cache has the bytes of a larger model's and its
// logits are, up to rounding, its own (with fewer layers: those of the layers that are left).
//
// Each KV head is there several times. Its query heads are shared among the copies and repeated where copies are left over; the columns of
// the output matrix that belong to n repetitions of a head are its own, divided by powers of two whose reciprocals sum to 1. Heads get zeros
// behind their numbers: scores keep their scale (attention.scale), norms of q and k are multiplied by the root of the old width over the
// new (and see an epsilon of new over old times its size), and pairs keep their rotary frequencies, by a larger base where an architecture rotates whole heads (b^(-2i/d) is (b^(w/d))^(-2i/w)),
// else because only the old numbers rotate. A layer that adds nothing is the last one with zeros for its last matrices.
//
// Matrices keep their types; output matrices whose heads are no whole blocks, or whose scales would be rounded, become F32. Only o.Progress and o.Notice are used. Errors wrap
// ErrWiden, ErrType, weights.ErrFormat, the context's or those of the system.
func Widen(ctx context.Context, src *weights.Model, dst string, to Wider, o Options) error {
	w, err := newWidening(src, to)
	if err != nil {
		return err
	}
	parts, infos, err := w.plan(src.Tensors(), o)
	if err != nil {
		return err
	}
	meta, err := w.fileMeta(src, o)
	if err != nil {
		return err
	}
	return create(ctx, dst, meta, infos, o, func(out *writer) error {
		for i, p := range parts {
			for _, t := range p.tensor.Parts() {
				if err := p.write(out, t, infos[i]); err != nil {
					return err
				}
				t.Drop()
			}
		}
		return src.CheckUnchanged()
	})
}

// widening is from which heads of a model those of the wider one are made.
type widening struct {
	arch           string
	layers, wanted int // of the source and of the result
	heads, kvHeads int // of the source
	dim, keyDim    int // numbers of a head: of the result, and of the source's keys
	valDim         int // of the source's values
	kv             []int
	slots          []slot
	orders         map[string]rowOrder // of the source's rows, by tensor
}

// slot is a query head of the result.
type slot struct {
	head   int // of the source
	halved int // its output is divided by 2^halved
}

func newWidening(src *weights.Model, to Wider) (*widening, error) {
	meta := src.Meta()
	arch, err := meta.String("general.architecture")
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	if !slices.Contains(WidenArchs, arch) {
		return nil, fmt.Errorf("convert: heads of %s cannot be widened, those of %s can: %w", arch, strings.Join(WidenArchs, ", "), ErrWiden)
	}
	w := &widening{arch: arch, orders: map[string]rowOrder{}}
	figures := intReader{meta: meta, arch: arch}
	w.layers, w.heads = figures.get("block_count", 0), figures.get("attention.head_count", 0)
	w.kvHeads = figures.get("attention.head_count_kv", w.heads)
	hidden := figures.get("embedding_length", 0)
	if figures.err == nil && w.heads > 0 {
		w.keyDim, w.valDim = figures.get("attention.key_length", hidden/w.heads), figures.get("attention.value_length", hidden/w.heads)
	}
	if figures.err != nil {
		return nil, figures.err
	}
	if w.layers < 1 || w.kvHeads < 1 || w.heads%w.kvHeads != 0 || w.keyDim < 2 || w.valDim < 1 {
		return nil, fmt.Errorf("convert: %d layers of %d heads, %d of keys and values, of %d and %d numbers: %w", w.layers, w.heads, w.kvHeads, w.keyDim, w.valDim, gguf.ErrFormat)
	}
	w.wanted, w.dim = orSame(to.Layers, w.layers), orSame(to.HeadDim, max(w.keyDim, w.valDim))
	kvHeads := orSame(to.KVHeads, w.kvHeads)
	if w.wanted < 1 || w.wanted > 1024 || kvHeads < w.kvHeads || kvHeads > 4096 || w.dim < max(w.keyDim, w.valDim) || w.dim > 4096 || w.dim%2 != 0 {
		return nil, fmt.Errorf("convert: %d layers of %d KV heads of %d numbers: want 1 to 1024 layers, at least the model's %d heads, and an even width of at least its %d: %w",
			w.wanted, kvHeads, w.dim, w.kvHeads, max(w.keyDim, w.valDim), ErrWiden)
	}
	w.shareHeads(kvHeads)
	orders, err := ordersFor(meta, src.Tensors())
	if err != nil {
		return nil, err
	}
	for i, t := range src.Tensors() {
		w.orders[t.Name] = orders[i]
	}
	return w, nil
}

func orSame(asked, own int) int {
	if asked == 0 {
		return own
	}
	return asked
}

// intReader reads integers of an architecture's metadata; of a list whose items are equal, that item.
type intReader struct {
	meta *gguf.Meta
	arch string
	err  error
}

// get returns a figure; 0 for def means that it must be there.
func (r *intReader) get(name string, def int) int {
	key := r.arch + "." + name
	if def != 0 && !r.meta.Has(key) {
		return def
	}
	if list, err := r.meta.Ints(key); err == nil && len(list) > 0 {
		if slices.Max(list) != slices.Min(list) && r.err == nil {
			r.err = fmt.Errorf("convert: %s differs from layer to layer: %w", key, ErrWiden)
		}
		return list[0]
	}
	n, err := r.meta.Int(key)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("convert: %w", err)
	}
	return n
}

// shareHeads lays out n KV heads, the source's in turn, and gives each as many query heads as the one with the fewest copies needs.
func (w *widening) shareHeads(n int) {
	group := w.heads / w.kvHeads
	each := (group + n/w.kvHeads - 1) / (n / w.kvHeads) // query heads of a KV head
	w.kv, w.slots = make([]int, n), make([]slot, n*each)
	times := make([]int, w.heads)
	for i := range w.slots {
		kv, copied := i/each%w.kvHeads, i/each/w.kvHeads
		head := kv*group + (copied*each+i%each)%group
		w.kv[i/each], w.slots[i] = kv, slot{head: head}
		times[head]++
	}
	used := make([]int, w.heads)
	for i := range w.slots {
		head := w.slots[i].head
		w.slots[i].halved = share(used[head], times[head])
		used[head]++
	}
}

// share is the exponent of the i-th of n powers of a half that sum to 1: floor(log2 n) for the first ones, one more for the others.
func share(i, n int) int {
	low := 0
	for 2<<low <= n {
		low++
	}
	if i < 2<<low-n {
		return low
	}
	return low + 1
}

var layerTensor = regexp.MustCompile(`^blk\.(\d+)\.(.+)$`)

// plan lists what is written, in the order of the source, then the layers that add nothing.
func (w *widening) plan(tensors []*gguf.Tensor, o Options) ([]widePart, []gguf.Info, error) {
	var parts []widePart
	var infos []gguf.Info
	whole := 0
	add := func(t *gguf.Tensor, name, kind string, empty bool) error {
		p, err := w.part(t, kind, empty)
		if err != nil {
			return err
		}
		if p.kind != t.Type {
			whole++
		}
		parts, infos = append(parts, p), append(infos, gguf.Info{Name: name, Type: p.kind, Shape: p.shape})
		return nil
	}
	var last []*gguf.Tensor
	for _, t := range tensors {
		if t.Type.Internal() {
			return nil, nil, fmt.Errorf("convert: tensor %q of %s: quantise the model first: %w", t.Name, t.Type, ErrType)
		}
		kind := t.Name
		if m := layerTensor.FindStringSubmatch(t.Name); m != nil {
			layer, _ := strconv.Atoi(m[1])
			if layer == w.layers-1 {
				last = append(last, t)
			}
			if layer >= w.wanted {
				continue
			}
			kind = m[2]
		}
		if err := add(t, t.Name, kind, false); err != nil {
			return nil, nil, err
		}
	}
	for layer := w.layers; layer < w.wanted; layer++ {
		for _, t := range last {
			kind := layerTensor.FindStringSubmatch(t.Name)[2]
			empty := strings.HasPrefix(kind, "attn_output.") || strings.HasPrefix(kind, "ffn_down")
			if err := add(t, fmt.Sprintf("blk.%d.%s", layer, kind), kind, empty); err != nil {
				return nil, nil, err
			}
		}
	}
	if whole > 0 {
		o.notice("%d output matrices are written as F32: their heads are no whole blocks of their type, or cannot be divided in it without rounding", whole)
	}
	return parts, infos, nil
}

// fileMeta is the metadata of the wider model.
func (w *widening) fileMeta(src *weights.Model, o Options) (*gguf.Meta, error) {
	o.Type = quant.F16
	meta, err := fileMeta(src, o)
	if err != nil {
		return nil, err
	}
	if kind, err := src.Meta().Int("general.file_type"); err == nil {
		meta.Set("general.file_type", uint32(kind))
	}
	if err := w.layerLists(meta); err != nil {
		return nil, err
	}
	scale := 1 / math.Sqrt(float64(w.keyDim))
	if own, err := meta.Float(w.arch + ".attention.scale"); err == nil {
		scale = own
	}
	for key, value := range map[string]int{
		"block_count": w.wanted, "attention.head_count": len(w.slots), "attention.head_count_kv": len(w.kv),
		"attention.key_length": w.dim, "attention.value_length": w.dim,
	} {
		meta.Set(w.arch+"."+key, uint32(value))
	}
	meta.Set(w.arch+".attention.scale", float32(scale))
	return meta, w.rotary(src, meta)
}

// layerLists cuts or lengthens what the metadata has of each layer.
func (w *widening) layerLists(meta *gguf.Meta) error {
	for _, key := range meta.Keys() {
		if w.wanted == w.layers || !strings.HasPrefix(key, w.arch+".") || meta.Len(key) != w.layers {
			continue
		}
		if list, err := meta.Ints(key); err == nil {
			meta.Set(key, resized(list, w.wanted))
		} else if list, err := meta.Floats(key); err == nil {
			meta.Set(key, resized(list, w.wanted))
		} else {
			return fmt.Errorf("convert: %s has an item a layer that is no number: %w", key, ErrWiden)
		}
	}
	return nil
}

// resized is the first n items of a list, its last one repeated where it has fewer.
func resized[T any](list []T, n int) []T {
	out := slices.Clone(list[:min(n, len(list))])
	for len(out) < n {
		out = append(out, list[len(list)-1])
	}
	return out
}

// largestBase is the largest base of rotary frequencies that package model reads.
const largestBase = 1e12

// rotary keeps the frequencies of the pairs.
func (w *widening) rotary(src *weights.Model, meta *gguf.Meta) error {
	key := func(name string) string { return w.arch + "." + name }
	if w.arch != "llama" {
		if !meta.Has(key("rope.dimension_count")) {
			meta.Set(key("rope.dimension_count"), uint32(w.keyDim))
		}
		return nil
	}
	if w.dim == w.keyDim {
		return nil
	}
	for _, name := range []string{"terrace.rope.scaling.type", key("rope.scaling.type")} {
		if method, err := meta.String(name); err == nil && method != "none" && method != "linear" {
			return fmt.Errorf("convert: rotary scaling %q depends on the width of a head: %w", method, ErrWiden)
		}
	}
	if src.Has("rope_factors_long.weight") {
		return fmt.Errorf("convert: rotary scaling \"longrope\" depends on the width of a head: %w", ErrWiden)
	}
	base := 10000.0
	if own, err := meta.Float(key("rope.freq_base")); err == nil {
		base = own
	}
	wider := math.Pow(base, float64(w.dim)/float64(w.keyDim))
	if wider > largestBase {
		return fmt.Errorf("convert: heads of %d numbers instead of %d need a rotary base of %.3g, above %.3g: %w", w.dim, w.keyDim, wider, float64(largestBase), ErrWiden)
	}
	meta.Set(key("rope.freq_base"), float32(wider))
	meta.Set(key("rope.dimension_count"), uint32(w.dim))
	return nil
}
