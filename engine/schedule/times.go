package schedule

import "math"

// line is what takes time by its size, y = at + each·x, in seconds: least squares over what was measured, of which older figures
// count less.
type line struct {
	at, each float64
	unknown  [3]float64 // covariance of at and each·scale: [at, at], [at, each], [each, each]
	scale    float64    // the first size, so that sizes are about 1
}

// Forgetting of line: each figure leaves the older ones so much, as long as they still bound what is not known.
const (
	remembered  = 0.95
	mostUnknown = 100
)

// known reports whether anything was measured.
func (l *line) known() bool { return l.scale > 0 }

// note takes a figure in. The first says that all of it was for the size.
func (l *line) note(size, took float64) {
	if !l.known() {
		l.scale, l.each = size, took/size
		l.unknown = [3]float64{1, -0.9, 1} // their sum is known, their parts are not
		return
	}
	x := size / l.scale
	if l.unknown[0]+l.unknown[2] < mostUnknown {
		for i := range l.unknown {
			l.unknown[i] /= remembered
		}
	}
	u := &l.unknown
	a, b := u[0]+u[1]*x, u[1]+u[2]*x
	gain := 1 / (1 + a + b*x)
	off := took - l.at - l.each*size
	l.at += off * a * gain
	l.each += off * b * gain / l.scale
	u[0], u[1], u[2] = u[0]-a*a*gain, u[1]-a*b*gain, u[2]-b*b*gain
	if l.at < 0 { // through this figure and zero
		l.at, l.each = 0, took/size
	}
	l.each = max(l.each, took/size/64)
}

// of is what a size takes.
func (l *line) of(size int) float64 { return l.at + l.each*float64(size) }

// within is the largest size that takes so many seconds.
func (l *line) within(seconds float64) int { return int((seconds - l.at) / l.each) }

// sizes is what takes time by its size, where each size has a time of its own: seconds, lately; 0 = not measured.
type sizes []float64

// note takes a figure in.
func (s *sizes) note(size int, took float64) {
	if missing := size + 1 - len(*s); missing > 0 {
		*s = append(*s, make(sizes, missing)...)
	}
	if at := &(*s)[size]; *at == 0 {
		*at = took
	} else {
		*at += (took - *at) / 8
	}
}

// of is what a size takes: on the way between the sizes beside it that were measured; beyond the largest a doubled size is taken to need a
// quarter more.
func (s sizes) of(size int) float64 {
	low, high := min(size, len(s)-1), size
	for low > 0 && s[low] == 0 {
		low--
	}
	for high < len(s) && s[high] == 0 {
		high++
	}
	switch {
	case high >= len(s) && low <= 0:
		return 0
	case high >= len(s):
		return s[low] * (1 + (float64(size)/float64(low)-1)/4)
	case low <= 0 || low == high:
		return s[high]
	}
	return s[low] + (s[high]-s[low])*float64(size-low)/float64(high-low)
}

// surprise is how far times are from what was expected of them, as parts of that: mean and variance, of which older figures count less.
type surprise struct{ mean, variance float64 }

// note takes in what a time was of the expected one. Twice is the most that counts: the machine was somewhere else.
func (s *surprise) note(part float64) {
	off := min(part, 2) - 1 - s.mean
	s.mean += off / 16
	s.variance += (off*off - s.variance) / 16
}

// most is what a time is at most, in 99 of 100 cases if they are spread as a bell.
func (s *surprise) most() float64 { return max(1, 1+s.mean+2.33*math.Sqrt(s.variance)) }
