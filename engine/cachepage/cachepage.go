// Package cachepage draws a text's KV cache as it changes: which tokens each layer has kept, whether they lie in host memory or on the tier
// below, what moved at each step, and where experts are that are read from the file; as one HTML page that loads nothing.
package cachepage

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"

	"terrace/engine"
	"terrace/engine/tier"
)

const (
	columns   = 384 // cells of a row at most, each of as many positions
	framesMax = 64  // steps that are drawn; of longer texts every second, every fourth, …
	shades    = 15  // steps between no token and all of a cell
)

// Recorder notes what a session holds, step by step.
type Recorder struct {
	e      *engine.Engine
	lower  string // the tier below host memory; "" = none
	cell   int    // positions of a cell
	stride int    // steps between frames
	steps  []step
	frames []frame
	before engine.TierUse
}

// step is what is drawn of every step.
type step struct {
	Tokens int              `json:"tokens"` // positions so far
	Held   float64          `json:"held"`   // a layer and KV head, on average
	Bytes  int64            `json:"bytes"`  // in pages
	Moved  map[string]int64 `json:"moved,omitempty"`
}

// frame is the cache after a step: a row a layer that keeps tokens, of two letters a cell, how much of it is in memory and how much below.
type frame struct {
	Step    int            `json:"step"`
	Rows    []string       `json:"rows"`
	Experts map[int]string `json:"experts,omitempty"` // by layer, a letter each (stream.Places)
}

// New begins a picture of a text of at most so many tokens.
func New(e *engine.Engine, tokens int) *Recorder {
	r := &Recorder{e: e, cell: max((tokens+columns-1)/columns, 1), stride: 1, before: e.TierUse()}
	for _, t := range e.Options().Tiers {
		if t.Kind != tier.Host && t.Kind != tier.Device {
			r.lower = string(t.Kind)
		}
	}
	return r
}

// Note notes what the session holds now: after the prompt, and after each step.
func (r *Recorder) Note(s *engine.Session) {
	use, now := s.KVUse(), r.e.TierUse()
	moved := map[string]int64{}
	for way, n := range now.MovedBytes {
		if d := n - r.before.MovedBytes[way]; d > 0 {
			moved[way] = d
		}
	}
	r.before = now
	r.steps = append(r.steps, step{Tokens: s.Tokens(), Held: use.Tokens, Bytes: use.Bytes, Moved: moved})
	if n := len(r.steps) - 1; n%r.stride == 0 {
		r.frames = append(r.frames, frame{n, r.rows(s), r.e.ExpertPlaces()})
		r.thin()
	}
}

// thin drops every second frame where there are too many.
func (r *Recorder) thin() {
	if len(r.frames) <= framesMax {
		return
	}
	kept := r.frames[:0]
	for i, f := range r.frames {
		if i%2 == 0 {
			kept = append(kept, f)
		}
	}
	r.frames, r.stride = kept, 2*r.stride
}

// rows are a frame's.
func (r *Recorder) rows(s *engine.Session) []string { return rows(r.e, s, r.cell) }

// Map is a session's cache at a moment: a row a layer that keeps tokens.
type Map struct {
	Cell   int      `json:"cell"`   // positions of a cell
	Shades int      `json:"shades"` // of a letter above a
	Layers []int    `json:"layers"` // of the rows
	Rows   []string `json:"rows"`   // two letters a cell: how much of it is in memory and how much below, from a for none
}

// MapOf is the map of a session between two steps, in at most so many cells a row.
func MapOf(e *engine.Engine, s *engine.Session, cells int) Map {
	cell := max((s.Tokens()+cells-1)/cells, 1)
	return Map{Cell: cell, Shades: shades, Layers: layers(e), Rows: rows(e, s, cell)}
}

// layers are those that keep tokens.
func layers(e *engine.Engine) (out []int) {
	for layer, shape := range e.Cache() {
		if shape.KV.Heads > 0 {
			out = append(out, layer)
		}
	}
	return out
}

func rows(e *engine.Engine, s *engine.Session, cell int) (rows []string) {
	cells := (s.Tokens() + cell - 1) / cell
	for _, layer := range layers(e) {
		heads, memory, below := e.Cache()[layer].KV.Heads, make([]int, cells), make([]int, cells)
		for g := range heads {
			for i, pos := range s.Positions(layer, g) {
				at := min(int(pos)/cell, cells-1)
				if s.InMemory(layer, g, i) {
					memory[at]++
				} else {
					below[at]++
				}
			}
		}
		var row strings.Builder
		for i := range cells {
			all := min(cell, s.Tokens()-i*cell) * heads
			row.WriteByte(shade(memory[i], all))
			row.WriteByte(shade(below[i], all))
		}
		rows = append(rows, row.String())
	}
	return rows
}

// shade is a letter for n of all, a for none; some is never none.
func shade(n, all int) byte {
	if n == 0 || all == 0 {
		return 'a'
	}
	return 'a' + byte(max(1, min(shades, n*shades/all)))
}

//go:embed page.html
var files embed.FS

var page = template.Must(template.ParseFS(files, "page.html"))

// picture is what the page's script draws.
type picture struct {
	Cell   int     `json:"cell"`
	Shades int     `json:"shades"`
	Layers []int   `json:"layers"` // of the rows
	Lower  string  `json:"lower"`
	Prompt int     `json:"prompt"`
	Steps  []step  `json:"steps"`
	Frames []frame `json:"frames"`
}

// Write writes the page. title names the model; the text has so many tokens of prompt.
func (r *Recorder) Write(w io.Writer, title, policy string, prompt int) error {
	p := picture{Cell: r.cell, Shades: shades, Layers: layers(r.e), Lower: r.lower, Prompt: prompt, Steps: r.steps, Frames: r.frames}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := page.Execute(w, map[string]any{"Title": title, "Policy": policy, "Lower": r.lower, "Prompt": prompt, "Data": template.JS(data)}); err != nil { // JSON escapes < and >
		return fmt.Errorf("cachepage: %w", err)
	}
	return nil
}
