package engine

import (
	"math"
	"testing"

	"terrace/engine/fakes"
)

// TestStepBytes: what a decode step is said to read is what follows from the policy's definition, for f16 KV, in bytes a layer and
// KV head: keys and values of the tokens read, and of the sketch what the step scans.
func TestStepBytes(t *testing.T) {
	const prompt, n = 200, 201
	for _, c := range []struct {
		spec        string
		read        int
		scan        func(d int) int
		approximate bool // at most so much is read
	}{
		{spec: "full", read: n, scan: func(int) int { return 0 }},
		{spec: "oracle:budget=40", read: 40, scan: func(d int) int { return n * d * 2 }},
		{spec: "topk:budget=40", read: 40, scan: func(d int) int { return n * (d + 4) }},
		{spec: "topk:budget=40,score=int4", read: 40, scan: func(d int) int { return n * (d/2 + 4) }},
		{spec: "pqcache:budget=40,n_sink=4,bits=5,subvectors=2", read: 40, scan: func(d int) int { return n*2 + 32*d*4 }},
		{spec: "pqcache:budget=40,n_sink=4,bits=4,subvectors=4", read: 40, scan: func(d int) int { return n*2 + 16*d*4 }},
		{spec: "tailcodes:budget=40,part=2,value_part=4", read: 40, scan: func(d int) int { return n*d/4 + 16*d*4 + 4*d*4 + n*d/8 + 16*d*4 }},
		{spec: "sparq:budget=40,rank=25%", read: 40, scan: func(d int) int { return n * d / 4 * 2 }},
		{spec: "quest:budget=48,dense_layers=0", read: 48, scan: func(d int) int { return (n + 15) / 16 * d * 4 }, approximate: true},
		{spec: "topp:select=topk,budget=40,p=0.999999", read: 40, scan: func(d int) int { return n*(d+4) + 40*(d/2+8) }, approximate: true},
		{spec: "double_sparsity:budget=40,rank=16,dense_layers=0", read: 40, scan: func(int) int { return n * (16/2 + 4) }},
		{spec: "double_sparsity:budget=40,rank=10,labels=half,dense_layers=0", read: 40, scan: func(int) int { return n * 10 * 2 }},
		{spec: "rocketkv:budget=40,split=0,chunk=2", read: 20, scan: func(d int) int { return (n + 1) / 2 * (d * 2 / 5) * 2 }},
		{spec: "vattention:select=topk,budget=40,base=5%,epsilon=1000", read: 40, scan: func(d int) int { return n*(d+4) + (n-40)/20*4*d }},
		{spec: "vattention:select=topk,budget=40,base=5%,epsilon=0.0001", read: 40, scan: func(d int) int { return n*(d+4) + (n-40)*4*d }},
		{spec: "snapkv:budget=64", read: 65, scan: func(int) int { return 0 }},
	} {
		e := small(t, Options{Policy: c.spec})
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Prefill(t.Context(), fakes.IDs(prompt, 4), PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		if u := s.KVUse(); u.StepKV != 0 || u.StepScanned != 0 {
			t.Errorf("%s: %g and %g bytes before the first step", c.spec, u.StepKV, u.StepScanned)
		}
		if err := s.Decode(7); err != nil {
			t.Fatal(err)
		}
		m, u := &e.Model().Config, s.KVUse()
		heads := m.Layers * m.Layer[0].KVHeads
		kv, scan := float64(heads*c.read*2*(m.Layer[0].KeyDim+m.Layer[0].ValDim)), float64(heads*c.scan(m.Layer[0].KeyDim))
		if off := math.Abs(u.StepKV-kv) > 0; off && !(c.approximate && u.StepKV < kv && u.StepKV > kv/3) || u.StepScanned != scan {
			t.Errorf("%s: reads %g bytes of KV and scans %g, want %g and %g", c.spec, u.StepKV, u.StepScanned, kv, scan)
		}
		s.Close()
	}
}
