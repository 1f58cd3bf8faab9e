package metrics

import (
	"fmt"
	"regexp"
)

// countScore is count_score: the share of the numbers in the prediction that are the answer.
func countScore(pred, answer string) float64 { return shareOf(digits(pred), answer) }

var (
	paragraphEn = regexp.MustCompile(`Paragraph (\p{Nd}+)`)
	paragraphZh = regexp.MustCompile(`段落(\p{Nd}+)`)
)

// retrievalScore is retrieval_score: the share of the numbers in the prediction that are the answer's paragraph ("Paragraph 7").
func retrievalScore(pred, answer string) (float64, error) {
	return retrieval(paragraphEn, pred, answer)
}

// retrievalZhScore is retrieval_zh_score ("段落7").
func retrievalZhScore(pred, answer string) (float64, error) {
	return retrieval(paragraphZh, pred, answer)
}

func retrieval(paragraph *regexp.Regexp, pred, answer string) (float64, error) {
	m := paragraph.FindStringSubmatch(answer)
	if m == nil {
		return 0, fmt.Errorf("metrics: answer %q: no match of %v: %w", answer, paragraph, ErrRow)
	}
	return shareOf(digits(pred), m[1]), nil
}

func shareOf(numbers []string, want string) float64 {
	right := 0
	for _, n := range numbers {
		if n == want {
			right++
		}
	}
	if len(numbers) == 0 {
		return 0
	}
	return float64(right) / float64(len(numbers))
}
