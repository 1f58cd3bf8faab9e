package simulate

import (
	"math"
	"math/rand/v2"
)

// scores are keys, values and queries whose products are a score trace: what tokens are worth at each step.
type scores interface {
	key(dst []float32, text, layer, pos int)
	value(dst []float32, text, layer, pos int)
	query(dst []float32, text, layer, pos int) // of the token at pos
	guess(dst []float32, text, layer, pos int) // of the same, as guessed a layer before
}

// synthetic is a score trace of two parts: a token's own level, exponential of mean 0.5 in units of the rest's deviation, which is
// why few tokens are needed again and again; and a first-order process of unit variance, of which persistence stays from one
// step to the next, different for each token. A layer's scores have nothing to do with another's.
//
// As vectors: a key is (level, z), z of independent normal numbers; a query is (1, n) with n/√dim a vector that turns slowly.
type synthetic struct {
	seed        uint64
	persistence float64
	turned      map[[2]int]*turning
}

// turning is a layer's vector n as far as it was asked for.
type turning struct {
	at  int
	now []float64
}

func newSynthetic(p P) *synthetic {
	return &synthetic{seed: uint64(p["seed"]), persistence: min(0.999, p["persistence"]), turned: map[[2]int]*turning{}}
}

const levelMean = 0.5

func (s *synthetic) rng(kind, text, layer, pos int) *rand.Rand {
	return rand.New(rand.NewPCG(s.seed<<8|uint64(kind), uint64(text)<<48|uint64(layer)<<32|uint64(uint32(pos))))
}

func (s *synthetic) key(dst []float32, text, layer, pos int) {
	rng := s.rng(1, text, layer, pos)
	dst[0] = float32(levelMean * rng.ExpFloat64())
	for i := range dst[1:] {
		dst[i+1] = float32(rng.NormFloat64())
	}
}

// value is nothing: no policy here looks at one.
func (s *synthetic) value([]float32, int, int, int) {}

func (s *synthetic) query(dst []float32, text, layer, pos int) {
	t := s.turned[[2]int{text, layer}]
	if t == nil || t.at > pos {
		t = &turning{at: pos, now: make([]float64, len(dst)-1)}
		rng := s.rng(2, text, layer, pos)
		for i := range t.now {
			t.now[i] = rng.NormFloat64()
		}
		s.turned[[2]int{text, layer}] = t
	}
	for ; t.at < pos; t.at++ {
		rng := s.rng(3, text, layer, t.at)
		for i := range t.now {
			t.now[i] = s.persistence*t.now[i] + math.Sqrt(1-s.persistence*s.persistence)*rng.NormFloat64()
		}
	}
	dst[0] = 1
	for i, n := range t.now {
		dst[i+1] = float32(n / math.Sqrt(float64(len(t.now))))
	}
}

// guess is the query itself: how good guesses are decides what is read, not when.
func (s *synthetic) guess(dst []float32, text, layer, pos int) { s.query(dst, text, layer, pos) }
