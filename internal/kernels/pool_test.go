package kernels

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestRunCallsEachTaskOnce: with fewer, as many and more threads than processors, and tasks from none to many.
func TestRunCallsEachTaskOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 8} {
		pool := NewPool(threads)
		for n := range 70 {
			counts := make([]atomic.Int32, n)
			pool.Run(n, func(worker, i int) {
				if worker < 0 || worker >= threads {
					t.Errorf("worker %d of %d", worker, threads)
				}
				counts[i].Add(1)
			})
			for i := range counts {
				if c := counts[i].Load(); c != 1 {
					t.Fatalf("%d threads: task %d of %d ran %d times", threads, i, n, c)
				}
			}
		}
		pool.Close()
		pool.Close()
	}
}

// TestRunWorkersAreDistinct: no two tasks run on one worker at the same time.
func TestRunWorkersAreDistinct(t *testing.T) {
	const threads = 4
	pool := NewPool(threads)
	defer pool.Close()
	var busy [threads]atomic.Bool
	for range 200 {
		pool.Run(16, func(worker, _ int) {
			if !busy[worker].CompareAndSwap(false, true) {
				t.Error("a worker runs two tasks at once")
			}
			runtime.Gosched()
			busy[worker].Store(false)
		})
	}
}

// TestRunAfterParking: workers that went to sleep take part again.
func TestRunAfterParking(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	for range 3 {
		for !pool.workers[0].parked.Load() { // a worker parks once it has waited for spinFor
			runtime.Gosched()
		}
		var both sync.WaitGroup
		both.Add(2)
		pool.Run(2, func(_, _ int) { // each waits for the other: this ends only with two workers at work
			both.Done()
			both.Wait()
		})
	}
}

// TestRunFromManyGoroutines: sections of different callers queue.
func TestRunFromManyGoroutines(t *testing.T) {
	pool := NewPool(3)
	defer pool.Close()
	var all sync.WaitGroup
	var inside, total atomic.Int32
	for range 8 {
		all.Go(func() {
			for range 50 {
				pool.Run(5, func(_, _ int) { total.Add(1); inside.Add(1); inside.Add(-1) })
			}
		})
	}
	all.Wait()
	if got := total.Load(); got != 8*50*5 {
		t.Fatalf("%d tasks ran, want %d", got, 8*50*5)
	}
}

// TestBeside: what Beside was given begins the next section, is done when that ends, and once.
func TestBeside(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 8} {
		pool := NewPool(threads)
		for extra := range 5 {
			for _, n := range []int{0, 1, 2, 37} {
				counts, own := make([]atomic.Int32, extra), make([]atomic.Int32, n)
				var early atomic.Int32
				if extra > 0 {
					pool.Beside(extra, func(worker, i int) {
						if worker < 0 || worker >= threads {
							t.Errorf("worker %d of %d", worker, threads)
						}
						counts[i].Add(1)
					})
				}
				pool.RunBy(3, n, func(_, i int) {
					if extra > 0 && threads == 1 && counts[extra-1].Load() == 0 {
						early.Add(1)
					}
					own[i].Add(1)
				})
				pool.Join()
				pool.Run(n, func(_, i int) { own[i].Add(1) })
				for i := range counts {
					if c := counts[i].Load(); c != 1 {
						t.Fatalf("%d threads, section of %d: task %d of %d beside ran %d times", threads, n, i, extra, c)
					}
				}
				for i := range own {
					if c := own[i].Load(); c != 2 {
						t.Fatalf("%d threads, %d beside: task %d of %d ran %d times in two sections", threads, extra, i, n, c)
					}
				}
				if early.Load() > 0 {
					t.Errorf("%d threads: %d tasks ran before what is beside", threads, early.Load())
				}
			}
		}
		pool.Close()
	}
}

