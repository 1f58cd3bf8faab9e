package offload

import (
	"path/filepath"
	"strconv"
	"strings"
)

// ReadCost is what a read takes of the device while others are under way: operation + bytes·perByte seconds, the straight line through what
// was measured (random reads at depth 32, blocks that stream), by least squares of relative errors; neither is below 0.
func (r *StorageRates) ReadCost() (operation, perByte float64) {
	var l line
	for kib, rate := range r.Random {
		if n, err := strconv.ParseFloat(kib, 64); err == nil && rate > 0 {
			l.point(n*1024, 1/rate)
		}
	}
	if r.StreamRead > 0 {
		l.point(rawBlock, rawBlock/r.StreamRead)
	}
	return l.through()
}

// HandCost is what handing a read over takes of the caller's time, likewise; 0 where it was not measured.
func (r *StorageRates) HandCost() (operation, perByte float64) {
	var l line
	for kib, s := range r.SubmitBy {
		if n, err := strconv.ParseFloat(kib, 64); err == nil && s > 0 {
			l.point(n*1024, s)
		}
	}
	if r.SubmitLarge > 0 {
		l.point(rawBlock, r.SubmitLarge)
	}
	return l.through()
}

// line is sums over points, for the straight line of the least squares of relative errors.
type line struct{ w, x, y, xx, xy float64 }

func (l *line) point(x, y float64) {
	u := 1 / (y * y)
	l.w, l.x, l.y, l.xx, l.xy = l.w+u, l.x+u*x, l.y+u*y, l.xx+u*x*x, l.xy+u*x*y
}

// through is the line's value at 0 and its slope, neither below 0.
func (l *line) through() (at0, slope float64) {
	if det := l.w*l.xx - l.x*l.x; det > 0 {
		slope = max(0, (l.w*l.xy-l.x*l.y)/det)
	}
	if l.w > 0 {
		at0 = max(0, (l.y-slope*l.x)/l.w)
	}
	return at0, slope
}

// GapBytes is how many bytes are read in the time that one more operation takes: where less lies between two tokens that are wanted, it is
// sooner read with them and thrown away (SSDOptions.GapBytes). An operation takes the device's time, a core's to hand it over (Submit), and
// about as much to take it back; bytes take the device's alone. 0 = the rates do not say.
func (r *StorageRates) GapBytes() int {
	operation, perByte := r.ReadCost()
	if perByte == 0 || r.Submit == 0 {
		return 0
	}
	return int(min((operation+2*r.Submit)/perByte, mostGapBytes))
}

// mostGapBytes bounds GapBytes: what was measured beside other work may say anything.
const mostGapBytes = 64 << 10

// StorageOf is what was measured of the directory, or of the nearest one that it lies in; nil where none was.
func (p *Profile) StorageOf(dir string) (near *StorageRates) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil
	}
	for i := range p.Storage {
		s := &p.Storage[i]
		rest, err := filepath.Rel(s.Dir, dir)
		if err != nil || rest == ".." || strings.HasPrefix(rest, ".."+string(filepath.Separator)) {
			continue
		}
		if near == nil || len(s.Dir) > len(near.Dir) {
			near = s
		}
	}
	return near
}
