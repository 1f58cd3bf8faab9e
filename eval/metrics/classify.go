package metrics

import (
	"slices"
	"strings"
)

// classificationScore is classification_score: one over the number of classes named in the prediction, if the answer is among
// them. Classes that are part of the answer's name are dropped, but from the list that is being iterated over, so that the
// class after a dropped one is never looked at: part of the official score.
func classificationScore(pred, answer string, classes []string) float64 {
	var named []string
	for _, c := range classes {
		if strings.Contains(pred, c) {
			named = append(named, c)
		}
	}
	for i := 0; i < len(named); i++ {
		if term := named[i]; strings.Contains(answer, term) && term != answer {
			first := slices.Index(named, term) // list.remove drops the first equal one
			named = slices.Delete(named, first, first+1)
		}
	}
	if slices.Contains(named, answer) {
		return 1 / float64(len(named))
	}
	return 0
}
