package simulate

import (
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"terrace/csdshim/profiles"
)

// TestDrivesShareHeads: a layer on one drive, and on others that share 20 heads evenly or not, reads the same pages, is done sooner the fewer
// heads the fullest drive has, and its stages add up.
func TestDrivesShareHeads(t *testing.T) {
	profile, err := profiles.Load("instcsd")
	if err != nil {
		t.Fatal(err)
	}
	profile.NAND.Dies, profile.NAND.Planes = 2, 1 // few dies: a small text keeps them all busy
	m := shape{layers: 1, heads: 20, headDim: 64}
	var one, before map[float64]instLayer
	for _, drives := range []int{1, 7, 20} {
		d := &instDrives{m: m, tokens: 1100, drives: drives, run: 1, profile: profile}
		if err := d.open(); err != nil {
			t.Fatal(err)
		}
		now := map[float64]instLayer{}
		for _, ratio := range []float64{0, 0.125} {
			l, err := d.measure(ratio)
			if err != nil {
				t.Fatal(err)
			}
			now[ratio] = l
			if one == nil {
				continue
			}
			if l.pages != one[ratio].pages || l.first >= before[ratio].first || l.more >= before[ratio].more {
				t.Errorf("%d drives, ratio %v: %d pages in %v and %v, want %d in less than %v and %v", drives, ratio, l.pages, l.first, l.more, one[ratio].pages, before[ratio].first, before[ratio].more)
			}
			sum := time.Duration(0)
			for took := range maps.Values(l.stages) {
				sum += took
			}
			if sum != l.first {
				t.Errorf("%d drives: stages add up to %v of %v", drives, sum, l.first)
			}
		}
		if before = now; one == nil {
			one = now
		}
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
	}
	heads := split(40, 7)
	if heads[0] != 6 || heads[6] != 5 || len(heads) != 7 {
		t.Errorf("40 heads on 7 drives: %v", heads)
	}
}

// TestStacks: parts of a step are one bar whose lengths add up; an experiment without parts has no picture.
func TestStacks(t *testing.T) {
	r, err := Run("instinfer-fig14", []string{"batch=64"})
	if err != nil {
		t.Fatal(err)
	}
	list, names := stacksOf(r.Rows)
	if len(list) != 3 || len(names) != 4 {
		t.Fatalf("%d bars of %v", len(list), names)
	}
	for _, row := range r.Rows {
		if row.Metric != "step_s" {
			continue
		}
		for _, s := range list {
			if strings.HasPrefix(s.label, row.Series+" batch") && (s.whole < row.Value*(1-1e-9) || s.whole > row.Value*(1+1e-9)) {
				t.Errorf("%s: parts add up to %v of %v", s.label, s.whole, row.Value)
			}
		}
	}
	svg, err := r.SVG()
	if err != nil || strings.Count(svg, "<svg") != 1 || !strings.Contains(svg, "InstI-2-Dense") {
		t.Errorf("%v: %s", err, svg)
	}
	if r, err = Run("instinfer-kvsize", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.SVG(); !errors.Is(err, ErrArgument) {
		t.Errorf("a picture of nothing: %v", err)
	}
}

// TestPagesOfBoth: chosen tokens have fewer pages where keys and values share them, all tokens as many; streaming sends each byte once, so
// that it takes the link's time, which two drives halve.
func TestPagesOfBoth(t *testing.T) {
	profile, err := profiles.Load("instcsd")
	if err != nil {
		t.Fatal(err)
	}
	var apart, both map[float64]instLayer
	streams := map[int]time.Duration{}
	for _, c := range []struct {
		apart  bool
		drives int
		to     *map[float64]instLayer
	}{{true, 1, &apart}, {false, 1, &both}, {false, 2, nil}} {
		d := &instDrives{m: shape{layers: 1, heads: 6, headDim: 128}, tokens: 1024, drives: c.drives, apart: c.apart, run: 1, profile: profile}
		if err := d.open(); err != nil {
			t.Fatal(err)
		}
		if streams[c.drives], err = d.streamed(); err != nil {
			t.Fatal(err)
		}
		if c.to != nil {
			*c.to = map[float64]instLayer{}
			for _, ratio := range []float64{0, 0.125} {
				if (*c.to)[ratio], err = d.measure(ratio); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
	}
	if apart[0].pages != 6*128 || both[0].pages != apart[0].pages {
		t.Errorf("dense: %d and %d pages, want 768", apart[0].pages, both[0].pages)
	}
	if now, was := both[0.125], apart[0.125]; 10*now.pages > 8*was.pages || now.first >= was.first {
		t.Errorf("1/8: %d pages in %v, with pages apart %d in %v: want a fifth fewer", now.pages, now.first, was.pages, was.first)
	}
	link := time.Duration(math.Round(1024 * 6 * 512 / 3.94))
	if one := streams[1]; one < link || one > link+link/5 || streams[2] > one*6/10 {
		t.Errorf("streaming takes %v of one drive and %v of two, the link %v", one, streams[2], link)
	}
}
