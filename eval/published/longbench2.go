package published

import (
	"fmt"
	"strings"

	"terrace/eval"
	"terrace/eval/metrics"
)

// longbench2 is LongBench v2 (Bai et al. 2024, arXiv 2412.15204): 503 questions with four answers about long texts. Prompt, length of the
// answer and what is taken out of it are those of pred.py without --cot; the answer is greedy (there: temperature 0.1).
var longbench2 = benchmark{name: "longbench-v2", tasks: []task{{name: "longbench-v2", metric: "accuracy", files: []string{"data", "longbench-v2", "LongBench-v2"}, tokens: 128, questions: longbench2Questions}}}

const longbench2Prompt = `Please read the following text and answer the question below.

<text>
$DOC$
</text>

What is the correct answer to this question: $Q$
Choices:
(A) $C_A$
(B) $C_B$
(C) $C_C$
(D) $C_D$

Format your response as follows: "The correct answer is (insert answer here)".`

func longbench2Questions(r record) ([]question, error) {
	prompt := longbench2Prompt
	for _, field := range []struct{ sign, name string }{{"$DOC$", "context"}, {"$Q$", "question"}, {"$C_A$", "choice_A"}, {"$C_B$", "choice_B"}, {"$C_C$", "choice_C"}, {"$C_D$", "choice_D"}} {
		text, err := r.text(field.name)
		if err != nil {
			return nil, err
		}
		prompt = strings.ReplaceAll(prompt, field.sign, strings.TrimSpace(text))
	}
	answer, err := r.text("answer")
	if err != nil {
		return nil, err
	}
	if len(answer) != 1 || !strings.Contains("ABCD", answer) {
		return nil, fmt.Errorf("answer %.20q is none of A, B, C, D: %w", answer, eval.ErrData)
	}
	q := question{prompt: prompt, labels: map[string]string{}, row: map[string]string{"answer": answer}}
	for _, label := range []string{"difficulty", "length", "domain"} { // result.py's columns, and the domain
		if text, err := r.text(label); err == nil {
			q.labels[label] = text
		}
	}
	q.score = func(pred string) (float64, map[string]float64, error) {
		letter := metrics.LongBench2(pred)
		return oneIf(letter == answer), map[string]float64{"answered": oneIf(letter != "")}, nil
	}
	return []question{q}, nil
}

func oneIf(right bool) float64 {
	if right {
		return 1
	}
	return 0
}
