package policy

import (
	"errors"
	"reflect"
	"testing"

	"terrace/internal/cacheshape"
)

// TestSparFIsSparQ checks that both read the same tokens and the same share at equal r, k and l, that a drive told r, k and l does
// too, and what follows from a compression ratio.
func TestSparFIsSparQ(t *testing.T) {
	for _, c := range []struct {
		sparf, sparq string
		want         SparF // of 290 tokens and 16 dimensions
	}{
		{"sparf:r=7,k=30,l=9,m=4,n=8", "sparq:budget=30,rank=7,local=9", SparF{7, 30, 9}},
		{"sparf:r=1,k=2,l=1", "sparq:budget=2,rank=6.3%,local=50%", SparF{1, 2, 1}},
		{"sparf", "sparq", SparF{2, 18, 4}},
		{"sparf:keep=0.5", "sparq:budget=25%,rank=50%", SparF{8, 72, 18}},
		{"sparf:ratio=25%,k=10%", "sparq:budget=10%,rank=25%", SparF{4, 29, 7}},
		{"sparf:k=300", "sparq:budget=300", SparF{}},
	} {
		s := randomScene(11, 290, 4, 2, 16)
		s.fill()
		f, q := selected(t, s, c.sparf, nil), selected(t, s, c.sparq, nil)
		if !reflect.DeepEqual(f, q) {
			t.Errorf("%s reads %v, %s reads %v", c.sparf, f, c.sparq, q)
		}
		spec, err := Parse(c.sparf)
		if err != nil {
			t.Fatal(err)
		}
		set, err := spec.New(Model{Layers: cacheshape.Equal(1, 4, cacheshape.KV{Heads: 2, KeyDim: 16, ValueDim: 16})})
		if err != nil {
			t.Fatal(err)
		}
		a := set.Selector.(DriveAttention).Attention(16, 290)
		if a != c.want {
			t.Errorf("%s: %+v, want %+v", c.sparf, a, c.want)
		}
		var read Selection
		a.Selector().Select(s.layer(0, 1), &read)
		if read.All != f.All || !read.All && !reflect.DeepEqual(&read, f) {
			t.Errorf("%s: a drive reads %v, the host %v", c.sparf, &read, f)
		}
	}
}

// TestSparFRefuses checks that values out of range are named.
func TestSparFRefuses(t *testing.T) {
	for _, spec := range []string{"sparf:r=0", "sparf:ratio=0", "sparf:ratio=16", "sparf:m=3", "sparf:m=1", "sparf:mode=loose", "sparf:n=-1", "sparf:l=0"} {
		if _, err := Parse(spec); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}
