package kernels

import (
	"runtime"
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

	fn func(worker, i int)
	n  int64

	_    [64]byte
	gate atomic.Uint64 // epoch<<32 | open<<31 | workers joined: a closed gate lets no latecomer in
	_    [56]byte
	next atomic.Int64 // next task to claim
	_    [56]byte
	done atomic.Int64 // workers that joined and have left again
	_    [56]byte

	mm matmulJob // scratch of MatMul
}

const (
	gateOpen  = 1 << 31
	gateCount = gateOpen - 1
	gateQuit  = ^uint64(0)
)

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
	p := &Pool{threads: threads, spins: threads <= procs, workers: make([]poolWorker, threads-1)}
	p.mm.init(p)
	for i := range p.workers {
		p.workers[i].wake = make(chan struct{}, 1)
		p.exited.Add(1)
		go p.work(i)
	}
	return p
}

// Threads is the number of workers, the caller included: worker numbers given to fn are below it.
func (p *Pool) Threads() int { return p.threads }

// Close stops the workers and waits for them. A closed pool must not be used again; a second Close does nothing.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.gate.Store(gateQuit)
	p.wakeAll()
	p.exited.Wait()
}

// Run calls fn(worker, i) for every i in [0, n), spread over the workers, and returns when all are done. Tasks are
// claimed one at a time in rising order; fn must not call Run. It allocates nothing when fn was built beforehand.
func (p *Pool) Run(n int, fn func(worker, i int)) {
	p.mu.Lock()
	p.run(n, fn)
	p.mu.Unlock()
}

func (p *Pool) run(n int, fn func(worker, i int)) {
	if p.threads == 1 || n <= 1 {
		for i := range n {
			fn(0, i)
		}
		return
	}
	p.fn, p.n = fn, int64(n)
	p.next.Store(0)
	p.done.Store(0)
	epoch := p.gate.Load()>>32 + 1
	p.gate.Store(epoch<<32&^(1<<63) | gateOpen)
	p.wakeAll()
	p.claim(0)
	joined := p.shutGate()
	for spins := 0; p.done.Load() != joined; spins++ {
		if spins&255 == 255 {
			runtime.Gosched()
		}
		pause()
	}
}

// shutGate closes the gate and says how many workers had come through.
func (p *Pool) shutGate() int64 {
	for {
		g := p.gate.Load()
		if p.gate.CompareAndSwap(g, g&^gateOpen) {
			return int64(g & gateCount)
		}
	}
}

func (p *Pool) claim(worker int) {
	for {
		i := p.next.Add(1) - 1
		if i >= p.n {
			return
		}
		p.fn(worker, int(i))
	}
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
	w := &p.workers[i]
	var seen uint64
	for {
		g := p.await(w, seen)
		if g == gateQuit {
			return
		}
		seen = g >> 32
		for g&gateOpen != 0 && g>>32 == seen && g != gateQuit {
			if p.gate.CompareAndSwap(g, g+1) {
				p.claim(i + 1)
				p.done.Add(1)
				break
			}
			g = p.gate.Load()
		}
	}
}

// await returns the gate's word once it belongs to a section after the one seen, spinning first and parking then.
func (p *Pool) await(w *poolWorker, seen uint64) uint64 {
	for {
		if p.spins {
			start := time.Now()
			for spins := 1; ; spins++ {
				if g := p.gate.Load(); g>>32 != seen {
					return g
				}
				pause()
				if spins&63 == 0 {
					runtime.Gosched()
					if time.Since(start) > spinFor {
						break
					}
				}
			}
		}
		w.parked.Store(true)
		if g := p.gate.Load(); g>>32 != seen {
			if !w.parked.CompareAndSwap(true, false) {
				<-w.wake
			}
			return g
		}
		<-w.wake
	}
}
