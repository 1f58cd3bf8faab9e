package stream

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"
)

// settle waits until nothing is on its way.
func (s *Store) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for slices.ContainsFunc(s.layers, func(l layer) bool {
		return slices.ContainsFunc(l.units, func(u *unit) bool { return u.state == coming })
	}) {
		s.moved.Wait()
	}
}

// TestModelled: on recorded choices a modelled store counts what a real one does, to the byte, with and without predictions, one token
// at a time and several.
func TestModelled(t *testing.T) {
	const experts, used = 64, 4
	trace, layers := recorded(t)
	trace = trace[:min(len(trace), 120*layers)]
	for _, share := range []int{6, 3} {
		for _, c := range []struct{ right, tokens int }{{0, 1}, {3, 1}, {0, 3}} { // of the experts that a prediction names
			p, path := testPlan(t, layers, experts, used, layers*experts/share)
			file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.Write(make([]byte, 2*mostAlign)); err != nil { // so that no read ends at the end of the file
				t.Fatal(err)
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			s := open(t, p, Options{})
			from, err := s.files.get(path)
			if err != nil {
				t.Fatal(err)
			}
			m, err := NewModelled(p, Disk{BytesPerS: 1e9, Align: int64(from.Alignment())})
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; at+c.tokens*layers <= len(trace); at += c.tokens * layers {
				for l := range layers {
					rows := map[int]int{}
					for n := range c.tokens {
						for _, e := range trace[at+n*layers+l].experts {
							rows[e]++
						}
					}
					if c.right > 0 {
						likely := append([]int{(at + 7*l) % experts}, trace[at+l].experts[:c.right]...)
						s.Predict(l, likely)
						s.settle()
						m.Predict(l, likely)
						m.Settle()
					}
					if _, err := step(t, s, l, rows, c.tokens, false); err != nil {
						t.Fatal(err)
					}
					if err := m.Use(l, func(e int) int { return rows[e] }, c.tokens, false, 0); err != nil {
						t.Fatal(err)
					}
				}
			}
			got, want := m.Accounts(), s.Accounts()
			if got != want || want.Hits == 0 || want.Hits == want.Used || (c.right > 0) != (want.Wasted > 0) {
				t.Errorf("1/%d in memory, %+v: modelled %+v, real %+v", share, c, got, want)
			}
		}
	}
}

// TestModelledTime: time by hand, of one layer of experts of which each is one read.
func TestModelledTime(t *testing.T) {
	p, _ := testPlan(t, 1, 4, 2, 4)
	bytes := 4 * testRows * testCols
	second := float64(bytes) // a rate at which an expert's bytes take a second
	rows := func(wanted ...int) func(int) int {
		return func(e int) int {
			if slices.Contains(wanted, e) {
				return 1
			}
			return 0
		}
	}
	for _, c := range []struct {
		name string
		disk Disk
		run  func(m *Modelled) error
		want time.Duration // beside what stays
	}{
		{"two reads, then computing the second", Disk{BytesPerS: second}, func(m *Modelled) error { return m.Use(0, rows(0, 1), 1, false, time.Second/4) }, 2*time.Second + time.Second/4},
		{"computing takes longer than the second read", Disk{BytesPerS: second}, func(m *Modelled) error { return m.Use(0, rows(0, 1), 1, false, 3*time.Second) }, 7 * time.Second},
		{"a prediction comes while something else is computed", Disk{BytesPerS: second}, func(m *Modelled) error {
			m.Predict(0, []int{2})
			m.Compute(time.Second + time.Second/2)
			return m.Use(0, rows(2), 1, false, time.Second)
		}, 2*time.Second + time.Second/2},
		{"a prediction that is half there", Disk{BytesPerS: second}, func(m *Modelled) error {
			m.Predict(0, []int{2})
			m.Compute(time.Second / 2)
			return m.Use(0, rows(2), 1, false, 0)
		}, time.Second},
		{"latencies pass together", Disk{BytesPerS: second, Latency: time.Second}, func(m *Modelled) error { return m.Use(0, rows(0, 1), 1, false, 0) }, 3 * time.Second},
		{"form takes time of computing", Disk{FormBytesPerS: second}, func(m *Modelled) error {
			m.Predict(0, []int{2})
			m.Compute(4 * time.Second)
			return nil
		}, 5 * time.Second},
		{"form follows the disk", Disk{BytesPerS: second, FormBytesPerS: second}, func(m *Modelled) error { return m.Use(0, rows(0, 1), 1, false, 0) }, 3 * time.Second},
		{"what is there is not read", Disk{BytesPerS: second}, func(m *Modelled) error {
			return errors.Join(m.Use(0, rows(0, 1), 1, false, 0), m.Use(0, rows(1), 1, false, 0))
		}, 2 * time.Second},
	} {
		m, err := NewModelled(p, c.disk)
		if err != nil {
			t.Fatal(err)
		}
		begin := m.Now()
		if err := c.run(m); err != nil {
			t.Fatal(err)
		}
		if got := m.Now() - begin; (got - c.want).Abs() > time.Microsecond {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	p.BudgetBytes = p.LeastBytes() - 1
	if _, err := NewModelled(p, Disk{}); !errors.Is(err, ErrBudget) {
		t.Errorf("a budget below the least: %v", err)
	}
}
