package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"terrace/internal/kernels"
)

// triAttention keeps tokens whose keys queries of the future are expected to meet, by where a head's queries stand before RoPE (Mao et al.
// 2026, arXiv 2604.04921), made for the long thoughts of reasoning models: under decoding it is applied again every few steps. Queries
// gather around a center; so a head's product with a key of a distance Δ is a sum of waves over the planes f that RoPE turns:
//
//	S(k, Δ) = Σ_f |E q_f|·|k_f|·cos(ω_f·Δ + φ_f) + Σ_f (E|q_f| − |E q_f|)·|k_f|
//
// φ_f is the angle from k_f to E q_f before RoPE. Its mean over the distances to the positions N + 1, N + 2, N + 4, … is standardised over the
// tokens of each head, and the largest of the group counts. The waves' mean is one product with the rotated key, since E q_f is rotated
// to those positions once.
//
// Centers are of all queries so far, or from a file made of another text ([Centers]). Cost a layer: tokens·Heads·KeyDim·1.5
// multiply-adds, 17 times as many for the largest instead of the mean over distances.
type triAttention struct {
	scored
	file                    string // whose centers Model.Filters has; "" = those of the text itself
	reach                   int    // largest of the distances 1, 2, 4, …
	most                    bool   // over the distances, instead of the mean
	meanOfGroup             bool
	standard, waves, spread bool // which parts count
	prompt                  bool // the prompt is scored under decoding too
	given                   []*Centers
	seen                    []*Centers // shown last, by layer
	offsets                 []int
	triGroup
}

// triGroup is what the group of a KV head looks with, and sees.
type triGroup struct {
	mean      []float32   // [group][distances, or 1][KeyDim] rotated
	excess    []float32   // [group][planes]
	length    []float32   // [planes] of a key
	waved     []float32   // [distances]
	raw       [][]float32 // [group][tokens]
	sums      []float64
	vec, keys []float32
}

func init() {
	register(Info{
		Name:          "triattention",
		Summary:       "keeps keys that stand where the heads' queries, before RoPE, look from later positions; made for decoding",
		Paper:         "TriAttention: Efficient Long Reasoning with Trigonometric KV Compression, arXiv 2604.04921",
		Phase:         PhasePrompt,
		MayDropNewest: true,
		Params: append(budgetParams("50%"),
			Param{Name: "stats", Default: "prompt", Doc: "where queries stand: prompt (the text's own so far), or @FILE.safetensors with tensors layerNN_headNN.q_mean_real, .q_mean_imag and .q_abs_mean, as infer fit-scores --for triattention writes and its authors' .pt files hold"},
			Param{Name: "offset_max_length", Default: "65536", Doc: "largest of the distances 1, 2, 4, … that are looked from"},
			Param{Name: "score_aggregation", Default: "mean", Doc: "over these distances: mean or max"},
			Param{Name: "layer_perhead_aggregation", Default: "max", Doc: "over the group's heads: max or mean"},
			Param{Name: "normalize_scores", Default: "true", Doc: "standardise each head's scores"},
			Param{Name: "disable_mlr", Default: "false", Doc: "the second sum with E|q| alone"},
			Param{Name: "disable_trig", Default: "false", Doc: "leave the waves out"},
			Param{Name: "allow_prefill_compression", Default: "false", Doc: "under decoding the prompt's tokens may go too; so they do where they alone are more than stays"}),
	}, newTriAttention)
}

