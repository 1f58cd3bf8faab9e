package choice

import (
	"context"
	"encoding/json"
	"math/bits"

	"gonum.org/v1/gonum/mathext/prng"

	"terrace/eval"
	"terrace/eval/metrics"
)

// generated is a task whose answers are generated, as the harness's generate_until.
type generated struct {
	metric string // its name and filter
	shots  int    // examples that the harness gives
	tokens int    // at most, of an answer
	stops  []string
	// score fills an outcome from its Pred and the question's only choice, which is the reference answer.
	score func(o *eval.Outcome, reference string) error
}

// gsm8kAnswers are those of lm_eval/tasks/gsm8k/gsm8k.yaml (version 3); 256 tokens are the harness's own limit where a task has none.
var gsm8kAnswers = generated{metric: "exact_match,strict-match", shots: 5, tokens: 256, stops: []string{"Question:", "</s>", "<|im_end|>"}, score: scoreGSM8K}

// gsm8k asks for a number, after reasoning that ends in "#### NUMBER".
func gsm8k(r record) (question, error) {
	asked, err := text(r, "question")
	if err != nil {
		return question{}, err
	}
	answer, err := text(r, "answer")
	return question{prompt: "Question: " + asked + "\nAnswer:", choices: []string{answer}}, err
}

func scoreGSM8K(o *eval.Outcome, reference string) error {
	strict, flexible := metrics.GSM8K(o.Pred, reference)
	score := hit(strict.Right)
	o.Score, o.Values = &score, map[string]float64{"exact_match,flexible-extract": hit(flexible.Right)}
	var err error
	o.Row, err = json.Marshal(map[string]any{"answer": reference, "strict_match": strict.Text, "flexible_extract": flexible.Text})
	return err
}

// evaluateGenerated asks a question whose answer is generated.
func (s *Suite) evaluateGenerated(ctx context.Context, r eval.Runner, sample eval.Sample, g *generated, policies []string, emit func(eval.Outcome) error) error {
	q := sample.Data.(*question)
	begun := r.Now()
	ids, err := r.Encode(q.prompt)
	if err != nil {
		return err
	}
	return eval.Ask(ctx, r, sample, eval.Question{IDs: ids, Encode: r.Now().Sub(begun), Gen: eval.Generate{MaxTokens: g.tokens, Stops: g.stops},
		Score: func(o *eval.Outcome) error { return g.score(o, q.choices[0]) }}, policies, emit)
}

// harnessSeed is what the harness draws examples with unless it is told otherwise (evaluator.simple_evaluate, fewshot_random_seed).
const harnessSeed = 1234

// harnessDraw is Python's random.Random(1234), from which the harness draws the examples of one question after another.
type harnessDraw struct{ mt *prng.MT19937 }

func newHarnessDraw() harnessDraw {
	d := harnessDraw{prng.NewMT19937()}
	d.mt.SeedFromKeys([]uint32{harnessSeed})
	return d
}

// below is Python's Random._randbelow: 0 to n-1.
func (d harnessDraw) below(n int) int {
	for width := bits.Len(uint(n)); ; {
		if x := int(d.mt.Uint32() >> (32 - width)); x < n {
			return x
		}
	}
}

// sample is Python's Random.sample of range(n): k different numbers, in the order drawn; n is k at least.
func (d harnessDraw) sample(n, k int) []int {
	out := make([]int, 0, k)
	small := 21 // up to here CPython draws from a list, beyond it draws again what was drawn before
	if k > 5 {
		for size := 1; ; size *= 4 {
			if size >= 3*k {
				small += size
				break
			}
		}
	}
	if n <= small {
		pool := make([]int, n)
		for i := range pool {
			pool[i] = i
		}
		for i := range k {
			j := d.below(n - i)
			out = append(out, pool[j])
			pool[j] = pool[n-i-1]
		}
		return out
	}
	taken := map[int]bool{}
	for len(out) < k {
		if j := d.below(n); !taken[j] {
			taken[j] = true
			out = append(out, j)
		}
	}
	return out
}
