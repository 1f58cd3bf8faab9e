package metrics

import (
	"strings"
	"unicode"
)

// cleanPrediction is RULER's postprocess_pred: outer blanks cut, runs of control characters 0x00-0x1f turned into line
// breaks.
func cleanPrediction(pred string) string {
	pred = strings.TrimFunc(pred, isSpace)
	pred = strings.Map(func(r rune) rune {
		if r <= 0x1f {
			return '\n'
		}
		return r
	}, pred)
	return strings.TrimFunc(pred, unicode.IsSpace)
}

// MatchAll is RULER's string_match_all: the share of the references found in the prediction, whatever the case.
func MatchAll(pred string, refs []string) float64 {
	if len(refs) == 0 {
		return 0
	}
	return float64(found(pred, refs)) / float64(len(refs))
}

// MatchPart is RULER's string_match_part: 1 if any reference is found.
func MatchPart(pred string, refs []string) float64 {
	if found(pred, refs) > 0 {
		return 1
	}
	return 0
}

func found(pred string, refs []string) int {
	pred = lower(cleanPrediction(pred))
	n := 0
	for _, r := range refs {
		if strings.Contains(pred, lower(r)) {
			n++
		}
	}
	return n
}