func newTriAttention(a *args) Policy {
	p := &triAttention{
		scored: scored{base: a.base(), budget: a.budget()}, reach: a.int("offset_max_length", 1, 1<<20),
		most: a.choice("score_aggregation", "mean", "max") == 1, meanOfGroup: a.choice("layer_perhead_aggregation", "max", "mean") == 1,
		standard: a.bool("normalize_scores"), spread: !a.bool("disable_mlr"), waves: !a.bool("disable_trig"), prompt: a.bool("allow_prefill_compression"),
	}
	for d := 1; d <= p.reach; d *= 2 {
		p.offsets = append(p.offsets, d)
	}
	if text := a.raw("stats"); text != "prompt" {
		name, ok := strings.CutPrefix(text, "@")
		if !ok || !strings.HasSuffix(name, FilterFile) {
			a.errs = append(a.errs, fmt.Errorf("policy: triattention: stats=%s: want prompt, or @FILE%s as infer fit-scores --for triattention writes it: %w", text, FilterFile, ErrParam))
		}
		p.file = name
	}
	return p
}

// Bind takes the file's centers; those of another model are refused.
func (p *triAttention) Bind(m Model) error {
	for i := range m.Layers {
		if kv := m.Layers[i].KV; m.Acts(i) && kv.KeyDim%2 != 0 {
			return fmt.Errorf("policy: triattention: keys of layer %d have %d numbers, want pairs: %w", i, kv.KeyDim, ErrModel)
		}
	}
	p.seen = make([]*Centers, len(m.Layers))
	if p.file == "" {
		return nil
	}
	f := m.Filters[p.file]
	switch {
	case f == nil:
		return fmt.Errorf("policy: triattention: stats=@%s was not read: an engine reads what its own policy names, no request's: %w", p.file, ErrModel)
	case f.Centers == nil:
		return fmt.Errorf("policy: triattention: %s holds no centers of queries: %w", p.file, ErrModel)
	}
	if len(f.Centers) > len(m.Layers) {
		return fmt.Errorf("policy: triattention: %s has centers of %d layers, the model has %d: %w", p.file, len(f.Centers), len(m.Layers), ErrModel)
	}
	p.given = make([]*Centers, len(m.Layers))
	copy(p.given, f.Centers)
	for i, c := range p.given {
		heads, planes := m.Layers[i].Heads, m.Layers[i].KV.KeyDim/2
		switch {
		case !m.Acts(i):
		case c == nil:
			return fmt.Errorf("policy: triattention: %s has no centers of layer %d: %w", p.file, i, ErrModel)
		case c.Heads != heads || c.Planes != planes:
			return fmt.Errorf("policy: triattention: %s has centers of %d heads in %d planes in layer %d, want %d in %d: %w", p.file, c.Heads, c.Planes, i, heads, planes, ErrModel)
		}
	}
	return nil
}

func (p *triAttention) Needs() Needs {
	n := Needs{Keys: true, OwnChannels: true, Filters: p.file}
	if p.file == "" {
		n.Observations = []Observation{QueryCenters{}}
	}
	return n
}

func (p *triAttention) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// SeenCenters are those of a layer's queries that keeper was shown last; nil where it was shown none, and of a keeper that asks for none.
func SeenCenters(keeper PromptKeeper, layer int) *Centers {
	if p, ok := keeper.(*triAttention); ok && layer < len(p.seen) {
		return p.seen[layer]
	}
	return nil
}

// Score is that of the waves and of what the queries scatter around their centers; tokens of the prompt that stay have +Inf.
func (p *triAttention) Score(l *Layer, target int, dst [][]float32) {
	var c *Centers
	if p.file != "" {
		c = p.given[l.Index]
	} else {
		c, _ = Seen[*Centers](l.Observed, QueryCenters{})
		p.seen[l.Index] = c
	}
	planes, group := Planes(l.Rope, l.KeyDim), l.Group()
	p.raw = slices.Grow(p.raw[:0], group)[:group]
	for g, row := range dst {
		p.look(l, c, planes, g)
		first := p.pinned(l, g, target)
		for h := range p.raw {
			p.raw[h] = sized(p.raw[h], len(row)-first)
		}
		eachKey(l, g, &p.keys, func(i int, key []float32) {
			if i >= first {
				p.meet(key, planes, i-first)
			}
		})
		for i := range row[:first] {
			row[i] = infinity
		}
		p.join(row[first:])
	}
}

