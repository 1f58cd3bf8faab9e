package kvpage

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"terrace/internal/cacheshape"
)

func TestParseTypes(t *testing.T) {
	for spec, want := range map[string]string{"int8": "int8 int8 []", "k=int8": "int8 f16 []", "v=i4": "f16 int4 []", "k=int3,v=int2": "int3 int2 []", "i2": "int2 int2 []", "v=int4,k=f32": "f32 int4 []", "bf16,v=int4": "bf16 int4 []",
		"k=int4,": "int4 f16 []", "k=": "f16 f16 []", "int2,0=int2": "int2 int2 [0=int2]", "k=int2,v=int4,7-9+0+29=int8": "int2 int4 [7-9=int8 0=int8 29=int8]", "sliding=f16,int3,2=i8": "int3 int3 [sliding=f16 2=int8]", "k=int8,3=bf16": "int8 f16 [3=bf16]"} {
		got, err := ParseTypes(spec)
		if fmt.Sprint(got.K, got.V, got.Own) != want || err != nil {
			t.Errorf("%s: %v, %v; want %s", spec, got, err, want)
		}
	}
	for spec, want := range map[string]string{"k=int8,k=f16": "twice", "int9": `"int9"`, "q=int8": `"q" of q=int8: want k, v, numbers`, "k=f16,v=f17": `"f17"`, "int3,0=int9": `"int9"`, "int3,slidin=f16": `did you mean "sliding"?`,
		"int3,2-1=f16": `"2-1"`, "int3,-1=f16": `"-1"`, "int3,0+=f16": `""`, "int3,70000=f16": `"70000"`, "f16,0=f32": "0=f32 beside f16 keys and f16 values: layers have types of their own beside quantised ones",
		"k=int2,v=int4,0-1=int3": "0-1=int3 beside int2 keys and int4 values: want a type of 4 bits or more"} {
		if got, err := ParseTypes(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", spec, got, err, want)
		}
	}
}

// TestMark gives layers types of their own, which their pages then have, and names layers that cannot have one.
func TestMark(t *testing.T) {
	shape := func() cacheshape.Model {
		m := cacheshape.Equal(6, 4, cacheshape.KV{Heads: 2, KeyDim: 64, ValueDim: 32})
		m[1].KV.Window, m[4].KV.Window = 512, 512
		m[5] = cacheshape.Layer{Heads: 4, Owner: 3}
		return m
	}
	for spec, want := range map[string]string{"int3,0+2-3=int8": "int8 int3 int8 int8 int3", "int2,sliding=f16,3=int4": "int2 f16 int2 int4 f16", "int2": "int2 int2 int2 int2 int2"} {
		types, err := ParseTypes(spec)
		m := shape()
		if err := errors.Join(err, types.Mark(m), m.Validate()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range 5 {
			l := Layout{K: types.K, V: types.V, Tokens: 128}.Of(m[i].KV)
			if l.K != l.V || l.KeyDim != 64 || l.ValueDim != 32 {
				t.Errorf("%s: layer %d has %v", spec, i, l)
			}
			got = append(got, l.K.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", spec, got, want)
		}
	}
	plain := shape()[:1]
	for spec, want := range map[string]string{"int3,2+6=int8": "6=int8: the model has layers 0 to 5", "int3,3-5=int8": "layer 5 keeps no keys and values", "int3,0-3+2=int8": "layer 2 is given two types", "int3,sliding=f16,4=int8": "layer 4 is given two types"} {
		types, err := ParseTypes(spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := types.Mark(shape()); !errors.Is(err, ErrElem) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	if err := (Types{K: I3, V: I3, Own: []Own{{Sliding: true, Elem: F16}}}).Mark(plain); !errors.Is(err, ErrElem) || !strings.Contains(err.Error(), "no layer has a sliding window") {
		t.Error(err)
	}
	if err := (Types{K: F16, V: F16, Own: []Own{{Elem: I3}}}).Mark(plain); !errors.Is(err, ErrElem) {
		t.Error(err)
	}
}
