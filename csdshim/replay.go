package csdshim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"terrace/csdshim/hardware"
	"terrace/csdshim/nand"
)

// Replayed is what the modelled flash makes of a list of page requests: when each request's last page was done and when the
// last of all was, microseconds after time 0.
type Replayed struct {
	CompletedUs []float64 `json:"completed_us"`
	MakespanUs  float64   `json:"makespan_us"`
	Source      string    `json:"source"` // "modelled"
}

// Limits of a replay: pages of all requests, the highest page number, and the last arrival.
const (
	maxReplayPages = 1 << 24
	maxReplayPage  = 1 << 40
	maxReplayUs    = 1e12
	maxReplayLine  = 4096
)

// pageRequest is a line of a trace.
type pageRequest struct {
	AtUs  *float64 `json:"at_us"`
	Op    *string  `json:"op"`
	Page  *int64   `json:"page"`
	Pages *int64   `json:"pages"`
}

// Replay runs page requests (a JSON object a line, at_us rising) through a profile's flash alone: no link, engine or
// translation layer; logical pages lie on channels first, then dies, then planes. What is wrong with a line wraps ErrTrace
// and names it.
func Replay(trace io.Reader, p Profile) (Replayed, error) {
	t := p.FlashTiming()
	var ops []nand.Op
	var ends []int // of each request's operations
	lines := bufio.NewScanner(trace)
	lines.Buffer(make([]byte, 0, maxReplayLine), maxReplayLine)
	last := 0.0
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		r, kind, err := parseRequest(lines.Bytes(), last, maxReplayPages-len(ops))
		if err != nil {
			return Replayed{}, fmt.Errorf("csdshim: line %d: %w: %w", n, err, ErrTrace)
		}
		last = *r.AtUs
		for i := range *r.Pages {
			ops = append(ops, nand.Op{At: hardware.Micros(last), Kind: kind, Place: t.At(int(*r.Page + i))})
		}
		ends = append(ends, len(ops))
	}
	if err := lines.Err(); err != nil {
		return Replayed{}, fmt.Errorf("csdshim: after %d requests: %w: %w", len(ends), err, ErrTrace)
	}
	return replayed(p, nand.New(t).Run(ops), ops, ends), nil
}

func parseRequest(line []byte, last float64, room int) (r pageRequest, kind nand.Kind, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, 0, fmt.Errorf("want one object {\"at_us\",\"op\",\"page\",\"pages\"}: %w", err)
	}
	if d.More() || r.AtUs == nil || r.Op == nil || r.Page == nil || r.Pages == nil {
		return r, 0, errors.New(`want one object with at_us, op, page and pages`)
	}
	switch *r.Op {
	case "read":
		kind = nand.Read
	case "write":
		kind = nand.Program
	default:
		return r, 0, fmt.Errorf("op %.20q: want read or write", *r.Op)
	}
	switch {
	case !(*r.AtUs >= last) || *r.AtUs > maxReplayUs:
		return r, 0, fmt.Errorf("at_us %v: want %v, the line before's, to %v", *r.AtUs, last, maxReplayUs)
	case *r.Pages < 1 || *r.Pages > int64(room):
		return r, 0, fmt.Errorf("pages %d: want 1 to %d, %d in all", *r.Pages, room, maxReplayPages)
	case *r.Page < 0 || *r.Page > maxReplayPage:
		return r, 0, fmt.Errorf("page %d: want 0 to %d", *r.Page, maxReplayPage)
	}
	return r, kind, nil
}

// replayed adds the bus behind the channels, where the profile has one: requests cross it in order.
func replayed(p Profile, done []time.Duration, ops []nand.Op, ends []int) Replayed {
	out := Replayed{CompletedUs: make([]float64, 0, len(ends)), Source: "modelled"}
	var bus line
	from := 0
	for _, to := range ends {
		_, at := bus.reserve(ops[from].At, hardware.Crossing((to-from)*p.NAND.PageBytes, p.NAND.BusBytesPerS))
		for _, d := range done[from:to] {
			at = max(at, d)
		}
		us := float64(at) / 1e3
		out.CompletedUs, out.MakespanUs = append(out.CompletedUs, us), max(out.MakespanUs, us)
		from = to
	}
	return out
}
