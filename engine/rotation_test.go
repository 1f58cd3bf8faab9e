package engine

import (
	"errors"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/policy"
)

// TestRotationDefault: auto turns values of 4 bits and fewer and nothing else, and refuses no policy.
func TestRotationDefault(t *testing.T) {
	t.Parallel()
	int4 := Options{KVTypeSet: true, KType: kvpage.I4, VType: kvpage.I4}
	for _, c := range []struct {
		k, v   kvpage.Elem
		policy string
		asked  Rotation
		want   Rotation
	}{
		{kvpage.F16, kvpage.F16, "", RotateAuto, RotateNone},
		{kvpage.I8, kvpage.I8, "", RotateAuto, RotateNone},
		{kvpage.I4, kvpage.I4, "", RotateAuto, RotateValues},
		{kvpage.I4, kvpage.F16, "", RotateAuto, RotateNone},
		{kvpage.I3, kvpage.I3, "", RotateAuto, RotateValues},
		{kvpage.F16, kvpage.I2, "", RotateAuto, RotateValues},
		{kvpage.I2, kvpage.I8, "", RotateAuto, RotateNone},
		{kvpage.F16, kvpage.I4, "snapkv", RotateAuto, RotateValues},
		{kvpage.I4, kvpage.I4, "think", RotateAuto, RotateValues},
		{kvpage.I4, kvpage.I4, "lagkv", RotateAuto, RotateValues},
		{kvpage.I4, kvpage.I4, "", RotateNone, RotateNone},
		{kvpage.F16, kvpage.F16, "", RotateBoth, RotateBoth},
	} {
		o := int4
		o.KType, o.VType, o.Policy, o.Rotate = c.k, c.v, c.policy, c.asked
		if got := small(t, o).Options().Rotate; got != c.want {
			t.Errorf("%v keys, %v values, policy %q: %v turns %v, want %v", c.k, c.v, c.policy, c.asked, got, c.want)
		}
	}
	gorgonia := int4
	if gorgonia.Backend = "gorgonia"; gorgonia.resolveRotation(small(t, int4).m) != nil || gorgonia.Rotate != RotateNone {
		t.Errorf("another backend turns %v", gorgonia.Rotate)
	}
	think, err := policy.Parse("think")
	if err != nil {
		t.Fatal(err)
	}
	if err := small(t, int4).Permits(think); err != nil {
		t.Errorf("a session's policy that needs the model's channels: %v", err)
	}
	int4.Rotate = RotateBoth
	if err := small(t, int4).Permits(think); !errors.Is(err, model.ErrUnsupported) {
		t.Errorf("the same beside turned keys: %v", err)
	}
	if err := (&Options{Rotate: RotateBoth + 1}).resolveRotation(nil); !errors.Is(err, ErrOption) {
		t.Errorf("a rotation that there is not: %v", err)
	}
	for _, name := range rotationNames {
		if r, err := ParseRotation(name); err != nil || r.String() != name {
			t.Errorf("%s is read as %v, %v", name, r, err)
		}
	}
	if _, err := ParseRotation("vk"); !errors.Is(err, ErrOption) {
		t.Errorf("vk: %v", err)
	}
}

// TestTurnedValues: policies that look at values, weigh them by the output projection, mix their mean or what stands for tokens not read
// into the output, or prune rows, do the same where values are turned: in float32 nothing but rounding changes.
func TestTurnedValues(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 5), fakes.IDs(6, 6)
	for _, spec := range []string{"full", "lagkv:budget=120,lag_size=32", "criticalkv:budget=100", "snapkv:budget=100", "sparq", "expected_attention:budget=100", "lazyllm", "sliminfer", "kvzip_plus:budget=150", "retroinfer"} {
		o := Options{Exact: true, Policy: spec}
		want := forced(t, small(t, o), prompt, next)
		o.Rotate = RotateValues
		got := forced(t, small(t, o), prompt, next)
		size := fakes.Worst(want, zeros(want))
		if d := fakes.Worst(want, got); d > 1e-4*size {
			t.Errorf("%s: turned values change logits of %g by %g", spec, size, d)
		} else if d == 0 {
			t.Errorf("%s: nothing was turned", spec)
		}
	}
}
