package stream

import "testing"

// TestTrust: predictions that are wrong more often than right are followed one time in sixteen, until they are right again.
func TestTrust(t *testing.T) {
	var x trust
	followed := func(n int) (given int) {
		for range n {
			if x.given() {
				given++
			}
		}
		return given
	}
	if n := followed(32); n != 32 {
		t.Errorf("nothing is known yet: %d of 32 followed", n)
	}
	for i := range 90 { // a third is wrong
		x.learn(i%3 != 0)
	}
	if n := followed(32); n != 32 {
		t.Errorf("two of three are right: %d of 32 followed", n)
	}
	for i := range 90 {
		x.learn(i%3 == 0)
	}
	if n := followed(160); n != 10 {
		t.Errorf("two of three are wrong: %d of 160 followed", n)
	}
	for range 30 {
		x.learn(true)
	}
	if n := followed(32); n != 32 {
		t.Errorf("right again: %d of 32 followed", n)
	}
}

// TestWrongPredictionsAreGivenUp: steps whose predictions are never right read little more than those without.
func TestWrongPredictionsAreGivenUp(t *testing.T) {
	const layers, experts, used = 2, 16, 2
	read := func(predict bool) int64 {
		p, _ := testPlan(t, layers, experts, used, layers*experts/2)
		s := open(t, p, Options{})
		for n := range 400 {
			for l := range layers {
				if _, err := step(t, s, l, map[int]int{n % 8: 1, (n + 1) % 8: 1}, 1, false); err != nil {
					t.Fatal(err)
				}
				if predict {
					s.Predict((l+1)%layers, []int{8 + n%8}) // no step uses these
				}
			}
		}
		return s.Accounts().ReadBytes
	}
	none, wrong := read(false), read(true)
	// Each of 800 predictions costs two reads where all are followed, its own and that of the expert that leaves: 1,500 are seen.
	if one := none / (layers * experts / 2); wrong > none+400*one {
		t.Errorf("%d bytes read with predictions that are never right, %d without", wrong, none)
	}
}
