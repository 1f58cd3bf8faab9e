// Package nearest finds the known name that a mistyped one was meant to be, for errors that ask "did you mean".
//
// It owns the measure: letters added, left out, replaced or swapped with their neighbour, whatever their case. It knows no
// names and keeps no state.
package nearest

import "strings"

// Of is the known name nearest to got, "" where none is near: at most a third of got's letters apart, or one that got begins.
func Of(got string, known []string) string {
	best, least := "", max(1, len(got)/3)+1
	low := strings.ToLower(got)
	for _, k := range known {
		if d := distance(low, strings.ToLower(k), least); d < least {
			best, least = k, d
		}
	}
	if best != "" || len(low) < 3 {
		return best
	}
	for _, k := range known { // cut short
		if strings.HasPrefix(strings.ToLower(k), low) && (best == "" || len(k) < len(best)) {
			best = k
		}
	}
	return best
}

// Hint is `, did you mean "NAME"?` for an error about got; "" where no known name is near.
func Hint(got string, known []string) string {
	if best := Of(got, known); best != "" && best != got {
		return `, did you mean "` + best + `"?`
	}
	return ""
}

// distance is the number of edits between two texts (optimal string alignment), or limit where it is no less than that.
func distance(a, b string, limit int) int {
	x, y := []rune(a), []rune(b)
	if d := len(x) - len(y); d >= limit || -d >= limit {
		return limit
	}
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(y)], limit)
}
