package nand

import (
	"math/rand/v2"
	"testing"
	"time"
)

const us = time.Microsecond

// shape is a small array whose figures can be added in the head.
func shape(cache bool) Timing {
	return Timing{Channels: 1, Dies: 2, Planes: 2, Sense: 40 * us, Program: 200 * us, Erase: 1000 * us, Cross: 10 * us, CacheRead: cache}
}

// TestByHand compares small sequences with what a pencil gives.
func TestByHand(t *testing.T) {
	at := func(kind Kind, die, plane, row int, when time.Duration) Op {
		return Op{At: when * us, Kind: kind, Place: Place{Die: die, Plane: plane, Row: row}}
	}
	for _, tc := range []struct {
		name  string
		cache bool
		ops   []Op
		want  []time.Duration // µs
	}{
		{"one page", false, []Op{at(Read, 0, 0, 0, 5)}, []time.Duration{55}},
		{"planes sense a row together and cross in turn", false, []Op{at(Read, 0, 0, 3, 0), at(Read, 0, 1, 3, 0)}, []time.Duration{50, 60}},
		{"planes of other rows do not", false, []Op{at(Read, 0, 0, 3, 0), at(Read, 0, 1, 4, 0)}, []time.Duration{50, 100}},
		{"dies sense side by side", false, []Op{at(Read, 0, 0, 0, 0), at(Read, 1, 0, 0, 0)}, []time.Duration{50, 60}},
		{"nothing begins while sensed pages wait", false, []Op{at(Read, 0, 0, 0, 0), at(Read, 1, 0, 0, 45)}, []time.Duration{50, 100}},
		{"with cache read it does", true, []Op{at(Read, 0, 0, 0, 0), at(Read, 1, 0, 0, 45)}, []time.Duration{50, 95}},
		{"a die senses on with cache read", true, []Op{at(Read, 0, 0, 0, 0), at(Read, 0, 0, 1, 0), at(Read, 0, 0, 2, 0)}, []time.Duration{50, 90, 130}},
		{"pages cross before they are programmed", false, []Op{at(Program, 0, 0, 0, 0), at(Program, 1, 0, 0, 0)}, []time.Duration{210, 220}},
		{"reads go before waiting writes", false, []Op{at(Program, 0, 0, 0, 0), at(Program, 0, 0, 1, 0), at(Read, 0, 0, 2, 1)}, []time.Duration{210, 470, 260}},
		{"erases come last", false, []Op{at(Erase, 0, 0, 0, 0), at(Program, 0, 0, 1, 0)}, []time.Duration{1210, 210}},
	} {
		got := New(shape(tc.cache)).Run(tc.ops)
		for i, w := range tc.want {
			if got[i] != w*us {
				t.Errorf("%s: operation %d done at %v, want %v", tc.name, i, got[i], w*us)
			}
		}
	}
}

// TestInvariants runs random operations in several calls and checks the package's invariants (1) to (3).
func TestInvariants(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		g := Timing{Channels: 1 + rng.IntN(3), Dies: 1 + rng.IntN(4), Planes: 1 + rng.IntN(2), Sense: 30 * us, Program: 150 * us, Erase: 900 * us, Cross: time.Duration(rng.IntN(3)) * 7 * us, CacheRead: seed%2 == 1}
		a := New(g)
		perChannel := make([]time.Duration, g.Channels)
		for call := range 4 {
			ops := make([]Op, 1+rng.IntN(120))
			when := time.Duration(call*rng.IntN(400)) * us
			for i := range ops {
				when += time.Duration(rng.IntN(2)*rng.IntN(30)) * us
				ops[i] = Op{At: when, Kind: Kind(rng.IntN(3)), Place: g.At(rng.IntN(500))}
			}
			done := a.Run(ops)
			last := make([]time.Duration, g.Channels)
			for i, o := range ops {
				least := [...]time.Duration{g.Sense + g.Cross, g.Program + g.Cross, g.Erase}[o.Kind]
				if done[i] < o.At+least {
					t.Fatalf("seed %d: operation %d (%+v) done at %v", seed, i, o, done[i])
				}
				if o.Kind != Erase {
					perChannel[o.Place.Channel] += g.Cross
				}
				last[o.Place.Channel] = max(last[o.Place.Channel], done[i])
			}
			for c, cross := range perChannel {
				if last[c] > 0 && call == 0 && last[c] < ops[0].At+cross {
					t.Fatalf("seed %d: channel %d is done at %v with %v of crossing", seed, c, last[c], cross)
				}
			}
		}
		for c := range a.channels {
			for i, s := range a.channels[c].crossed {
				if s.from >= s.to || i > 0 && a.channels[c].crossed[i-1].to >= s.from {
					t.Fatalf("seed %d: channel %d is crossed twice at once: %v", seed, c, a.channels[c].crossed)
				}
			}
		}
	}
}

// TestCallsShareTheArray: a later call finds the dies taken, and crosses in gaps that are left.
func TestCallsShareTheArray(t *testing.T) {
	a := New(shape(false))
	one := func(at time.Duration, die int) time.Duration {
		return a.Run([]Op{{At: at * us, Place: Place{Die: die}}})[0] / us
	}
	if x, y, z := one(0, 0), one(5, 1), one(0, 0); x != 50 || y != 60 || z != 110 {
		t.Errorf("done at %d, %d, %d µs: want 50, 60 (behind the first on the channel), 110 (behind it on the die)", x, y, z)
	}
	if x, y := one(1000, 0), one(900, 1); x != 1050 || y != 950 {
		t.Errorf("done at %d and %d µs: want 1050, and 950 in the gap before", x, y)
	}
}
