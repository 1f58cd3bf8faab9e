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

// scoreModel says how tokens' scores are distributed, in deviations of what changes from step to step. A score is the sum of a token's
// own level, which stays; of what it is worth for being recent, recency·exp(-age/recencyTokens); and of a first-order process of
// which persistence stays from one step to the next. Level and process are in part those of the same token in every layer.
type scoreModel struct {
	persistence   float64
	level         float64 // deviation of levels over tokens; they are exponential, because few tokens are needed again and again
	levelShared   float64 // part of their variance that all layers have in common
	restShared    float64 // likewise of the process
	recency       float64
	recencyTokens float64
}

// traceParams are the parameters of synthetic score traces, as FitScores gives them for recorded ones.
func traceParams() map[string]value { return pick("scores") }

// scoreModelOf takes a model from an experiment's parameters.
func scoreModelOf(p P) scoreModel {
	return scoreModel{persistence: min(0.999, p["persistence"]), level: p["level"], levelShared: min(1, p["level_shared"]), restShared: min(1, p["rest_shared"]),
		recency: p["recency"], recencyTokens: max(1, p["recency_tokens"])}
}

// recent is what a token is worth for its age in tokens.
func (m *scoreModel) recent(age float64) float64 { return m.recency * math.Exp(-age/m.recencyTokens) }

// exponential is a number of mean 0 and deviation 1.
func exponential(rng *rand.Rand) float64 { return rng.ExpFloat64() - 1 }

// synthetic is a trace of a scoreModel, as vectors: a key is (level, exp(pos/recencyTokens), z of all layers, z of its own), z of
// independent normal numbers; a query is (1, recency·exp(-now/recencyTokens), n of all layers, n of its own), n/√dim vectors that turn slowly.
type synthetic struct {
	scoreModel
	seed   uint64
	prompt int // tokens, from which positions are counted
	turned map[[2]int]*turning
}

// turning is a vector n as far as it was asked for.
type turning struct {
	at  int
	now []float64
}

// allLayers stands for what layers have in common.
const allLayers = 1<<16 - 1

func newSynthetic(p P, prompt int) *synthetic {
	return &synthetic{scoreModel: scoreModelOf(p), seed: uint64(p["seed"]), prompt: prompt, turned: map[[2]int]*turning{}}
}

func (s *synthetic) rng(kind, text, layer, pos int) *rand.Rand {
	return rand.New(rand.NewPCG(s.seed<<8|uint64(kind), uint64(text)<<48|uint64(layer)<<32|uint64(uint32(pos))))
}

func (s *synthetic) key(dst []float32, text, layer, pos int) {
	all, own := s.rng(1, text, allLayers, pos), s.rng(1, text, layer, pos)
	dst[0] = float32(s.level * (math.Sqrt(s.levelShared)*exponential(all) + math.Sqrt(1-s.levelShared)*exponential(own)))
	dst[1] = float32(s.recent(float64(s.prompt - pos)))
	shared, alone := halves(dst)
	for i := range shared {
		shared[i] = float32(all.NormFloat64())
	}
	for i := range alone {
		alone[i] = float32(own.NormFloat64())
	}
}

// halves are the parts of a vector that layers have in common, and that each has alone.
func halves(v []float32) (shared, alone []float32) {
	half := (len(v) - 2) / 2
	return v[2 : 2+half], v[2+half:]
}

// value is nothing: no policy here looks at one.
func (s *synthetic) value([]float32, int, int, int) {}

func (s *synthetic) query(dst []float32, text, layer, pos int) {
	dst[0], dst[1] = 1, float32(math.Exp(-float64(pos-s.prompt)/s.recencyTokens))
	shared, alone := halves(dst)
	s.turn(shared, s.restShared, text, allLayers, pos)
	s.turn(alone, 1-s.restShared, text, layer, pos)
}

// turn fills dst with a turning vector whose products with keys have a variance.
func (s *synthetic) turn(dst []float32, variance float64, text, layer, pos int) {
	t := s.turned[[2]int{text, layer}]
	if t == nil || t.at > pos {
		t = &turning{at: pos, now: make([]float64, len(dst))}
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
	for i, n := range t.now {
		dst[i] = float32(n * math.Sqrt(variance/float64(len(t.now))))
	}
}

// guess is the query itself: how good guesses are decides what is read, not when.
func (s *synthetic) guess(dst []float32, text, layer, pos int) { s.query(dst, text, layer, pos) }
