package stream

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
	"terrace/internal/vfs"
	"terrace/weights/mapped"
)

const (
	testRows = 33 // of a matrix: whole pieces and a rest
	testCols = 64
)

// testFile is a file of so many matrices behind a header that leaves nothing aligned; every value of matrix i is i.
func testFile(t *testing.T, count int) (path string, unit func(i int) Unit) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "weights")
	raw := make([]byte, 100)
	for i := range count {
		for range testRows * testCols {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(i)))
		}
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func(i int) Unit {
		m, err := kernels.NewVacant(quant.F32, testRows, testCols)
		if err != nil {
			t.Fatal(err)
		}
		return Unit{{W: m, ByRow: true, Path: path, Offset: int64(100 + i*4*testRows*testCols)}}
	}
}

// testPlan is a plan of layers with experts, unit layer·experts + expert, behind one that stays; room is how many experts fit.
func testPlan(t *testing.T, layers, experts, used, room int) (Plan, string) {
	path, unit := testFile(t, layers*experts+1)
	p := Plan{Used: used, Pinned: []Unit{unit(layers * experts)}}
	for l := range layers {
		var list []Unit
		for e := range experts {
			list = append(list, unit(l*experts+e))
		}
		p.Experts = append(p.Experts, list)
	}
	p.BudgetBytes = p.PinnedBytes() + int64(room)*p.Experts[0][0].Bytes()
	return p, path
}

func open(t *testing.T, p Plan, o Options) *Store {
	t.Helper()
	s, err := Open(p, NewFiles(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.balanced(t)
	})
	return s
}

// balanced checks the accounts: what is held is what units and pieces take, and nothing is in use.
func (s *Store) balanced(t *testing.T) {
	t.Helper()
	sum := s.plan.PinnedBytes()
	for i := range s.layers {
		own := int64(0)
		for e, u := range s.layers[i].units {
			if u.state != absent {
				own += u.size
			}
			if u.holds != 0 {
				t.Errorf("layer %d: expert %d is held %d times", i, e, u.holds)
			}
		}
		if sum += own; own != s.layers[i].bytes {
			t.Errorf("layer %d: %d bytes counted, %d there", i, s.layers[i].bytes, own)
		}
	}
	for _, u := range s.sweep.units {
		if u.state != absent {
			sum += u.size
		}
	}
	if sum != s.held || s.account.peak > s.plan.BudgetBytes {
		t.Errorf("%d bytes counted, %d there; at most %d, budget %d", s.held, sum, s.account.peak, s.plan.BudgetBytes)
	}
}

// value is the first and the last number of a unit that is here.
func value(t *testing.T, u Unit) int {
	t.Helper()
	row := make([]float32, testCols)
	u[0].W.Row(row, 0)
	first := row[0]
	if u[0].W.Row(row, testRows-1); row[testCols-1] != first {
		t.Errorf("first value %g, last %g", first, row[testCols-1])
	}
	return int(first)
}

// step runs a step and returns the experts in the order in which they came.
func step(t *testing.T, s *Store, layer int, rows map[int]int, n int, order bool) (came []int, err error) {
	t.Helper()
	var st Step
	s.Use(&st, layer, func(e int) int { return rows[e] }, n, order)
	defer st.End()
	for {
		e, ok, err := st.Next()
		if err != nil || !ok {
			return came, err
		}
		units := s.plan.Experts[layer]
		if got := value(t, units[e]); got != layer*len(units)+e {
			t.Errorf("layer %d expert %d holds the values of matrix %d", layer, e, got)
		}
		came = append(came, e)
	}
}

// TestExperts: random steps with predictions see the right bytes within the budget, whatever the room; in order they come in order.
func TestExperts(t *testing.T) {
	const layers, experts, used = 4, 8, 2
	for _, room := range []int{used + 1, used + 2, layers * used, layers*experts - 1, layers * experts} {
		p, _ := testPlan(t, layers, experts, used, room)
		s := open(t, p, Options{})
		r := rand.New(rand.NewPCG(uint64(room), 1))
		for n := range 60 {
			for l := range layers {
				rows, order := map[int]int{}, n%3 == 0
				for range used + 6*(n%2) { // more than fit, now and then
					rows[r.IntN(experts)]++
				}
				came, err := step(t, s, l, rows, 8, order)
				if err != nil {
					t.Fatal(err)
				}
				if len(came) != len(rows) {
					t.Fatalf("%d experts came, %d were chosen", len(came), len(rows))
				}
				for i := 1; order && i < len(came); i++ {
					if came[i] < came[i-1] {
						t.Fatalf("in order: %v", came)
					}
				}
				s.Predict((l+1)%layers, []int{r.IntN(experts), r.IntN(experts)})
			}
		}
		u := s.Accounts()
		if room == layers*experts && u.ReadBytes > 2*int64(len(p.Experts)*experts+1)*p.Experts[0][0].Bytes() {
			t.Errorf("all fit, yet %d bytes were read", u.ReadBytes)
		}
		if u.Used == 0 || u.Hits > u.Used || u.Wasted > u.Asked || u.PeakBytes > p.BudgetBytes {
			t.Errorf("accounts: %+v", u)
		}
	}
}

