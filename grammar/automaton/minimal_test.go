package automaton

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// refined is Moore's refinement, pass by pass: the classes of equal states, in the order of their first member.
func refined(b *builder, keep []bool) []int32 {
	n := len(b.accept)
	part := make([]int32, n)
	for q := range n {
		if b.accept[q] {
			part[q] = 1
		}
	}
	for count := 0; ; {
		ids, next := map[string]int32{}, make([]int32, n)
		for q := range n {
			if !keep[q] {
				continue
			}
			key := appendInt(nil, part[q])
			for _, to := range b.row(int32(q)) {
				if to != Dead && keep[to] {
					to = part[to]
				} else {
					to = Dead
				}
				key = appendInt(key, to)
			}
			if _, ok := ids[string(key)]; !ok {
				ids[string(key)] = int32(len(ids))
			}
			next[q] = ids[string(key)]
		}
		if part = next; len(ids) == count {
			return part
		}
		count = len(ids)
	}
}

// TestPartition: the classes are those of Moore's refinement, of automata that have few and many equal states.
func TestPartition(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	united := 0
	for range 3000 {
		b := &builder{cuts: make([]rune, 1+rnd.IntN(3))}
		n, targets := 1+rnd.IntN(30), 1+rnd.IntN(30)
		for range n {
			if _, err := b.add(rnd.IntN(4) == 0); err != nil {
				t.Fatal(err)
			}
		}
		for i := range b.next {
			if to := rnd.IntN(targets); to < n && rnd.IntN(5) > 0 {
				b.next[i] = int32(to)
			}
		}
		for q := 1; q < n; q++ { // many do what another does
			if from := rnd.IntN(q); rnd.IntN(2) == 0 {
				copy(b.row(int32(q)), b.row(int32(from)))
				b.accept[q] = b.accept[from]
			}
		}
		keep := b.useful()
		if !keep[0] {
			continue
		}
		have, want := b.partition(keep), refined(b, keep)
		for q := range n {
			if keep[q] && have[q] != want[q] {
				t.Fatalf("state %d: class %d, want %d", q, have[q], want[q])
			}
			if keep[q] && slices.Index(want, want[q]) < q {
				united++
			}
		}
	}
	if united < 1000 {
		t.Errorf("%d states were equal to others: the test sees little", united)
	}
}

// TestLongRepetition: a bounded repetition takes one state a count, and no pass over all states for each of them.
func TestLongRepetition(t *testing.T) {
	for _, pattern := range []string{`^\w{0,9999}$`, `^[\u0000-\uffff]{1,4990}$`} {
		n, err := Parse(pattern)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Search(n)
		if err != nil || d.States() < 4990 {
			t.Fatalf("%s: %v", pattern, err)
		}
	}
}
