package stream

// trust says whether predictions are worth their reads: a wrong one takes the disk for as long as a right one can save, and the place of
// an expert that would have been used again.
type trust struct {
	wrong  float64 // share of late predictions' reads that nobody used, a moving average
	passed int     // predictions since one was followed
}

const (
	trustStep  = 1.0 / 32 // weight of a read in the average
	trustLimit = 0.5      // of wrong reads
	trustEvery = 16       // of predictions that are not trusted one is followed
)

// learn notes whether what a prediction asked for was used.
func (t *trust) learn(right bool) {
	x := 1.0
	if right {
		x = 0
	}
	t.wrong += (x - t.wrong) * trustStep
}

// given reports whether the next prediction is followed.
func (t *trust) given() bool {
	if t.passed++; t.wrong <= trustLimit || t.passed >= trustEvery {
		t.passed = 0
		return true
	}
	return false
}
