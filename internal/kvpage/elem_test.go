package kvpage

import "testing"

func TestParseElems(t *testing.T) {
	for spec, want := range map[string][2]Elem{"int8": {I8, I8}, "k=int8": {I8, F16}, "v=i4": {F16, I4}, "k=int3,v=int2": {I3, I2}, "i2": {I2, I2}, "v=int4,k=f32": {F32, I4}, "bf16,v=int4": {BF16, I4}, "k=int4,": {I4, F16}, "k=": {F16, F16}} {
		if k, v, err := ParseElems(spec); err != nil || k != want[0] || v != want[1] {
			t.Errorf("%s: %v and %v, %v; want %v", spec, k, v, err, want)
		}
	}
	for _, spec := range []string{"k=int8,k=f16", "int9", "q=int8", "k=f16,v=f17"} {
		if k, v, err := ParseElems(spec); err == nil {
			t.Errorf("%s: %v and %v, %v", spec, k, v, err)
		}
	}
}
