package slab

import (
	"math/rand/v2"
	"testing"
)

// TestPages takes, shares and drops pages in any order: no page is handed out twice, bytes stay, and all come back.
func TestPages(t *testing.T) {
	for _, size := range []int{64, 4096, 12288, 5 << 20} {
		p := New(size, 16)
		rng := rand.New(rand.NewPCG(uint64(size), 1))
		type held struct {
			ref  Ref
			refs int
			mark byte
		}
		var all []*held
		for step := range 400 {
			switch {
			case len(all) == 0 || len(all) < 40 && rng.IntN(2) == 0:
				r, err := p.Take()
				if err != nil {
					t.Fatal(err)
				}
				h := &held{r, 1, byte(step)}
				p.Data(r)[0], p.Data(r)[size-1], p.Positions(r)[15] = h.mark, h.mark, int32(step)
				all = append(all, h)
			case rng.IntN(4) == 0:
				h := all[rng.IntN(len(all))]
				p.Ref(h.ref)
				h.refs++
			default:
				i := rng.IntN(len(all))
				h := all[i]
				if h.refs > 1 != p.Shared(h.ref) {
					t.Fatalf("%d references, shared %v", h.refs, p.Shared(h.ref))
				}
				h.refs--
				if p.Drop(h.ref) != (h.refs == 0) {
					t.Fatalf("free with %d references", h.refs)
				}
				if h.refs == 0 {
					all = append(all[:i], all[i+1:]...)
				}
			}
			if step%50 == 0 {
				p.Release()
			}
			for _, h := range all {
				if d := p.Data(h.ref); d[0] != h.mark || d[size-1] != h.mark {
					t.Fatalf("pages of %d bytes: a page in use has changed", size)
				}
			}
		}
		if p.Referenced() != len(all) {
			t.Errorf("%d pages referenced, %d held", p.Referenced(), len(all))
		}
		p.Close()
	}
}

// TestDroppedTwice: a page that is dropped once too often is a bug.
func TestDroppedTwice(t *testing.T) {
	p := New(4096, 0)
	defer p.Close()
	r, err := p.Take()
	if err != nil {
		t.Fatal(err)
	}
	p.Drop(r)
	defer func() {
		if recover() == nil {
			t.Error("nothing was said")
		}
	}()
	p.Drop(r)
}
