package published

import (
	"fmt"
	"strings"

	"terrace/eval"
	"terrace/eval/metrics"
)

// mathematics are MATH (Hendrycks et al. 2021, arXiv 2103.03874), in the form of its authors or as MATH-500, and AIME. The prompt is the one
// that makers of thinking models advise; an answer is what stands in the last \boxed{…}. MATH compares as its authors' is_equiv, AIME whole
// numbers.
var mathematics = benchmark{name: "math", tasks: []task{
	{name: "math", metric: "is_equiv", files: []string{"math", "test", "math500", "MATH-500"}, tokens: answerTokens, questions: mathQuestion(false)},
	{name: "aime", metric: "integer_match", files: []string{"aime", "aime24", "aime25", "aime2024", "aime2025"}, tokens: answerTokens, questions: mathQuestion(true)},
}}

// answerTokens is how long an answer may be where --tokens does not say.
const answerTokens = 4096

const mathPrompt = "{problem}\nPlease reason step by step, and put your final answer within \\boxed{}."

func mathQuestion(whole bool) func(record) ([]question, error) {
	return func(r record) ([]question, error) {
		problem, err := r.any("problem", "Problem", "question")
		if err != nil {
			return nil, err
		}
		answer, err := r.any("answer", "Answer")
		if err != nil {
			solution, err := r.any("solution", "Solution")
			if err != nil {
				return nil, err
			}
			var ok bool
			if answer, ok = metrics.LastBoxed(solution); !ok {
				return nil, fmt.Errorf("no answer, and the solution has none in a box: %w", eval.ErrData)
			}
		}
		want, ok := metrics.Integer(answer)
		if whole && !ok {
			return nil, fmt.Errorf("answer %.40q is no whole number: %w", answer, eval.ErrData)
		}
		q := question{prompt: filled(mathPrompt, "problem", problem), row: map[string]string{"answer": answer}, labels: map[string]string{}}
		for label, names := range map[string][]string{"level": {"level"}, "subject": {"subject", "type"}} {
			if text, err := r.any(names...); err == nil {
				q.labels[label] = strings.TrimPrefix(text, "Level ")
			}
		}
		q.score = func(pred string) (float64, map[string]float64, error) {
			boxed, found := metrics.LastBoxed(pred)
			values := map[string]float64{"answered": oneIf(found)}
			if !whole {
				return oneIf(found && metrics.MathEquivalent(boxed, answer)), values, nil
			}
			got, is := metrics.Integer(boxed)
			last, any := metrics.LastInteger(pred)
			values["last_number"] = oneIf(any && last == want)
			return oneIf(found && is && got == want), values, nil
		}
		return []question{q}, nil
	}
}
