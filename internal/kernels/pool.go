package kernels

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// spinFor is how long an idle worker watches for the next parallel section before it parks. Waking a parked worker
// costs about 5-50 µs, the gaps inside a layer are below 10 µs and those between two tokens below 100 µs.
const spinFor = 150 * time.Microsecond

// Pool is a set of persistent workers that run the parallel sections of the kernels. The caller of Run is worker 0.
// Workers spin for a short time between sections and park afterwards, so a pool at rest costs nothing.
type Pool struct {
	threads int
	spins   bool // false where workers outnumber the processors: spinning would only keep the others from running
	mu      sync.Mutex
	closed  bool
	workers []poolWorker
	exited  sync.WaitGroup

	_     [64]byte
	state atomic.Uint64       // claims of the section<<32 | claims taken
	fn    func(worker, i int) // on the line that a worker has just taken for its claim
	tasks int
	grain int // tasks a claim
	first int // claims before them: a task of beside each
	_     [24]byte
	done  atomic.Int64 // tasks done, of all sections
	_     [56]byte
	total int64 // tasks of all sections
	quit  atomic.Bool

	beside func(worker, i int) // what the next section does before its own tasks
	extra  int                 // tasks of beside

	failure atomic.Pointer[any] // what the first task that panicked said

	mm matmulJob // scratch of MatMul
}

// maxTasks is what a section may hold: the state's low half also counts workers that came too late.
const maxTasks = 1 << 30

type poolWorker struct {
	parked atomic.Bool
	wake   chan struct{}
	_      [48]byte
}

// NewPool starts a pool of the given number of threads, the caller included; 0 or less means GOMAXPROCS.
func NewPool(threads int) *Pool {
	procs := runtime.GOMAXPROCS(0)
	if threads <= 0 {
		threads = procs
	}
	p := &Pool{threads: threads, spins: threads <= min(procs, runtime.NumCPU()), workers: make([]poolWorker, threads-1)}
	p.mm.init(p)
	for i := range p.workers {
		p.workers[i].wake = make(chan struct{}, 1)
		p.exited.Add(1)
		go p.work(i)
	}
	return p
}

// Threads is the number of workers, the caller included: worker numbers given to fn are below it. A nil pool has the caller.
func (p *Pool) Threads() int {
	if p == nil {
		return 1
	}
	return p.threads
}

// Close stops the workers and waits for them. A closed pool must not be used again; a second Close does nothing.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.quit.Store(true)
	p.wakeAll()
	p.exited.Wait()
}

// Run calls fn(worker, i) for every i in [0, n), spread over the workers, and returns when all are done. Tasks are
// claimed one at a time in rising order; fn must not call Run. A panic in fn is raised again here, once all other tasks are
// done. It allocates nothing when fn was built beforehand. On a nil pool the caller does all tasks.
func (p *Pool) Run(n int, fn func(worker, i int)) {
	if p == nil {
		for i := range n {
			fn(0, i)
		}
		return
	}
	p.RunBy(1, n, fn)
}

// RunBy is Run with tasks claimed grain at a time: for tasks of a microsecond or two, because a claim takes a cache line
// from another core, which is 50 to 300 ns.
func (p *Pool) RunBy(grain, n int, fn func(worker, i int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runBy(grain, n, fn)
}

// Beside has the next section, whoever runs it, begin with n tasks more, and end when they too are done: so what is serial in them, or few, keeps no
// worker from that section's own. At most one is waiting at a time.
func (p *Pool) Beside(n int, fn func(worker, i int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.extra > 0 {
		panic("kernels: Pool.Beside: the last one has not run")
	}
	p.beside, p.extra = fn, n
}

// Join runs what Beside was given and no section has begun with.
func (p *Pool) Join() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.extra > 0 {
		p.runBy(1, 0, nil)
	}
}

func (p *Pool) run(n int, fn func(worker, i int)) { p.runBy(1, n, fn) }

func (p *Pool) runBy(grain, n int, fn func(worker, i int)) {
	extra := p.extra
	p.extra = 0
	if p.threads == 1 || n+extra <= 1 {
		for i := range extra {
			p.beside(0, i)
		}
		for i := range n {
			fn(0, i)
		}
		return
	}
	if n+extra > maxTasks {
		panic(fmt.Sprintf("kernels: Pool.Run: %d tasks, want at most %d", n+extra, maxTasks))
	}
	p.fn, p.tasks, p.grain, p.first = fn, n, max(1, grain), extra
	p.total += int64(n + extra)
	p.state.Store(uint64(extra+(n+p.grain-1)/p.grain) << 32)
	p.wakeAll()
	p.claim(0)
	for spins := 1; p.done.Load() != p.total; spins++ {
		if spins&255 == 0 {
			runtime.Gosched()
		}
		pause()
	}
	if r := p.failure.Swap(nil); r != nil {
		panic(*r)
	}
}

// claim runs tasks as long as there are any. A claim that succeeds belongs to the section that the state shows at that
// moment, which cannot end before the task is counted as done: so fn is the section's own, even for a worker that
// meant to help with an earlier one.
func (p *Pool) claim(worker int) {
	var c claimed
	for !p.claimAll(worker, &c) {
	}
}

// claimed are the tasks of a claim that are yet to run.
type claimed struct{ next, end int }

// claimAll runs tasks until none are left. A task that panics (a bug, or a fault in a mapped file that was cut while in use)
// is kept for the caller of the section, counts as done, and ends the call with false.
func (p *Pool) claimAll(worker int, c *claimed) (finished bool) {
	count := int64(0)
	defer func() {
		if finished {
			return
		}
		if r := recover(); r != nil {
			p.failure.CompareAndSwap(nil, &r)
			p.done.Add(count + 1)
		}
	}()
	for {
		for c.next < c.end {
			i := c.next
			c.next++
			p.fn(worker, i)
			count++
		}
		s := p.state.Add(1)
		if i := s&math.MaxUint32 - 1; i < s>>32 {
			if int(i) < p.first {
				p.beside(worker, int(i))
				count++
				continue
			}
			c.next = (int(i) - p.first) * p.grain
			c.end = min(c.next+p.grain, p.tasks)
			continue
		}
		if count > 0 {
			p.done.Add(count)
		}
		return true
	}
}

// open reports whether tasks wait to be claimed.
func (p *Pool) open() bool {
	s := p.state.Load()
	return s&math.MaxUint32 < s>>32
}

func (p *Pool) wakeAll() {
	for i := range p.workers {
		w := &p.workers[i]
		if w.parked.Load() && w.parked.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
}

// work is the life of worker i+1.
func (p *Pool) work(i int) {
	defer p.exited.Done()
	debug.SetPanicOnFault(true) // as a panic, which the caller of the section gets, not the end of the process
	w := &p.workers[i]
	for p.await(w) {
		p.claim(i + 1)
	}
}

// await returns true once there are tasks, false once the pool is closed, spinning first and parking then.
func (p *Pool) await(w *poolWorker) bool {
	for {
		if p.spins {
			start := time.Now()
			for spins := 1; ; spins++ {
				if p.open() {
					return true
				}
				pause()
				if spins&63 == 0 {
					if p.quit.Load() {
						return false
					}
					runtime.Gosched()
					if time.Since(start) > spinFor {
						break
					}
				}
			}
		}
		w.parked.Store(true)
		if p.open() || p.quit.Load() {
			if !w.parked.CompareAndSwap(true, false) {
				<-w.wake
			}
			return !p.quit.Load()
		}
		<-w.wake
		if p.quit.Load() {
			return false
		}
	}
}
