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

// TestReleaseKeepsWhatIsUsed: giving the memory of free pages back leaves those in use as they are, whatever lies between them, and pages
// that are taken again can be written.
func TestReleaseKeepsWhatIsUsed(t *testing.T) {
	for _, size := range []int{1000, 4096, 10000, 70000} {
		p := New(size, 4)
		rng := rand.New(rand.NewPCG(uint64(size), 2))
		held := map[Ref]byte{}
		for step := range 300 {
			switch rng.IntN(5) {
			case 0, 1, 2:
				r, err := p.Take()
				if err != nil {
					t.Fatal(err)
				}
				mark := byte(1 + step%250)
				for i := range p.Data(r) {
					p.Data(r)[i] = mark
				}
				if len(p.Data(r)) != size || cap(p.Data(r)) != size || len(p.Positions(r)) != 4 {
					t.Fatalf("a page of %d bytes has %d", size, len(p.Data(r)))
				}
				held[r] = mark
			case 3:
				for r := range held {
					if !p.Drop(r) {
						t.Fatal("a page's last reference does not free it")
					}
					delete(held, r)
					break
				}
			case 4:
				p.Release()
			}
			if p.Referenced() != len(held) {
				t.Fatalf("%d pages are referenced, %d held", p.Referenced(), len(held))
			}
		}
		p.Release()
		for r, mark := range held {
			if d := p.Data(r); d[0] != mark || d[size-1] != mark || d[size/2] != mark {
				t.Errorf("a page in use lost its bytes")
			}
		}
		p.Close()
	}
	if WholeSystemPages(1) != systemPageBytes || WholeSystemPages(systemPageBytes) != systemPageBytes || WholeSystemPages(0) != 0 {
		t.Error("whole system pages")
	}
}

// TestDroppedTwicePanics: it is a bug, and found at once.
func TestDroppedTwicePanics(t *testing.T) {
	p := New(64, 1)
	defer p.Close()
	r, err := p.Take()
	if err != nil {
		t.Fatal(err)
	}
	p.Ref(r)
	if p.Drop(r) || !p.Drop(r) {
		t.Error("of two references the second frees the page")
	}
	defer func() {
		if recover() == nil {
			t.Error("a page was freed twice and nobody noticed")
		}
	}()
	p.Drop(r)
}