// TestBesideOverlaps: a section's own tasks run while one beside them does.
func TestBesideOverlaps(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	var both sync.WaitGroup
	both.Add(2)
	pool.Beside(1, func(_, _ int) { both.Done(); both.Wait() })
	pool.Run(1, func(_, _ int) { both.Done(); both.Wait() })
}

// TestBesideThatPanics: the section's caller, or Join's, hears of it, and the pool works on.
func TestBesideThatPanics(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	for _, run := range []func(){func() { pool.Run(4, func(_, _ int) {}) }, pool.Join} {
		pool.Beside(3, func(_, i int) {
			if i == 1 {
				panic("beside")
			}
		})
		func() {
			defer func() {
				if r := recover(); r != "beside" {
					t.Errorf("recovered %v", r)
				}
			}()
			run()
		}()
	}
	pool.Beside(1, func(_, _ int) {})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a second Beside before the first has run is taken")
			}
		}()
		pool.Beside(1, func(_, _ int) {})
	}()
	pool.Join()
}

func TestRunAllocatesNothing(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	var sum atomic.Int64
	fn := func(_, i int) { sum.Add(int64(i)) }
	if got := testing.AllocsPerRun(100, func() { pool.Run(8, fn) }); got != 0 {
		t.Fatalf("%v allocations a section, want 0", got)
	}
}

func TestCloseEndsTheWorkers(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		NewPool(4).Close()
	}
	after := runtime.NumGoroutine()
	for range 1_000_000 { // a worker that has said it is done may still be on its last instructions
		if after = runtime.NumGoroutine(); after <= before {
			return
		}
		runtime.Gosched()
	}
	t.Fatalf("%d goroutines before, %d after 20 pools were closed", before, after)
}

func TestSelect(t *testing.T) {
	was := Path()
	defer func() { _ = Select(was) }()
	for _, path := range Available() {
		if err := Select(path); err != nil || Path() != path {
			t.Errorf("Select(%q): %v, path %q", path, err, Path())
		}
	}
	if err := Select("auto"); err != nil || Path() != Available()[len(Available())-1] {
		t.Errorf("auto: %v, path %q", err, Path())
	}
	if err := Select("sse9"); err == nil || !strings.Contains(err.Error(), "purego") {
		t.Errorf("unknown path: got %v, want an error that lists the known", err)
	}
}

// TestExpectedPaths: TERRACE_TEST_CPU lists the paths that this machine must have, so that CI notices when a path was
// not tested after all.
func TestExpectedPaths(t *testing.T) {
	list := os.Getenv("TERRACE_TEST_CPU")
	if list == "" {
		t.Skip("TERRACE_TEST_CPU is not set; available here: " + strings.Join(Available(), ","))
	}
	for _, path := range strings.Split(list, ",") {
		if !slices.Contains(Available(), path) {
			t.Errorf("path %q is not available: got %v", path, Available())
		}
	}
}

// BenchmarkRun is the cost of an empty section: hand-off, two tasks, gathering.
func BenchmarkRun(b *testing.B) {
	pool := NewPool(2)
	defer pool.Close()
	fn := func(_, _ int) {}
	b.ReportAllocs()
	for b.Loop() {
		pool.Run(2, fn)
	}
}

// TestPanicReachesTheCaller checks that a task that panics, on whichever worker, fails the section and not the process,
// and leaves the pool usable.
func TestPanicReachesTheCaller(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	for round := range 50 {
		var ran atomic.Int64
		func() {
			defer func() {
				if r := recover(); r != "task" {
					t.Errorf("round %d: recovered %v", round, r)
				}
			}()
			p.Run(40, func(_, i int) {
				ran.Add(1)
				if i%13 == round%13 {
					panic("task")
				}
			})
		}()
		if ran.Load() != 40 {
			t.Fatalf("round %d: %d of 40 tasks ran", round, ran.Load())
		}
	}
	var ran atomic.Int64
	p.Run(100, func(_, _ int) { ran.Add(1) })
	if ran.Load() != 100 {
		t.Errorf("%d of 100 tasks ran after panics", ran.Load())
	}
}
