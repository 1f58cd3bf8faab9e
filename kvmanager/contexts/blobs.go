package contexts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"terrace/internal/vfs"
)

// blobStore is a server that keeps values under names. An operation that does not end in time fails.
type blobStore interface {
	// get returns a value, or its first most bytes where most > 0; ErrMiss where there is none.
	get(ctx context.Context, name string, most int64) ([]byte, error)
	put(ctx context.Context, name string, value []byte) error
	del(ctx context.Context, b []blob) error
	// there reports which of the names have a value.
	there(ctx context.Context, names []string) ([]bool, error)
	// index lists what is there.
	index(ctx context.Context) ([]blob, error)
	// used notes that values were read now; where the server cannot keep that, the oldest written go first.
	used(ctx context.Context, b []blob) error
	close() error
}

// blob is a value that a server keeps.
type blob struct {
	name  string
	bytes int64
	used  time.Time
}

const (
	// opTimeout is how long one operation may take at least; slowest is the rate that is waited for beyond it.
	opTimeout = 2 * time.Second
	slowest   = 4 << 20
	// indexAge is how old what is known of the server's account may be when something is written.
	indexAge = 30 * time.Second
)

func opContext(ctx context.Context, bytes int64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, opTimeout+time.Duration(bytes)*time.Second/slowest)
}

// blobs is a tier on a server that several machines share. The capacity holds for what all of them store together, as far as
// each knows: processes that write at the same moment may pass it by what they write in that moment.
type blobs struct {
	b     blobStore
	cap   int64
	fixed bool            // nothing gives way to others
	yield func([]*Record) // has what gives way first; nil = nobody

	mu     sync.Mutex
	known  map[string]blob
	total  int64
	asked  time.Time    // for the index
	broken map[Key]bool // found damaged: to be written again
}

func newBlobs(b blobStore, capBytes int64, fixed bool) *blobs {
	return &blobs{b: b, cap: capBytes, fixed: fixed, known: map[string]blob{}, broken: map[Key]bool{}}
}

func (t *blobs) read(ctx context.Context, key Key) (*Record, error) {
	ctx, cancel := opContext(ctx, 0)
	defer cancel()
	raw, err := t.b.get(ctx, key.String(), 0)
	if err != nil {
		return nil, err
	}
	if !vfs.Aligned(raw, pageBytes) {
		raw = append(alignedBytes(len(raw))[:0], raw...)
	}
	r, err := Parse(raw)
	if err == nil && r.Key != key {
		err = fmt.Errorf("contexts: another record lies under its name: %w", ErrDamaged)
	}
	if err != nil {
		t.mu.Lock()
		t.broken[key] = true
		t.mu.Unlock()
		return nil, err
	}
	return r, nil
}

func (t *blobs) has(key Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.known[key.String()]
	return ok && !t.broken[key]
}

// look asks the server for its account, where what is known is old.
func (t *blobs) look(ctx context.Context) error {
	if time.Since(t.asked) < indexAge {
		return nil
	}
	ctx, cancel := opContext(ctx, 0)
	defer cancel()
	list, err := t.b.index(ctx)
	if err != nil {
		return err
	}
	t.asked, t.total = time.Now(), 0
	clear(t.known)
	for _, b := range list {
		t.known[b.name] = b
		t.total += b.bytes
	}
	return nil
}

func (t *blobs) write(ctx context.Context, batch []*Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.look(ctx); err != nil {
		return err
	}
	names, keep := make([]string, len(batch)), map[string]bool{}
	for i, r := range batch {
		names[i] = r.Key.String()
		keep[names[i]], keep[r.Parent.String()] = true, true
	}
	short, cancel := opContext(ctx, 0)
	there, err := t.b.there(short, names)
	cancel()
	if err != nil {
		return err
	}
	for i, r := range batch {
		if there[i] && !t.broken[r.Key] {
			continue
		}
		if err := t.room(ctx, r.Bytes(), keep); err != nil {
			return err
		}
		long, cancel := opContext(ctx, r.Bytes())
		err := t.b.put(long, names[i], r.Raw())
		cancel()
		if err != nil {
			return err
		}
		delete(t.broken, r.Key)
		t.total += r.Bytes() - t.known[names[i]].bytes
		t.known[names[i]] = blob{names[i], r.Bytes(), time.Now()}
	}
	return nil
}

