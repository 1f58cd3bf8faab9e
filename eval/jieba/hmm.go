package jieba

import "math"

// states are begin, end, middle of a word and single-character word; sorted, so that a higher index wins a tie as the
// greater letter does in Python's max over (probability, state).
const states = "BEMS"

const (
	stateB = iota
	stateE
	stateM
	stateS
)

// impossible is jieba's log-probability of what never happens.
const impossible = -3.14e100

var (
	start = [4]float64{stateB: -0.26268660809250016, stateE: impossible, stateM: impossible, stateS: -1.4652633398537678}
	// trans[from][to]; only those reachable by previous are read.
	trans = [4][4]float64{
		stateB: {stateE: -0.510825623765990, stateM: -0.916290731874155},
		stateE: {stateB: -0.5897149736854513, stateS: -0.8085250474669937},
		stateM: {stateE: -0.33344856811948514, stateM: -1.2603623820268226},
		stateS: {stateB: -0.7211965654669841, stateS: -0.6658631448798212},
	}
	previous = [4][2]int{stateB: {stateE, stateS}, stateE: {stateB, stateM}, stateM: {stateB, stateM}, stateS: {stateE, stateS}}
)

// cutUnknown is jieba.finalseg.cut: Han runs by the HMM, ASCII words and numbers whole, the rest piece by piece.
func (t *tables) cutUnknown(out []string, run []rune) []string {
	for from := 0; from < len(run); {
		to := from
		for to < len(run) && isHan(run[to]) == isHan(run[from]) {
			to++
		}
		if isHan(run[from]) {
			out = t.viterbi(out, run[from:to])
		} else {
			out = cutASCII(out, run[from:to])
		}
		from = to
	}
	return out
}

// cutASCII splits by [a-zA-Z0-9]+(?:\.\d+)?%? and keeps both the matches and what lies between them.
func cutASCII(out []string, run []rune) []string {
	for from := 0; from < len(run); {
		to := from
		if !isASCIIAlnum(run[from]) {
			for to < len(run) && !isASCIIAlnum(run[to]) {
				to++
			}
		} else {
			to = spanOf(run, to, isASCIIAlnum)
			if to < len(run) && run[to] == '.' {
				if end := spanOf(run, to+1, isDigit); end > to+1 {
					to = end
				}
			}
			if to < len(run) && run[to] == '%' {
				to++
			}
		}
		out = append(out, string(run[from:to]))
		from = to
	}
	return out
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }

func spanOf(run []rune, from int, is func(rune) bool) int {
	for from < len(run) && is(run[from]) {
		from++
	}
	return from
}

// viterbi cuts a run of Han characters by the most probable sequence of states.
func (t *tables) viterbi(out []string, run []rune) []string {
	back := make([][4]uint8, len(run))
	var score [4]float64
	for s := range score {
		score[s] = start[s] + t.emission(s, run[0])
	}
	for i := 1; i < len(run); i++ {
		var next [4]float64
		for s := range next {
			em, best := t.emission(s, run[i]), math.Inf(-1)
			for _, from := range previous[s] {
				if p := score[from] + trans[from][s] + em; p >= best {
					best, back[i][s] = p, uint8(from)
				}
			}
			next[s] = best
		}
		score = next
	}
	path := make([]int, len(run))
	last := stateE
	if score[stateS] >= score[stateE] {
		last = stateS
	}
	for i := len(run) - 1; i >= 0; i-- {
		path[i] = last
		last = int(back[i][last])
	}
	begin := 0
	for i, s := range path {
		if s == stateE || s == stateS {
			out = append(out, string(run[begin:i+1]))
			begin = i + 1
		}
	}
	if begin < len(run) {
		out = append(out, string(run[begin:]))
	}
	return out
}

func (t *tables) emission(state int, r rune) float64 {
	if p, ok := t.emit[state][r]; ok {
		return p
	}
	return impossible
}
