package report

import (
	"fmt"
	"math"
)

// Sizes of a number beside a marker, in drawing units: half its width and height, and half a marker.
const (
	labelHalfWidth  = 7.5
	labelHalfHeight = 5.5
	markerHalf      = 6.0
)

// spot is a place for a label, from its marker's centre.
type spot struct{ x, y, cost float64 }

// spots are places around a marker, near ones first.
var spots = func() []spot {
	var out []spot
	for ring, r := range []float64{12, 17, 24, 32, 42} {
		for k := range 16 {
			sin, cos := math.Sincos((float64(k)*22.5 + 45) * math.Pi / 180)
			out = append(out, spot{1.15 * r * cos, -r * sin, 0.4*float64(ring) + 0.01*float64(k)})
		}
	}
	return out
}()

// segment is a line across or down, in drawing units.
type segment struct{ x1, y1, x2, y2 float64 }

// crosses reports whether the segment runs through a number whose centre is (x, y).
func (s segment) crosses(x, y float64) bool {
	return min(s.x1, s.x2) < x+labelHalfWidth && max(s.x1, s.x2) > x-labelHalfWidth && min(s.y1, s.y2) < y+labelHalfHeight && max(s.y1, s.y2) > y-labelHalfHeight
}

// placeLabels puts each number beside its marker, where it hits the fewest markers, other numbers, error bars and lines; one that
// lies apart gets a leader.
func placeLabels(points []point, lines []segment, left, right, top, low float64) {
	for _, p := range points {
		lines = append(lines, segment{p.X, p.low, p.X, p.high})
	}
	for i := range points {
		p, best, at := &points[i], math.Inf(1), spot{}
		for _, s := range spots {
			x, y := p.X+s.x, p.Y+s.y
			cost := s.cost
			if x < left+labelHalfWidth || x > right+8 || y < top || y > low-labelHalfHeight {
				cost += 20
			}
			for _, line := range lines {
				if line.crosses(x, y) {
					cost += 2
				}
			}
			for j := range points {
				q := &points[j]
				if math.Abs(q.X-x) < labelHalfWidth+markerHalf && math.Abs(q.Y-y) < labelHalfHeight+markerHalf {
					cost += 3
				}
				if j < i && math.Abs(q.LX-x) < 2*labelHalfWidth && math.Abs(q.LY-4-y) < 2*labelHalfHeight {
					cost += 4
				}
			}
			if cost < best {
				best, at = cost, s
			}
		}
		p.LX, p.LY = p.X+at.x, p.Y+at.y+4
		if d := math.Hypot(at.x, at.y); d > 20 {
			p.Leader = fmt.Sprintf("M%.1f %.1fL%.1f %.1f", p.X, p.Y, p.X+at.x*(d-8)/d, p.Y+at.y*(d-8)/d)
		}
	}
}
