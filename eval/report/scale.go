package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// scale maps values to positions and names its ticks.
type scale struct {
	min, max, from, to float64
	step               float64
	log                bool // positions are those of logarithms; ticks at 1, 2 and 5 times powers of ten
}

// logScale covers [min, max], both above 0: by logarithms, or plainly where fewer than three ticks would fall into it.
func logScale(min, max, from, to float64) scale {
	s := scale{min: min, max: max, from: from, to: to, log: true}
	if len(s.ticks()) < 3 {
		return niceScale(min, max, from, to, 5)
	}
	return s
}

// niceScale covers [min, max] in about n steps of 1, 2 or 5 times a power of ten.
func niceScale(min, max, from, to float64, n int) scale {
	if !(max > min) {
		pad := math.Max(math.Abs(min)*0.1, 0.5)
		min, max = min-pad, max+pad
		if min < 0 && min+pad >= 0 {
			min = 0
		}
	}
	raw := (max - min) / float64(n)
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * power
	for _, k := range []float64{1, 2, 5} {
		if raw <= k*power*1.0001 {
			step = k * power
			break
		}
	}
	return scale{min: math.Floor(min/step+1e-9) * step, max: math.Ceil(max/step-1e-9) * step, from: from, to: to, step: step}
}

func (s scale) at(v float64) float64 {
	v = math.Min(math.Max(v, s.min), s.max)
	if s.log {
		return s.from + math.Log(v/s.min)/math.Log(s.max/s.min)*(s.to-s.from)
	}
	return s.from + (v-s.min)/(s.max-s.min)*(s.to-s.from)
}

// tick is a labelled position.
type tick struct {
	At    float64
	Label string
}

func (s scale) ticks() []tick {
	if s.log {
		return s.logTicks()
	}
	digits := max(0, -int(math.Floor(math.Log10(s.step)+1e-9)))
	var out []tick
	for i := 0; ; i++ {
		v := s.min + float64(i)*s.step
		if v > s.max+s.step/1e6 {
			return out
		}
		out = append(out, tick{s.at(v), strconv.FormatFloat(v, 'f', digits, 64)})
	}
}

// logTicks are 1, 2 and 5 times powers of ten.
func (s scale) logTicks() (out []tick) {
	for power := math.Floor(math.Log10(s.min)); power <= math.Ceil(math.Log10(s.max)); power++ {
		for _, k := range []float64{1, 2, 5} {
			if v := k * math.Pow(10, power); v >= s.min*(1-1e-9) && v <= s.max*(1+1e-9) {
				out = append(out, tick{s.at(v), strconv.FormatFloat(v, 'g', 3, 64)})
			}
		}
	}
	return out
}

// shapes of markers, besides colour; points on a circle around the centre unless they are a circle or a cross.
var shapes = [][]float64{nil, {45, 135, 225, 315}, {90, 210, 330}, {0, 90, 180, 270}, {270, 30, 150}, {90, 162, 234, 306, 18}, {0, 60, 120, 180, 240, 300}, {}, {225, 315, 135, 45}, {90, 234, 18, 162, 306}}

// marker is the SVG path of a shape of radius r.
func marker(shape int, x, y, r float64) string {
	angles := shapes[shape%len(shapes)]
	switch {
	case angles == nil:
		return fmt.Sprintf("M%.1f %.1fa%.1f %.1f 0 1 0 %.1f 0a%.1f %.1f 0 1 0 %.1f 0z", x-r, y, r, r, 2*r, r, r, -2*r)
	case len(angles) == 0:
		t := r / 3
		return fmt.Sprintf("M%.1f %.1fh%.1fv%.1fh%.1fv%.1fh%.1fv%.1fh%.1fv%.1fh%.1fv%.1fh%.1fz", x-t, y-r, 2*t, r-t, r-t, 2*t, -(r - t), r-t, -2*t, -(r - t), -(r - t), -2*t, r-t)
	}
	var b strings.Builder
	for i, a := range angles {
		sin, cos := math.Sincos(a * math.Pi / 180)
		fmt.Fprintf(&b, "%c%.1f %.1f", "ML"[min(i, 1)], x+1.2*r*cos, y-1.2*r*sin)
	}
	return b.String() + "z"
}