// room deletes the least recently used values until there is room for more; of those used together the last named go first.
func (t *blobs) room(ctx context.Context, more int64, keep map[string]bool) error {
	if t.total+more <= t.cap {
		return nil
	}
	var old []blob
	for name, b := range t.known {
		if !keep[name] && !t.fixed {
			old = append(old, b)
		}
	}
	slices.SortFunc(old, func(a, b blob) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.name, b.name)) })
	n, free := 0, t.cap-t.total
	for ; n < len(old) && free < more; n++ {
		free += old[n].bytes
	}
	if free < more {
		return fmt.Errorf("contexts: %d bytes more: %w", more, ErrFull)
	}
	t.handOver(ctx, old[:n])
	ctx, cancel := opContext(ctx, 0)
	defer cancel()
	return t.drop(ctx, old[:n])
}

// drop deletes values; mu is held.
func (t *blobs) drop(ctx context.Context, list []blob) error {
	if len(list) == 0 {
		return nil
	}
	if err := t.b.del(ctx, list); err != nil {
		return err
	}
	for _, b := range list {
		t.total -= b.bytes
		delete(t.known, b.name)
	}
	return nil
}

func (t *blobs) touch(keys []Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.look(context.Background()) != nil {
		return // a hint
	}
	var list []blob
	for _, k := range keys {
		if b, ok := t.known[k.String()]; ok {
			b.used = time.Now()
			t.known[b.name] = b
			list = append(list, b)
		}
	}
	ctx, cancel := opContext(context.Background(), 0)
	defer cancel()
	if len(list) > 0 {
		_ = t.b.used(ctx, list)
	}
}

func (t *blobs) remove(ctx context.Context, keys []Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.look(ctx); err != nil {
		return err
	}
	var list []blob
	for _, k := range keys {
		if b, ok := t.known[k.String()]; ok {
			list = append(list, b)
		}
	}
	ctx, cancel := opContext(ctx, 0)
	defer cancel()
	return t.drop(ctx, list)
}

// each calls fn with every value, some at a time; most as in get.
func (t *blobs) each(ctx context.Context, most int64, fn func(b blob, raw []byte, err error)) error {
	t.mu.Lock()
	t.asked = time.Time{}
	err := t.look(ctx)
	var all []blob
	for _, b := range t.known {
		all = append(all, b)
	}
	t.mu.Unlock()
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b blob) int { return cmp.Compare(a.name, b.name) })
	var group errgroup.Group
	var said sync.Mutex
	group.SetLimit(fetchWorkers)
	for _, b := range all {
		group.Go(func() error {
			ctx, cancel := opContext(ctx, b.bytes)
			defer cancel()
			raw, err := t.b.get(ctx, b.name, most)
			said.Lock()
			defer said.Unlock()
			if errors.Is(err, ErrMiss) || err == nil || ctx.Err() != nil {
				fn(b, raw, err)
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

func (t *blobs) list(ctx context.Context) (out []Entry, err error) {
	err = t.each(ctx, pageBytes, func(b blob, raw []byte, err error) {
		if err != nil {
			return
		}
		if m, total, _, err := parseHeader(raw); err == nil {
			out = append(out, Entry{m, total, b.used})
		}
	})
	return out, err
}

func (t *blobs) verify(ctx context.Context, note func(Finding)) error {
	return t.each(ctx, 0, func(b blob, raw []byte, err error) {
		if errors.Is(err, ErrMiss) {
			return // it went meanwhile
		}
		if err == nil {
			var r *Record
			if r, err = Parse(raw); err == nil && r.Key.String() != b.name {
				err = fmt.Errorf("contexts: record %s lies there: %w", r.Key, ErrDamaged)
			}
		}
		note(Finding{"record " + b.name[:min(12, len(b.name))], err})
	})
}

func (t *blobs) gc(ctx context.Context) (freed int64, err error) {
	var bad []blob
	err = t.each(ctx, 0, func(b blob, raw []byte, err error) {
		if err == nil {
			_, err = Parse(raw)
		}
		if errors.Is(err, ErrMiss) || errors.Is(err, ErrDamaged) {
			bad = append(bad, b)
			freed += b.bytes
		}
	})
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx, cancel := opContext(ctx, 0)
	defer cancel()
	return freed, t.drop(ctx, bad)
}

func (t *blobs) bytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}

func (t *blobs) close() error { return t.b.close() }
