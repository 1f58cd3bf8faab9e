package policy

import "terrace/internal/kernels"

// cur keeps the tokens with the largest approximate leverage scores, CurDKV as kvpress has it (Sengupta et al. 2025,
// arXiv 2509.15038): ‖k‖² and ‖v‖², each divided by its sum over a window of local_window_size tokens, combined by
// leverage_type. The random projection of the paper is left out: kvpress's default has none.
type cur struct {
	scored
	sinks, window, form int
	local               bool
	buf, values         []float32
}

// Forms of leverage_type.
const (
	curKey = iota
	curValue
	curAverage
	curProduct
)

func init() {
	register(Info{
		Name:          "cur",
		Summary:       "keeps the tokens with the largest keys and values of their neighbourhood",
		Paper:         "Value-Guided KV Compression for LLMs via Approximated CUR Decomposition, arXiv 2509.15038",
		Phase:         PhasePrompt,
		MayDropNewest: true,
		Params: append(budgetParams("50%"),
			Param{Name: "num_sinks", Aliases: []string{"sinks", "n_sink"}, Default: "4", Doc: "first tokens that always stay"},
			Param{Name: "leverage_type", Default: "kv_product", Doc: "key, value, kv_avg or kv_product: which sizes count"},
			Param{Name: "use_local_approximation", Default: "true", Doc: "divide by the sum of a window of tokens"},
			Param{Name: "local_window_size", Default: "16", Doc: "tokens of that window"}),
	}, func(a *args) Policy {
		return &cur{
			scored: scored{base: a.base(), budget: a.budget()},
			sinks:  a.int("num_sinks", 0, maxTokens), window: a.int("local_window_size", 1, maxTokens),
			form: a.choice("leverage_type", "key", "value", "kv_avg", "kv_product"), local: a.bool("use_local_approximation"),
		}
	})
}

func (p *cur) Needs() Needs { return Needs{Keys: p.form != curValue, Values: p.form != curKey} }

func (p *cur) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Score is the share of the leverage of its KV head; 1, the most there is, for sinks.
func (p *cur) Score(l *Layer, _ int, dst [][]float32) {
	for g, row := range dst {
		if p.form != curValue {
			eachKey(l, g, &p.buf, func(i int, key []float32) { row[i] = kernels.Dot(key, key) })
			p.share(row)
		}
		if p.form != curKey {
			p.values = sized(p.values, len(row))
			eachValue(l, g, &p.buf, func(i int, value []float32) { p.values[i] = kernels.Dot(value, value) })
			p.share(p.values)
		}
		switch p.form {
		case curValue:
			copy(row, p.values)
		case curAverage:
			for i, v := range p.values {
				row[i] = (row[i] + v) / 2
			}
		case curProduct:
			for i, v := range p.values {
				row[i] *= v
			}
		}
		divideBySum(row)
		for i := range row[:min(p.sinks, len(row))] {
			row[i] = 1
		}
	}
}

// share divides sizes by their sum over each window; the last window may be shorter.
func (p *cur) share(x []float32) {
	for from := 0; p.local && from < len(x); from += p.window {
		divideBySum(x[from:min(from+p.window, len(x))])
	}
}

// divideBySum makes x sum to 1; zeros stay.
func divideBySum(x []float32) {
	var sum float64
	for _, v := range x {
		sum += float64(v)
	}
	if sum == 0 {
		return
	}
	for i, v := range x {
		x[i] = float32(float64(v) / sum)
	}
}
