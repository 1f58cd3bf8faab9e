package policy

import (
	"fmt"
	"sync"
	"testing"
)

// asked is what a specification says of itself before a model is known.
func asked(s *Spec) string {
	block, follows := s.Follows()
	rows, own := s.OwnRows()
	return fmt.Sprint(s.checked.sees(), block, follows, rows, own, s.Lossless(), s.Causal(), s.AttendsOnDrives(), s.DropsEachStep(), s.Watches(), s.Rereads(), s.Unscored(), s.Ranks())
}

// TestSpecIsAskedByMany: a specification answers from one instance, whoever asks, and is as it was afterwards.
func TestSpecIsAskedByMany(t *testing.T) {
	for _, info := range Infos() {
		s, err := Parse(info.Spec())
		if err != nil {
			t.Fatal(err)
		}
		want := asked(s)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if got := asked(s); got != want {
					t.Errorf("%s: %s, then %s", s, want, got)
				}
			})
		}
		all.Wait()
		again, err := Parse(s.String())
		if err != nil || asked(again) != want {
			t.Errorf("%s: %s, read again %s, %v", s, want, asked(again), err)
		}
		if n := testing.AllocsPerRun(10, func() { s.Lossless(); s.Causal(); s.Follows(); s.AttendsOnDrives(); s.DropsEachStep() }); n > 0 {
			t.Errorf("%s: %g allocations to answer", s, n)
		}
	}
}
