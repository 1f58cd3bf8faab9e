package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"terrace/policy"
)

// Placement of kept contexts on tiers (EvicPress). Placements are package policy's own; loads, prefill and answers' quality are
// modelled: quality falls with what is removed, by the medians of Fig. 3, more or less for every context and method.

// dataset is Table 2's lengths (characters, thousands) and Fig. 3's median loss of quality with keydiff when 90 % is removed;
// data sets without one have the mean of the six.
type dataset struct {
	name         string
	mean, spread float64
	loss         float64
}

var datasets = []dataset{
	{"narrativeqa", 108, 55, 0.340}, {"qasper", 24, 12, 0.759}, {"multifieldqa_en", 29, 15, 0.598}, {"hotpotqa", 57, 18, 0.598}, {"2wikimqa", 30, 15, 0.681}, {"musique", 69, 9, 0.598},
	{"gov_report", 54, 34, 0.598}, {"qmsum", 57, 27, 0.598}, {"multi_news", 12, 10, 0.738}, {"trec", 30, 12, 0.598}, {"triviaqa", 47, 25, 0.392}, {"samsum", 34, 17, 0.676},
}

var evicModels = []string{"Llama-3.1-8B", "Qwen2.5-14B", "LongChat-7B", "Mistral-7B-v0.3", "Qwen3-30B-A3B"}

var evicMethods = []string{"keydiff", "knorm", "snapkv"}

var evicKeeps = []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}

// kept is one context of the workload.
type kept struct {
	data    int
	tokens  float64
	weight  float64 // of all requests
	options []policy.Option
}

// evicWorkload is the contexts, from a seed.
func evicWorkload(p P) []kept {
	rng := rand.New(rand.NewPCG(uint64(p["seed"]), 12))
	n := int(min(20000, max(1, p["contexts"])))
	list := make([]kept, n)
	sum := 0.0
	for i := range list {
		d := i % len(datasets)
		chars := max(3, datasets[d].mean+datasets[d].spread*rng.NormFloat64()) * 1000
		list[i] = kept{data: d, tokens: math.Ceil(chars / p["characters_a_token"])}
		loss := datasets[d].loss * math.Exp(0.35*rng.NormFloat64())
		bend := math.Exp(0.4 * rng.NormFloat64()) // where along the ratio quality is lost
		for m, method := range evicMethods {
			worse := math.Exp(0.25*rng.NormFloat64()) * []float64{1, 1.05, 1.2}[m]
			for _, k := range evicKeeps {
				q := 1 - min(0.98, loss*worse)*math.Pow((1-k)/0.9, 2*bend)
				list[i].options = append(list[i].options, policy.Option{Config: policy.Config{Method: method, Keep: k}, Quality: q})
			}
		}
	}
	for i, rank := range rng.Perm(n) {
		list[i].weight = math.Pow(float64(rank+1), -p["skew"])
		sum += list[i].weight
	}
	for i := range list {
		list[i].weight /= sum
	}
	return list
}

// evic is one model's runs of the workload.
type evic struct {
	p    P
	m    shape
	work []kept
}

func newEvic(p P, model string) *evic { return &evic{p, shapes[model], evicWorkload(p)} }

func (e *evic) bandwidths() []float64 {
	return []float64{e.p["cpu_bps"], e.p["ssd_bps"], e.p["remote_bps"]}
}

// compute is the time of a prompt's prefill.
func (e *evic) compute(tokens float64) float64 {
	return (2*tokens*e.m.active() + 2*float64(e.m.heads*e.m.headDim*e.m.layers)*tokens*tokens) / e.p["gpu_flops"]
}

// rest is a request beside loading: the query's prefill and overheads.
func (e *evic) rest() float64 { return e.p["overhead_s"] + e.compute(e.p["query_tokens"]) }

// outcome is a system's means over requests.
type outcome struct {
	ttft, quality float64
	tier          [3]float64            // share of requests served from a tier
	configs       [3]map[string]float64 // share of a tier's contexts by method
	byData        []float64             // mean TTFT of a data set's contexts
}