// pinned is how many tokens of a KV head, the first ones, stay because they are the prompt's.
func (p *triAttention) pinned(l *Layer, kvHead, target int) int {
	if p.prompt || l.N <= l.Prompt {
		return 0
	}
	n, _ := slices.BinarySearch(l.Pos[kvHead], int32(l.Prompt))
	if n >= target {
		return 0
	}
	return n
}

// look fills mean and excess of a KV head's group.
func (p *triAttention) look(l *Layer, c *Centers, planes [][2]int, kvHead int) {
	d, group, looks := l.KeyDim, l.Group(), len(p.offsets)
	p.mean, p.excess, p.vec = sized(p.mean, group*looks*d), sized(p.excess, group*len(planes)), sized(p.vec, d)
	p.sums, p.length, p.waved = sized(p.sums, d), sized(p.length, len(planes)), sized(p.waved, looks)
	count := float64(max(c.Count, 1))
	scale := p.scales(l, planes)
	for i := range group {
		at := (kvHead*group + i) * c.Planes
		clear(p.sums)
		for look, ahead := range p.offsets {
			clear(p.vec)
			for f, plane := range planes {
				p.vec[plane[0]], p.vec[plane[1]] = float32(c.Real[at+f]/count), float32(c.Imag[at+f]/count)
			}
			l.Rope.Rotate(p.vec, l.N+ahead)
			for j, x := range p.vec {
				p.sums[j] += float64(x) / float64(looks)
			}
			copy(p.mean[(i*looks+look)*d:], p.vec)
		}
		if !p.most {
			for j, x := range p.sums {
				p.mean[i*looks*d+j] = float32(x)
			}
		}
		for f := range planes {
			excess := c.Length[at+f]
			if p.spread {
				excess -= math.Hypot(c.Real[at+f], c.Imag[at+f])
			}
			p.excess[i*len(planes)+f] = float32(excess / count * scale[f])
		}
	}
}

// scales are by how much RoPE lengthens each plane: 1 but with YaRN's and LongRoPE's factor.
func (p *triAttention) scales(l *Layer, planes [][2]int) []float64 {
	out := make([]float64, len(planes))
	clear(p.vec)
	for _, plane := range planes {
		p.vec[plane[0]] = 1
	}
	l.Rope.Rotate(p.vec, l.N)
	for f, plane := range planes {
		out[f] = math.Hypot(float64(p.vec[plane[0]]), float64(p.vec[plane[1]]))
	}
	return out
}

// meet fills raw [group] at a token with what the group's heads give its key.
func (p *triAttention) meet(key []float32, planes [][2]int, at int) {
	for f, plane := range planes {
		a, b := float64(key[plane[0]]), float64(key[plane[1]])
		p.length[f] = float32(math.Sqrt(a*a + b*b))
	}
	d, n, looks := len(key), len(planes), len(p.offsets)
	for i := range p.raw {
		x := kernels.Dot(p.excess[i*n:(i+1)*n], p.length)
		switch {
		case p.waves && p.most:
			for look := range looks {
				p.waved[look] = kernels.Dot(p.mean[(i*looks+look)*d:][:d], key)
			}
			x += slices.Max(p.waved)
		case p.waves:
			x += kernels.Dot(p.mean[i*looks*d:][:d], key)
		}
		p.raw[i][at] = x
	}
}

// join fills row with the group's largest or mean score of each token, standardised over them.
func (p *triAttention) join(row []float32) {
	if p.standard {
		for h := range p.raw {
			standardise(p.raw[h : h+1])
		}
	}
	for t := range row {
		most, sum := float32(math.Inf(-1)), float32(0)
		for _, x := range p.raw {
			most, sum = max(most, x[t]), sum+x[t]
		}
		if row[t] = most; p.meanOfGroup {
			row[t] = sum / float32(len(p.raw))
		}
	}
}
