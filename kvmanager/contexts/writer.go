package contexts

import (
	"context"
	"slices"
	"sync"

	"terrace/internal/guard"
)

// batchBytes is how much one write takes at most: it is synced together.
const batchBytes = 32 << 20

// job is work for the writer.
type job struct {
	records []*Record
	touch   []Key
	used    bool // records came from a tier, the first below of which are faster: these get them
	below   int
}

// writer stores what was put, in the background, one job after the other.
type writer struct {
	s    *Store
	mu   sync.Mutex
	some *sync.Cond
	jobs []job
	held int64 // bytes of records that wait
	busy bool
	shut bool
	done sync.WaitGroup
	// dropped counts records that the queue had no room for.
	dropped int
}

func (w *writer) open(s *Store) {
	w.s, w.some = s, sync.NewCond(&w.mu)
	w.done.Go(w.run)
}

func size(records []*Record) (n int64) {
	for _, r := range records {
		n += r.Bytes()
	}
	return n
}

// add queues a job, unless there is no room.
func (w *writer) add(j job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := size(j.records)
	switch {
	case w.shut:
		return
	case n > 0 && w.held > 0 && w.held+n > w.s.o.QueueBytes:
		w.dropped += len(j.records)
		return
	}
	w.held += n
	if last := len(w.jobs) - 1; last >= 0 && !j.used && !w.jobs[last].used {
		w.jobs[last].records = append(w.jobs[last].records, j.records...)
	} else {
		j.records = append([]*Record(nil), j.records...)
		w.jobs = append(w.jobs, j)
	}
	w.some.Broadcast()
}

// works reports whether there is a job, or one is done.
func (w *writer) works() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.jobs) > 0 || w.busy
}

func (w *writer) run() {
	for {
		j, ok := w.take()
		if !ok {
			return
		}
		if err := guard.Run(func() error { w.do(j); return nil }); err != nil {
			w.s.say("", err)
		}
		w.mu.Lock()
		w.busy = false
		w.held -= size(j.records)
		w.some.Broadcast()
		w.mu.Unlock()
	}
}

// take waits for the next job; of many records as many as a batch takes.
func (w *writer) take() (j job, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.jobs) == 0 {
		if w.shut {
			return job{}, false
		}
		w.some.Wait()
	}
	j, w.busy = w.jobs[0], true
	n, bytes := 0, int64(0)
	for n < len(j.records) && (n == 0 || bytes+j.records[n].Bytes() <= batchBytes) {
		bytes += j.records[n].Bytes()
		n++
	}
	if n < len(j.records) {
		w.jobs[0].records, w.jobs[0].touch = j.records[n:], nil
		j.records = j.records[:n:n]
	} else {
		w.jobs = w.jobs[1:]
	}
	return j, true
}

// do stores a job's records on the tiers that the write policy names.
func (w *writer) do(j job) {
	ctx := context.Background()
	back := w.s.o.Write == WriteBack && !j.used
	for i, m := range w.s.tiers {
		if m.resting() {
			continue
		}
		if len(j.touch) > 0 {
			m.touch(j.touch)
		}
		if len(j.records) == 0 || !w.wants(i, j) {
			continue
		}
		if err := m.write(ctx, j.records); err != nil {
			w.s.fault(m, err)
		}
		m.mu.Lock()
		m.peak = max(m.peak, m.bytes())
		m.mu.Unlock()
		if back { // what a tier did not take goes to the next
			j.records = slices.DeleteFunc(slices.Clone(j.records), func(r *Record) bool { return m.has(r.Key) })
		}
	}
}

// wants reports whether tier i is to have a job's records now.
func (w *writer) wants(i int, j job) bool {
	if j.used {
		return i < j.below || w.s.o.Write == WriteOnHit
	}
	return i == 0 || w.s.o.Write == WriteThrough || w.s.o.Write == WriteBack
}

// flush waits until nothing is left to do.
func (w *writer) flush(ctx context.Context) error {
	idle := make(chan struct{})
	go func() {
		w.mu.Lock()
		for len(w.jobs) > 0 || w.busy {
			w.some.Wait()
		}
		w.mu.Unlock()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close does what is queued and ends.
func (w *writer) close() {
	w.mu.Lock()
	w.shut = true
	w.some.Broadcast()
	w.mu.Unlock()
	w.done.Wait()
	if w.dropped > 0 && w.s.o.Notice != nil {
		w.s.o.Notice("store: the tiers are slower than the prompts: not everything was kept")
	}
}
