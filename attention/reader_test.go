package attention

import (
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kvpage"
)

// TestReaderKeys: keys read in bulk are those read one by one, at every width of a row and number of tokens.
func TestReaderKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	for _, dim := range []int{1, 3, 4, 7, 16, 64, 70} {
		for _, tokens := range []int{1, 16, 17, 63, 64, 80, 131} {
			l := kvpage.Layout{K: kvpage.F32, V: kvpage.F32, KeyDim: dim, ValueDim: dim, Tokens: 32}
			want := make([]float32, tokens*dim)
			for i := range want {
				want[i] = rng.Float32()
			}
			v := View{Layout: l}
			for at := 0; at < tokens; at += l.Tokens {
				pg := Page{Data: make([]byte, l.PageBytes()), N: min(l.Tokens, tokens-at)}
				rows := want[at*dim : (at+pg.N)*dim]
				kvpage.Append(l, pg.Data, 0, pg.N, rows, dim, rows, dim)
				v.Pages = append(v.Pages, pg)
			}
			got := make([]float32, tokens*dim)
			new(Reader).Keys(&v, 0, tokens, got)
			if !slices.Equal(got, want) {
				t.Fatalf("%d tokens of %d dimensions: %v, want %v", tokens, dim, got, want)
			}
		}
	}
}

// BenchmarkReaderKeys reads the keys of 8,000 tokens of one head, as policies do that score by keys.
func BenchmarkReaderKeys(b *testing.B) {
	p := Params{KeyDim: 64, ValueDim: 64, KVHeads: 1}
	v := benchViews(p, kvpage.F16, 8000, 16)
	var r Reader
	rows := make([]float32, 64*64)
	for b.Loop() {
		for at := 0; at < 8000; at += 64 {
			r.Keys(&v[0], at, at+64, rows)
		}
	}
}