// TestPromptReadsOnce: a step that uses all experts of a layer reads each at most once, though few fit.
func TestPromptReadsOnce(t *testing.T) {
	const layers, experts = 3, 16
	p, _ := testPlan(t, layers, experts, 2, 5)
	s := open(t, p, Options{})
	all := map[int]int{}
	for e := range experts {
		all[e] = e + 1
	}
	before := s.Accounts().ReadBytes
	for l := range layers {
		s.Predict(l, []int{0, 1, 2, 3, 4, 5, 6, 7})
		if _, err := step(t, s, l, all, 64, true); err != nil {
			t.Fatal(err)
		}
	}
	each := int64(stageBytes(4 * testRows * testCols))
	if read := s.Accounts().ReadBytes - before; read > layers*experts*each {
		t.Errorf("%d bytes read, want at most %d", read, layers*experts*each)
	}
}

// TestKeptByUse: experts that are chosen often stay when one is chosen that seldom is.
func TestKeptByUse(t *testing.T) {
	p, _ := testPlan(t, 1, 8, 1, 4)
	s := open(t, p, Options{})
	for range 40 {
		for e := range 3 {
			if _, err := step(t, s, 0, map[int]int{e: 1}, 1, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	for e := 3; e < 8; e++ {
		if _, err := step(t, s, 0, map[int]int{e: 1}, 1, false); err != nil {
			t.Fatal(err)
		}
	}
	for e := range 3 {
		if s.layers[0].units[e].state != here {
			t.Errorf("expert %d was chosen 40 times and has left", e)
		}
	}
}

// TestSweep: a dense model's layers come in order around those that stay, and a pass reads what does not fit, not all.
func TestSweep(t *testing.T) {
	const layers = 12
	_, unit := testFile(t, layers)
	for _, room := range []int{2, 5, 11, 12} {
		p := Plan{}
		for l := range layers {
			p.Layers = append(p.Layers, unit(l))
		}
		p.BudgetBytes = p.PinnedBytes() + int64(room)*p.Layers[0].Bytes()
		s := open(t, p, Options{})
		w := s.Sweeper()
		pass := func() {
			for l := range layers {
				if err := w.Enter(l); err != nil {
					t.Fatal(err)
				}
				if got := value(t, p.Layers[l]); got != l {
					t.Fatalf("room %d: layer %d holds the values of matrix %d", room, l, got)
				}
				if l+1 < layers {
					if err := w.Peek(l + 1); err != nil {
						t.Fatal(err)
					}
					if got := value(t, p.Layers[l+1]); got != l+1 {
						t.Fatalf("room %d: layer %d, looked at early, holds the values of matrix %d", room, l+1, got)
					}
				}
			}
		}
		pass()
		before := s.Accounts().ReadBytes
		const passes = 4
		for range passes {
			pass()
		}
		streamed := layers - max(room-2, 0)
		if room == layers {
			streamed = 0
		}
		each := int64(stageBytes(4 * testRows * testCols))
		if read := s.Accounts().ReadBytes - before; read > int64(passes*streamed+2)*each || read < int64(passes*streamed-2)*int64(4*testRows*testCols) {
			t.Errorf("room %d: %d passes read %d bytes, want %d layers each of %d", room, passes, read, streamed, each)
		}
		w.End()
	}
}

// TestBudget: what not even a step fits is refused with the least named, and the least is enough.
func TestBudget(t *testing.T) {
	p, _ := testPlan(t, 2, 4, 2, 3)
	least := p.LeastBytes()
	p.BudgetBytes = least - 1
	_, err := Open(p, NewFiles(Options{}))
	if !errors.Is(err, ErrBudget) || !strings.Contains(err.Error(), "KiB") {
		t.Errorf("a byte below the least: %v", err)
	}
	p.BudgetBytes = least
	s := open(t, p, Options{})
	if _, err := step(t, s, 1, map[int]int{0: 1, 3: 1}, 1, false); err != nil {
		t.Error(err)
	}
}

// faulty is the system's files with faults in reads.
func faulty(f *vfs.Faults) Options {
	f.Of = []vfs.OpKind{vfs.OpRead}
	return Options{FS: &vfs.Faulty{FS: vfs.OS{}, Faults: f}, Again: func(err error, made int) bool { return made < 2 }}
}

// TestFaults: a read that fails once is read again; one that fails for good is an error of the step, and of no later one.
func TestFaults(t *testing.T) {
	for _, kind := range []vfs.FaultKind{vfs.EIO, vfs.Short} {
		p, _ := testPlan(t, 1, 6, 2, 3)
		f := &vfs.Faults{Nth: 3, Kind: kind}
		s := open(t, p, faulty(f))
		for e := range 6 {
			if _, err := step(t, s, 0, map[int]int{e: 1}, 1, false); err != nil {
				t.Errorf("fault %d: expert %d: %v", kind, e, err)
			}
		}
		if _, struck := f.Ops(); struck != 1 {
			t.Errorf("%d faults struck, want 1", struck)
		}
	}
	p, _ := testPlan(t, 1, 6, 2, 3)
	f := &vfs.Faults{Nth: 3, Times: 2, Kind: vfs.EIO}
	s := open(t, p, faulty(f))
	var failed error
	for e := range 6 {
		if _, err := step(t, s, 0, map[int]int{e: 1}, 1, false); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	if !errors.Is(failed, ErrRead) || !errors.Is(failed, syscall.EIO) {
		t.Errorf("a read that failed twice: %v", failed)
	}
	if _, err := step(t, s, 0, map[int]int{0: 1, 1: 1, 2: 1}, 1, false); err != nil {
		t.Errorf("after the faults: %v", err)
	}
}

// TestStall: reads that do not end are an error of every step that needs one, after half a minute and then at once; once they end, steps
// find what they brought. A store that is closed meanwhile does not wait for them.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := testPlan(t, 1, 4, 1, 2)
		f := &vfs.Faults{Of: []vfs.OpKind{vfs.OpRead}, Nth: 2, Times: 100, Kind: vfs.Hang}
		s := open(t, p, faulty(f))
		for i, want := range []time.Duration{stallAfter, 0} {
			begun := time.Now()
			if _, err := step(t, s, 0, map[int]int{i: 1}, 1, true); !errors.Is(err, ErrStalled) || !errors.Is(err, ErrRead) || time.Since(begun) != want {
				t.Errorf("step %d: %v after %v, want %v", i, err, time.Since(begun), want)
			}
		}
		if places := string(s.Places(0)); places != "bbaa" {
			t.Errorf("experts are %q while the first two are read, want bbaa", places)
		}
		f.Stop()
		synctest.Wait()
		for e := range 4 {
			if _, err := step(t, s, 0, map[int]int{e: 1}, 1, true); err != nil {
				t.Errorf("expert %d behind the stall: %v", e, err)
			}
		}

		f = &vfs.Faults{Of: []vfs.OpKind{vfs.OpRead}, Nth: 2, Times: 100, Kind: vfs.Hang}
		s, err := Open(p, NewFiles(faulty(f)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := step(t, s, 0, map[int]int{0: 1}, 1, true); !errors.Is(err, ErrStalled) {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		f.Stop()
	})
}

// TestChangedFile: a file that is written over, or cut, is an error at the next read, never its new bytes.
func TestChangedFile(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"cut":     func(path string) error { return os.Truncate(path, 3000) },
		"written": func(path string) error { return os.Chtimes(path, time.Time{}, time.Now().Add(time.Second)) },
	} {
		p, path := testPlan(t, 1, 6, 2, 3)
		s := open(t, p, Options{})
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		if _, err := step(t, s, 0, map[int]int{5: 1}, 1, false); !errors.Is(err, mapped.ErrChanged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNotFinite: NaN in weights is found as they come.
func TestNotFinite(t *testing.T) {
	p, path := testPlan(t, 1, 6, 2, 3)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0, 0, 0xC0, 0x7F}, p.Experts[0][4][0].Offset+4*testCols); err != nil {
		t.Fatal(err)
	}
	f.Close()
	s := open(t, p, Options{})
	if _, err := step(t, s, 0, map[int]int{4: 1}, 1, false); !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "row 1") {
		t.Errorf("NaN: %v", err)
	}
}

// plain is a file system without direct I/O.
type plain struct{ vfs.OS }

func (p plain) OpenFile(name string, o vfs.OpenOptions) (vfs.File, error) {
	if o.Direct {
		return nil, vfs.ErrNoDirect
	}
	return p.OS.OpenFile(name, o)
}

// TestNoDirect: without direct I/O files are read through the page cache, which is said once.
func TestNoDirect(t *testing.T) {
	p, _ := testPlan(t, 1, 6, 2, 3)
	var lines []string
	s := open(t, p, Options{FS: plain{}, Notice: func(line string) { lines = append(lines, line) }})
	for e := range 6 {
		if _, err := step(t, s, 0, map[int]int{e: 1}, 1, false); err != nil {
			t.Fatal(err)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "page cache") {
		t.Errorf("notices: %q", lines)
	}
}
