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
// on the product's own code takes what the formula says; where it does not, longer.
func TestBuiltStepAgreesWithTheFormula(t *testing.T) {
	for _, c := range []struct {
		model          string
		batch, context float64
		low, high      float64
	}{{"OPT-6.7B", 10, 1984, 0.9, 1.1}, {"OPT-6.7B", 4, 1984, 0.9, 1.15}, {"Qwen-7B", 8, 8192, 2, 6}} {
		h := builtHill(t, c.model, c.batch, c.context)
		if got, want := builtRun(t, h, "query=guess").step, h.hillinfer(parts{}); got < c.low*want || got > c.high*want {
			t.Errorf("%s, %v sequences of %v: %v s, %v by the formula", c.model, c.batch, c.context, got, want)
		}
	}
}

// TestBuiltStepRepeats: the same on any number of processors.
func TestBuiltStepRepeats(t *testing.T) {
	h := builtHill(t, "OPT-6.7B", 2, 1024)
	want := builtRun(t, h, "query=guess")
	for _, n := range []int{1, 2, 8} {
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
