package offload

import (
	"path/filepath"
	"strconv"
	"strings"
)

// ReadCost is what a read takes of the device while others are under way: operation + bytes·perByte seconds, the straight line through what
// was measured (random reads at depth 32, blocks that stream), by least squares of relative errors; neither is below 0.
func (r *StorageRates) ReadCost() (operation, perByte float64) {
	var w, wx, wy, wxx, wxy float64
	point := func(x, y float64) {
		u := 1 / (y * y)
		w, wx, wy, wxx, wxy = w+u, wx+u*x, wy+u*y, wxx+u*x*x, wxy+u*x*y
	}
	for kib, rate := range r.Random {
		if n, err := strconv.ParseFloat(kib, 64); err == nil && rate > 0 {
			point(n*1024, 1/rate)
		}
	}
	if r.StreamRead > 0 {
		point(rawBlock, rawBlock/r.StreamRead)
	}
	if det := w*wxx - wx*wx; det > 0 {
		perByte = max(0, (w*wxy-wx*wy)/det)
	}
	if w > 0 {
		operation = max(0, (wy-perByte*wx)/w)
	}
	return operation, perByte
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
