package contexts

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"
)

// host keeps records in this process's memory, the least recently used leave first.
type host struct {
	mu    sync.Mutex
	cap   int64
	most  int64 // that cap may become: less is there of what is lent
	used  int64
	at    map[Key]*list.Element // of *hosted
	order list.List             // least recently used first
	fixed bool                  // nothing gives way to others
	yield func([]*Record)       // has what gives way first; nil = nobody
}

type hosted struct {
	r    *Record
	used time.Time
}

func newHost(capBytes int64) *host {
	return &host{cap: capBytes, most: capBytes, at: map[Key]*list.Element{}}
}

// Most implements kvmanager.Borrower.
func (h *host) Most() int64 { return h.most }

// Limit implements kvmanager.Borrower: the least recently used give way.
func (h *host) Limit(bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cap = bytes
	var gone []*list.Element
	left := h.used
	for e := h.order.Front(); e != nil && left > h.cap; e = e.Next() {
		gone = append(gone, e)
		left -= e.Value.(*hosted).r.Bytes()
	}
	h.give(gone)
}

func (h *host) read(_ context.Context, key Key) (*Record, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.at[key]; e != nil {
		return e.Value.(*hosted).r, nil
	}
	return nil, ErrMiss
}

// readPart implements parted: of what raw gave nothing has to be read; other records are there whole, at once.
func (h *host) readPart(_ context.Context, key Key, dst []byte, off int64) (int, error) {
	switch raw := h.raw(key); {
	case raw == nil:
		return 0, ErrMiss
	case off < int64(len(raw)) && len(dst) > 0 && &dst[0] == &raw[off]:
		return len(dst), nil
	}
	return 0, nil
}

// raw implements lying.
func (h *host) raw(key Key) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.at[key]; e != nil {
		return e.Value.(*hosted).r.raw
	}
	return nil
}

func (h *host) has(key Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[key] != nil
}

// touch goes from a chain's end to its beginning, so that the end leaves first.
func (h *host) touch(keys []Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, k := range slices.Backward(keys) {
		if e := h.at[k]; e != nil {
			e.Value.(*hosted).used = now
			h.order.MoveToBack(e)
		}
	}
}

func (h *host) write(_ context.Context, batch []*Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, keep := time.Now(), map[Key]bool{}
	for _, r := range batch {
		keep[r.Key], keep[r.Parent] = true, true
	}
	for _, r := range batch {
		if h.at[r.Key] != nil {
			continue
		}
		var gone []*list.Element
		room := h.cap - h.used
		for e := h.order.Front(); e != nil && !h.fixed && room < r.Bytes(); e = e.Next() {
			if !keep[e.Value.(*hosted).r.Key] {
				gone = append(gone, e)
				room += e.Value.(*hosted).r.Bytes()
			}
		}
		h.give(gone)
		if h.used+r.Bytes() > h.cap {
			return ErrFull
		}
		h.used += r.Bytes()
		h.at[r.Key] = h.order.PushBack(&hosted{r, now})
	}
	for _, r := range slices.Backward(batch) { // a chain's end leaves first
		h.order.MoveToBack(h.at[r.Key])
	}
	return nil
}

// give has elements give way; mu is held.
func (h *host) give(gone []*list.Element) {
	if h.yield != nil && len(gone) > 0 {
		records := make([]*Record, len(gone))
		for i, e := range gone {
			records[i] = e.Value.(*hosted).r
		}
		h.yield(records)
	}
	for _, e := range gone {
		h.drop(e)
	}
}

func (h *host) drop(e *list.Element) {
	r := e.Value.(*hosted).r
	h.used -= r.Bytes()
	delete(h.at, r.Key)
	h.order.Remove(e)
}

func (h *host) remove(_ context.Context, keys []Key) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range keys {
		if e := h.at[k]; e != nil {
			h.drop(e)
		}
	}
	return nil
}

func (h *host) list(context.Context) (out []Entry, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for e := h.order.Front(); e != nil; e = e.Next() {
		x := e.Value.(*hosted)
		out = append(out, Entry{x.r.Meta, x.r.Bytes(), x.used})
	}
	return out, nil
}

func (h *host) verify(_ context.Context, note func(Finding)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for e := h.order.Front(); e != nil; e = e.Next() {
		r := e.Value.(*hosted).r
		_, err := Parse(r.raw)
		note(Finding{"record " + r.Key.String(), err})
	}
	return nil
}

func (h *host) gc(context.Context) (int64, error) { return 0, nil }

func (h *host) bytes() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.used
}

func (h *host) close() error { return nil }
