package schedule

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
