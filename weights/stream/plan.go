package stream

import (
	"fmt"

	"terrace/internal/kernels"
	"terrace/internal/units"
	"terrace/internal/vfs"
)

// Part is a weight matrix and where its rows lie in a file, one behind another.
type Part struct {
	W      *kernels.Matrix // vacant
	ByRow  bool            // rows are read one by one (kernels.Matrix.Row): they stay as they are in the file
	Path   string
	Offset int64
}

func (p *Part) bytes() int64 {
	return int64(p.W.PlacedBytes(p.ByRow)+partAlign-1) / partAlign * partAlign
}

// partAlign is where a matrix begins in the memory of its unit: a cache line.
const partAlign = 64

// Unit are matrices that come and leave together.
type Unit []Part

// Bytes is what the unit takes in memory.
func (u Unit) Bytes() (n int64) {
	for i := range u {
		n += u[i].bytes()
	}
	return (n + pageBytes - 1) / pageBytes * pageBytes
}

// pageBytes is what memory of units is counted in.
const pageBytes = 4096

// Plan says what the weights are and how much of them may be in memory.
type Plan struct {
	BudgetBytes int64
	OtherBytes  int64    // of weights that the caller holds beside: norms, biases
	Pinned      []Unit   // that stay
	Experts     [][]Unit // [layer][expert]; nil for a layer without. Empty: a dense model
	Used        int      // experts of a layer that a token uses
	Layers      []Unit   // of a dense model, in the order of a pass: as many stay as fit
}

// Options say how files are read.
type Options struct {
	FS     vfs.FS                         // nil: the system's
	Again  func(err error, made int) bool // whether a read that failed is begun once more; nil: never
	Notice func(line string)              // is told what a user should know; nil: nobody is
	// Check compares a file with what it was when the model was opened; nil: with what it is when its first part is read.
	Check func() error
}

// staging is what pieces take that are under way.
func (p *Plan) staging() int64 {
	piece := 0
	for u := range p.units {
		for i := range u {
			piece = max(piece, pieceOf(u[i].W))
		}
	}
	return readers * int64(stageBytes(piece))
}

func (p *Plan) units(yield func(Unit) bool) {
	for _, list := range append([][]Unit{p.Pinned, p.Layers}, p.Experts...) {
		for _, u := range list {
			if !yield(u) {
				return
			}
		}
	}
}

// PinnedBytes is what is in memory all the time, pieces under way included.
func (p *Plan) PinnedBytes() int64 {
	n := p.OtherBytes + p.staging()
	for _, u := range p.Pinned {
		n += u.Bytes()
	}
	return n
}

// LeastBytes is the smallest budget: what is pinned and the experts of one token in one layer, or two layers.
func (p *Plan) LeastBytes() int64 {
	most := int64(0)
	for _, list := range append([][]Unit{p.Layers}, p.Experts...) {
		for _, u := range list {
			most = max(most, u.Bytes())
		}
	}
	if len(p.Experts) > 0 {
		return p.PinnedBytes() + most*int64(max(p.Used, 1)+1)
	}
	return p.PinnedBytes() + 2*most
}

// TotalBytes is what all weights take in memory.
func (p *Plan) TotalBytes() int64 {
	n := p.OtherBytes
	for u := range p.units {
		n += u.Bytes()
	}
	return n
}

// WholeBytes is the smallest budget with which nothing ever leaves.
func (p *Plan) WholeBytes() int64 { return p.TotalBytes() + p.staging() }

// Check refuses a budget below LeastBytes; the error wraps ErrBudget and names the least.
func (p *Plan) Check() error {
	if least := p.LeastBytes(); p.BudgetBytes < least {
		return fmt.Errorf("stream: %s of memory for weights, want %s at least (%s stay, a step needs the rest): %w",
			units.FormatBytes(p.BudgetBytes), units.FormatBytes(least), units.FormatBytes(p.PinnedBytes()), ErrBudget)
	}
	return nil
}

// pinLayers moves as many layers as fit to those that stay, spread evenly, so that reading goes on while those are computed; two
// of the largest find room beside them. It returns which stay.
func (p *Plan) pinLayers() []bool {
	stay := make([]bool, len(p.Layers))
	if len(p.Layers) == 0 {
		return stay
	}
	room, most := p.BudgetBytes-p.PinnedBytes(), int64(0)
	for _, u := range p.Layers {
		most = max(most, u.Bytes())
	}
	all := int64(0)
	for _, u := range p.Layers {
		all += u.Bytes()
	}
	if all <= room {
		for i := range stay {
			stay[i] = true
		}
		return stay
	}
	count := len(p.Layers)
	for fits := false; !fits; {
		count--
		used := int64(0)
		for i := range stay {
			if stay[i] = (i+1)*count/len(stay) > i*count/len(stay); stay[i] {
				used += p.Layers[i].Bytes()
			}
		}
		fits = count == 0 || used <= room-2*most
	}
	return stay
}

// StepBytes is what a decode step of one text reads, in bytes: of a dense model the layers that do not stay; of experts those that a
// token uses, less the part of them that fits, as if all were chosen alike (real choices are skewed, so that more are found).
func (p *Plan) StepBytes() int64 {
	all := int64(0)
	for _, list := range p.Experts {
		for _, u := range list {
			all += u.Bytes()
		}
	}
	if all > 0 {
		used := int64(0)
		for _, list := range p.Experts {
			if len(list) > 0 {
				used += int64(p.Used) * list[0].Bytes()
			}
		}
		there := min(max(p.BudgetBytes-p.PinnedBytes(), 0), all)
		return int64(float64(used) * (1 - float64(there)/float64(all)))
	}
	read := int64(0)
	for i, stays := range p.pinLayers() {
		if !stays {
			read += p.Layers[i].Bytes()
		}
	}
	return read
}
