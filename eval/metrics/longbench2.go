package metrics

import (
	"regexp"
	"strings"
)

var (
	answerInParens = regexp.MustCompile(`The correct answer is \(([A-D])\)`)
	answerPlain    = regexp.MustCompile(`The correct answer is ([A-D])`)
)

// LongBench2 is the letter that extract_answer of LongBench v2's pred.py takes out of a reply; "" for none.
func LongBench2(reply string) string {
	reply = strings.ReplaceAll(strings.TrimFunc(reply, isSpace), "*", "")
	for _, pattern := range []*regexp.Regexp{answerInParens, answerPlain} {
		if m := pattern.FindStringSubmatch(reply); m != nil {
			return m[1]
		}
	}
	return ""
}
