package draft

import "time"

// Pace chooses how many guesses a pass reads: as many as make the most tokens a second, by how many guesses of the kind were
// right so far and by what each more row of a pass took, both as measured in this generation. It decides about speed alone.
type Pace struct {
	kinds   [Kinds]struct{ right, tried float64 }
	plain   float64 // seconds of a pass with one row
	wider   float64 // what each more row takes, as a share of plain
	skipped int     // times that a kind was found not to pay, since it was last tried
}

const (
	paceForgets = 0.9  // weight of what is known against what was just seen
	widerFirst  = 0.35 // before any wide pass was timed
	widerLeast  = 0.02
	widerMost   = 2
	retryEvery  = 24 // times that a kind does not pay until one guess of it is tried
)

// firstShares are how many guesses of a kind are right before any was judged, and firstTried how many real ones outweigh that.
var firstShares = [Kinds]float64{0.55, 0.6, 0.65, 0.8, 0.9, 0.95}

const firstTried = 2

// NewPace begins with shares that the first few real guesses outweigh.
func NewPace() Pace {
	p := Pace{wider: widerFirst}
	for i, share := range firstShares {
		p.kinds[i].right, p.kinds[i].tried = share*firstTried, firstTried
	}
	return p
}

// Length is how many guesses of a kind to read, most at most: with a share a of them right, k guesses bring 1+a+…+a^k tokens in
// (1+wider·k) times the time of one.
func (p *Pace) Length(kind, most int) int {
	k := &p.kinds[kind]
	share := k.right / k.tried
	best, n := 1.0, 0
	tokens, power := 1.0, 1.0
	for i := 1; i <= most; i++ {
		power *= share
		tokens += power
		if rate := tokens / (1 + p.wider*float64(i)); rate > best {
			best, n = rate, i
		}
	}
	if n > 0 {
		return n
	}
	if p.skipped++; p.skipped >= retryEvery {
		p.skipped = 0
		return 1
	}
	return 0
}

// Passed notes the time of a pass that read some guesses beside its token.
func (p *Pace) Passed(guesses int, took time.Duration) {
	t := took.Seconds()
	switch {
	case guesses == 0 && p.plain == 0:
		p.plain = t
	case guesses == 0:
		p.plain = paceForgets*p.plain + (1-paceForgets)*min(t, 2*p.plain)
	case p.plain > 0:
		w := min(max((t/p.plain-1)/float64(guesses), widerLeast), widerMost)
		p.wider = paceForgets*p.wider + (1-paceForgets)*w
	}
}

// Judged notes how many of the guesses of one pass, all of a kind, were right: the first ones, up to the first wrong one.
func (p *Pace) Judged(kind, guesses, right int) {
	k := &p.kinds[kind]
	tried := float64(right)
	if right < guesses {
		tried++
	}
	k.right = paceForgets*k.right + float64(right)
	k.tried = paceForgets*k.tried + tried
}
