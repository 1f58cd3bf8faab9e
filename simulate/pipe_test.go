package simulate

import (
	"maps"
	"math"
	"runtime"
	"testing"
)

func builtHill(t *testing.T, model string, batch, context float64) hill {
	t.Helper()
	p := (&settings{params: pick("hillinfer")}).numbers().with("seed", 1)
	maps.Copy(p, P{"persistence": 0.75, "level": 0.5}) // a trace of which a tenth of the picks is cold, as the formula has it
	return hill{m: shapes[model], p: p, batch: batch, context: context}
}

func builtRun(t *testing.T, h hill, args string) pipeRun {
	t.Helper()
	r, err := h.builtStep(args)
	if err != nil {
		t.Fatalf("%s: %v", args, err)
	}
	return r
}

// TestBuiltStepAgreesWithTheFormula: where the drive's memory holds the codes of all keys, as the formula takes for granted, the step
// on the product's own code takes what the formula says, to 5 %; where it does not, 3.2 times as long. Each ratio is held to half a percent: what
// the product's step does is counted.
func TestBuiltStepAgreesWithTheFormula(t *testing.T) {
	for _, c := range []struct {
		model          string
		batch, context float64
		ratio          float64
	}{{"OPT-6.7B", 10, 1984, 0.9686}, {"OPT-6.7B", 4, 1984, 1.0445}, {"Qwen-7B", 8, 8192, 3.2493}} {
		h := builtHill(t, c.model, c.batch, c.context)
		if got := builtRun(t, h, "query=guess").step / h.hillinfer(parts{}); math.Abs(got/c.ratio-1) > 0.005 {
			t.Errorf("%s, %v sequences of %v: %.4f of the formula's time, want %v", c.model, c.batch, c.context, got, c.ratio)
		}
	}
}

// TestSwitchesChangeTheStep: each of hillinfer's switches changes what runs in its own part, and what is chosen and read stays.
func TestSwitchesChangeTheStep(t *testing.T) {
	h := builtHill(t, "OPT-6.7B", 4, 1984)
	base := builtRun(t, h, "query=guess")
	for args, c := range map[string]struct{ step, crossed, share [2]float64 }{ // over those of all parts, least and most
		"hie=false":               {step: [2]float64{1.1, 1.2}, crossed: [2]float64{0.99, 1.01}, share: [2]float64{0.99, 1.01}},
		"exchange=false":          {step: [2]float64{1.04, 1.1}, crossed: [2]float64{1.13, 1.22}, share: [2]float64{0.98, 1}},
		"pools=layer":             {step: [2]float64{0.78, 0.85}, crossed: [2]float64{0.33, 0.4}, share: [2]float64{0.97, 0.99}},
		"beta_mode=fixed,beta=1":  {step: [2]float64{2, 2.25}, crossed: [2]float64{3, 3.3}, share: [2]float64{0.5862 - 0.001, 0.5862 + 0.001}},
		"beta_mode=fixed,beta=20": {share: [2]float64{1.1, 1.13}},
	} {
		got := builtRun(t, h, "query=guess,"+args)
		for name, v := range map[string]struct {
			got, base float64
			want      [2]float64
		}{"step": {got.step, base.step, c.step}, "crossed": {got.crossed, base.crossed, c.crossed}, "share": {got.share, base.share, c.share}} {
			if r := v.got / v.base; v.want != [2]float64{} && (r < v.want[0] || r > v.want[1]) {
				t.Errorf("%s: %s times %.4f, want %v", args, name, r, v.want)
			}
		}
		if got.read != base.read || got.questions != base.questions {
			t.Errorf("%s: %v bytes of %v questions, before %v of %v", args, got.read, got.questions, base.read, base.questions)
		}
	}
}

// TestBuiltStepRepeats: the same on any number of processors.
func TestBuiltStepRepeats(t *testing.T) {
	h := builtHill(t, "OPT-6.7B", 2, 1024)
	want := builtRun(t, h, "query=guess")
	for _, n := range []int{1, 8} {
		before := runtime.GOMAXPROCS(n)
		got := builtRun(t, h, "query=guess")
		runtime.GOMAXPROCS(before)
		if got != want {
			t.Errorf("on %d processors %+v, want %+v", n, got, want)
		}
	}
}

// TestBuiltStepReads: bytes read are those of the selection, the newest token beside it; what is slower takes longer; a drive that is
// asked with a layer's own query, or whose scores come as one, is not hidden behind the layer before.
func TestBuiltStepReads(t *testing.T) {
	h := builtHill(t, "OPT-6.7B", 4, 1984)
	base := builtRun(t, h, "query=guess")
	if want := h.p["alpha"] * h.kv(); math.Abs(base.read/want-1) > 0.05 {
		t.Errorf("%v bytes read a step, want about %v", base.read, want)
	}
	if base.hot < 0.7 || base.hot > 0.9 || base.crossed >= base.read || base.crossed == 0 {
		t.Errorf("%+v", base)
	}
	for name, factor := range map[string]float64{"B_s": 0.25, "B_c": 0.1, "f_c": 0.1, "gpu_mem_bps": 0.05} {
		slow := h
		slow.p = h.p.with(name, factor*h.p[name])
		if got := builtRun(t, slow, "query=guess"); got.step < 1.1*base.step {
			t.Errorf("%s times %v: %v s, before %v", name, factor, got.step, base.step)
		}
	}
	for _, args := range []string{"query=exact", "hie=false"} {
		if got := builtRun(t, h, args); got.step <= base.step {
			t.Errorf("%s: %v s, with all %v", args, got.step, base.step)
		}
	}
}
