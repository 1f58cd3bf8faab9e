package simulate

import (
	"fmt"
	"slices"
	"strings"

	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
	"terrace/weights/stream"
)

// mixture is the matrices of a mixture of experts. (public model configurations)
type mixture struct {
	layers, hidden, vocab       int
	experts, used, width        int                               // routed experts of a layer, of a token, and the inner width of one
	dense                       int                               // first layers without experts
	attention                   func(layer int) (in, out []sides) // before and after a layer's positions meet
	beside                      func(layer int) []sides           // shared expert, or a dense layer's feed-forward network
	expertForm, form, tableForm quant.Type
}

// sides is [rows, cols].
type sides struct{ rows, cols int }

func gatedFFN(hidden, width int) []sides {
	return []sides{{width, hidden}, {width, hidden}, {hidden, width}}
}

func gptOSS(layers, experts int) mixture {
	return mixture{
		layers: layers, hidden: 2880, vocab: 201088, experts: experts, used: 4, width: 2880,
		attention: func(int) (in, out []sides) {
			return []sides{{64 * 64, 2880}, {8 * 64, 2880}, {8 * 64, 2880}}, []sides{{2880, 64 * 64}}
		},
		beside:     func(int) []sides { return nil },
		expertForm: quant.MXFP4, form: quant.Q8_0, tableForm: quant.Q8_0,
	}
}

// mixtures are the models of expert-stream by name.
var mixtures = map[string]mixture{
	"gpt-oss-20b":  gptOSS(24, 32),
	"gpt-oss-120b": gptOSS(36, 128),
	"Qwen3.6-35B-A3B": {
		layers: 40, hidden: 2048, vocab: 248320, experts: 256, used: 8, width: 512,
		attention: func(layer int) (in, out []sides) {
			out = []sides{{2048, 4096}}
			if layer%4 == 3 { // query and gate, key, value
				return []sides{{2 * 16 * 256, 2048}, {2 * 256, 2048}, {2 * 256, 2048}}, out
			}
			return []sides{{2*16*128 + 32*128, 2048}, {32 * 128, 2048}, {32, 2048}, {32, 2048}}, out
		},
		beside:     func(int) []sides { return gatedFFN(2048, 512) },
		expertForm: quant.Q4_K, form: quant.Q4_K, tableForm: quant.Q6_K,
	},
	"GLM-4.7-Flash": {
		layers: 47, hidden: 2048, vocab: 154880, experts: 64, used: 4, width: 1536, dense: 1,
		attention: func(int) (in, out []sides) {
			return []sides{{768, 2048}, {20 * 256, 768}, {512 + 64, 2048}}, []sides{{20 * 512, 192 + 64}, {20 * 256, 512}, {2048, 20 * 256}}
		},
		beside: func(layer int) []sides {
			if layer == 0 {
				return gatedFFN(2048, 10240)
			}
			return gatedFFN(2048, 1536)
		},
		expertForm: quant.Q4_K, form: quant.Q4_K, tableForm: quant.Q6_K,
	},
}

// mixtureNamed is a model under an experiment's settings of layers, vocab and form.
func mixtureNamed(name string, s *settings, p P) (mixture, error) {
	m, ok := mixtures[name]
	if !ok {
		var known []string
		for n := range mixtures {
			known = append(known, n)
		}
		slices.Sort(known)
		return m, fmt.Errorf("model=%s: known are %s", name, strings.Join(known, ", "))
	}
	if n := int(p["layers"]); n > m.layers {
		return m, fmt.Errorf("layers=%d: %s has %d", n, name, m.layers)
	} else if n > 0 {
		m.layers = n
	}
	if v := int(p["vocab"]); v > 1<<20 {
		return m, fmt.Errorf("vocab=%d: want at most %d", v, 1<<20)
	} else if v > 0 {
		m.vocab = v
	}
	if form := s.text("form"); form != "published" {
		t, err := quant.ParseType(form)
		if err != nil {
			return m, fmt.Errorf("form=%s: %w", form, err)
		}
		m.expertForm, m.form, m.tableForm = t, t, t
	}
	return m, nil
}

// mixturePlan is what a store is asked for, and the bytes that a step of one token reads of memory.
type mixturePlan struct {
	stream.Plan
	in, out []int64 // of each layer: before its positions meet, and after, with what is beside the experts
	router  int64
	expert  int64
	head    int64
}

// plan lays a model out as package model does: embedding, head and all that is not an expert stay; a router is float32.
func (m *mixture) plan() (*mixturePlan, error) {
	out := &mixturePlan{Plan: stream.Plan{Used: m.used}}
	offset := int64(0)
	unit := func(t quant.Type, byRow bool, list ...sides) (u stream.Unit, err error) {
		for _, a := range list {
			w, err := kernels.NewVacant(t, a.rows, a.cols)
			if err != nil {
				return nil, err
			}
			u = append(u, stream.Part{W: w, ByRow: byRow, Offset: offset})
			offset += int64(a.rows) * int64(t.RowBytes(a.cols))
		}
		return u, nil
	}
	pin := func(t quant.Type, byRow bool, list ...sides) (bytes int64, err error) {
		for _, a := range list {
			u, err := unit(t, byRow, a)
			if err != nil {
				return 0, err
			}
			out.Pinned = append(out.Pinned, u)
			bytes += u.Bytes()
		}
		return bytes, nil
	}
	if _, err := pin(m.tableForm, true, sides{m.vocab, m.hidden}); err != nil {
		return nil, err
	}
	var err error
	if out.head, err = pin(m.tableForm, false, sides{m.vocab, m.hidden}); err != nil {
		return nil, err
	}
	for l := range m.layers {
		before, after := m.attention(l)
		in, err := pin(m.form, false, before...)
		if err != nil {
			return nil, err
		}
		rest, err := pin(m.form, false, append(after, m.beside(l)...)...)
		if err != nil {
			return nil, err
		}
		out.in, out.out = append(out.in, in), append(out.out, rest)
		var list []stream.Unit
		if l >= m.dense {
			if out.router, err = pin(quant.F32, false, sides{m.experts, m.hidden}); err != nil {
				return nil, err
			}
			for range m.experts {
				u, err := unit(m.expertForm, false, gatedFFN(m.hidden, m.width)...)
				if err != nil {
					return nil, err
				}
				list = append(list, u)
			}
			out.expert = list[0].Bytes()
		}
		out.Experts = append(out.Experts, list)
	}
	return out, nil
}