// place runs a placement of package policy and works out its means. share is what of a context's kept KV is loaded.
func (e *evic) place(text string, share float64) (o outcome, err error) {
	pl, err := policy.ParsePlacement(text)
	if err != nil {
		return o, err
	}
	bw := e.bandwidths()
	in := &policy.Instance{Tiers: []policy.PlaceTier{{Name: "cpu", CapacityBytes: e.p["cpu_tier_bytes"], BytesPerS: bw[0]}, {Name: "ssd", CapacityBytes: e.p["ssd_tier_bytes"], BytesPerS: bw[1]}, {Name: "remote", CapacityBytes: math.Inf(1), BytesPerS: bw[2]}},
		Alpha: 1, Methods: evicMethods, Keeps: evicKeeps}
	order := e.byWeight() // least asked first, so that those asked most were used last
	for _, i := range order {
		c := e.work[i]
		in.Contexts = append(in.Contexts, policy.PlaceContext{ID: fmt.Sprint(i), Bytes: c.tokens * e.m.kvBytes(), Freq: 1 + math.Floor(1e4*c.weight), Options: c.options})
	}
	layout, _, err := pl.Place(in)
	if err != nil {
		return o, err
	}
	o.byData = make([]float64, len(datasets))
	counts := make([]float64, len(datasets))
	var onTier [3]float64
	for _, at := range layout.Placed() {
		var i int
		fmt.Sscan(at.ID, &i)
		c := e.work[i]
		load := share * at.Keep * c.tokens * e.m.kvBytes() / bw[at.Tier]
		q := 1.0
		for _, option := range c.options {
			if option.Config == at.Config {
				q = option.Quality
			}
		}
		ttft := load + e.rest()
		o.ttft += c.weight * ttft
		o.quality += c.weight * q
		o.tier[at.Tier] += c.weight
		o.byData[c.data] += ttft
		counts[c.data]++
		if o.configs[at.Tier] == nil {
			o.configs[at.Tier] = map[string]float64{}
		}
		o.configs[at.Tier][at.Method]++
		onTier[at.Tier]++
	}
	for d := range o.byData {
		o.byData[d] /= max(1, counts[d])
	}
	for t, list := range o.configs {
		for m := range list {
			list[m] /= onTier[t]
		}
	}
	return o, nil
}

func (e *evic) byWeight() []int {
	order := make([]int, len(e.work))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch x, y := e.work[a].weight, e.work[b].weight; {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return a - b
	})
	return order
}

// prefill computes every context again.
func (e *evic) prefill() (o outcome) {
	o.quality = 1
	for _, c := range e.work {
		o.ttft += c.weight * (e.compute(c.tokens) + e.rest())
	}
	return o
}

// evicpress is the placement under the least worth of quality (alpha, seconds a point) whose answers stay above the floor.
func (e *evic) evicpress() (outcome, error) {
	alphas := []float64{0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 30, 100}
	var best outcome
	for low, high := 0, len(alphas)-1; low <= high; {
		mid := (low + high) / 2
		o, err := e.place(fmt.Sprintf("evicpress:alpha=%v", alphas[mid]), 1)
		if err != nil {
			return o, err
		}
		if o.quality >= e.p["quality_floor"] || mid == len(alphas)-1 {
			best, high = o, mid-1
		} else {
			low = mid + 1
		}
	}
	return best, nil
}

// compressed is one method and keep for every context: the smallest keep above the floor, by halving, as quality rises with it.
func (e *evic) compressed() (best outcome, err error) {
	for _, method := range evicMethods {
		low, high := 0, len(evicKeeps)-1
		var at outcome
		for low <= high {
			mid := (low + high) / 2
			o, err := e.place(fmt.Sprintf("fixed:method=%s,keep=%v", method, evicKeeps[mid]), 1)
			if err != nil {
				return o, err
			}
			if o.quality >= e.p["quality_floor"] || mid == len(evicKeeps)-1 {
				at, high = o, mid-1
			} else {
				low = mid + 1
			}
		}
		if best.ttft == 0 || at.ttft < best.ttft {
			best = at
		}
	}
	return best, nil
}

// impress loads the keys of 3 of 8 heads and then the important chunks.
func (e *evic) impress() (outcome, error) {
	const probe, important = 3.0 / 16, 0.75
	return e.place("impress:keep=0.75", probe+important*(1-probe))
}

// systems are all outcomes of a model.
func (e *evic) systems() (out map[string]outcome, err error) {
	out = map[string]outcome{"prefill": e.prefill()}
	for name, f := range map[string]func() (outcome, error){"EvicPress": e.evicpress, "compression-lru": e.compressed, "impress": e.impress, "lru": func() (outcome, error) { return e.place("lru", 1) }} {
		if out[name], err = f(); err != nil {
			return nil, err
		}
	}
	return out, nil
}
