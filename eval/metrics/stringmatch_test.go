package metrics

import "testing"

func TestStringMatch(t *testing.T) {
	refs := []string{"1234567", "7654321"}
	for pred, want := range map[string][2]float64{
		"The numbers are 1234567 and 7654321.": {1, 1},
		"1234567":                              {0.5, 1},
		"123\x004567":                          {0, 0},
		"":                                     {0, 0},
	} {
		if all, part := MatchAll(pred, refs), MatchPart(pred, refs); all != want[0] || part != want[1] {
			t.Errorf("%q: all %v part %v, want %v", pred, all, part, want)
		}
	}
	if MatchAll("yes, APPLE", []string{"apple"}) != 1 {
		t.Error("case")
	}
	if MatchAll("x", nil) != 0 {
		t.Error("no references")
	}
}
