package xla

import (
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// sum is a program on two operands.
func sum(in *params) []node { return []node{graph.Add(in.next(), in.next())} }

// numbers puts numbers on the device.
func numbers(t *testing.T, d *device, x ...float32) operand {
	t.Helper()
	o, err := upload(d, "test", -1, x, len(x))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func read(t *testing.T, d *device, o operand) []float32 {
	t.Helper()
	out := make([]float32, o.shape.Size())
	if err := d.read(out, o); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPending: programs that wait run with the one that needs them, once, also where two need the same; values live as long as
// their owner or a waiting program holds them; what nobody wants is never run.
func TestPending(t *testing.T) {
	d := testBackend(t, headsConfig).device
	two := shapes.Make(dtypes.Float32, 2)
	x, y := numbers(t, d, 1, 2), numbers(t, d, 10, 20)
	first, xy := later("first", []operand{x, y}, sum, two)
	_, twice := later("twice", []operand{xy[0], xy[0]}, sum, two)
	x.free() // held by first
	last, _ := later("last", []operand{xy[0], twice[0]}, sum)
	got, err := d.run(last, -1)
	if err != nil {
		t.Fatal(err)
	}
	if out := read(t, d, got[0]); !slices.Equal(out, []float32{33, 66}) || d.counts.Runs != 1 {
		t.Errorf("%v after %d runs, want [33 66] after one", out, d.counts.Runs)
	}
	if out := read(t, d, xy[0]); !slices.Equal(out, []float32{11, 22}) {
		t.Errorf("the result in between is %v", out)
	}
	if first.operands != nil || y.r.uses != 1 || twice[0].r.from != nil {
		t.Errorf("after the run: operands %v, y held %d times", first.operands, y.r.uses)
	}

	p, alone := later("alone", []operand{y, xy[0]}, sum, two)
	if y.r.uses != 2 {
		t.Errorf("y is held %d times, want 2", y.r.uses)
	}
	if alone[0].free(); p.operands != nil || y.r.uses != 1 || d.counts.Runs != 1 {
		t.Errorf("a program that nobody wants holds %v, runs %d", p.operands, d.counts.Runs)
	}

	_, forced := later("forced", []operand{y, xy[0]}, sum, two)
	if err := d.force(forced[0]); err != nil {
		t.Fatal(err)
	}
	if out := read(t, d, forced[0]); !slices.Equal(out, []float32{21, 42}) {
		t.Errorf("forced: %v", out)
	}
	programs := d.counts.Programs
	_, again := later("forced", []operand{forced[0], y}, sum, two) // the same shapes in the same places
	if err := d.force(again[0]); err != nil || d.counts.Programs != programs {
		t.Errorf("%v; %d programs compiled, want none", err, d.counts.Programs-programs)
	}

	_, wrong := later("wrong", []operand{y, xy[0]}, sum, shapes.Make(dtypes.Float32, 3))
	if err := d.force(wrong[0]); err == nil || !strings.Contains(err.Error(), "wrong: result 0") {
		t.Errorf("a result of another shape than said: %v", err)
	}
	for _, o := range []*operand{&y, &xy[0], &twice[0], &got[0], &forced[0], &again[0], &wrong[0]} {
		o.free()
	}
}
