package contexts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"terrace/internal/storage"
	"terrace/internal/vfs"
	"terrace/kvmanager/values"
)

// blobStore keeps values under names: a server, or a folder. An operation that does not end in time fails.
type blobStore interface {
	// get returns a value, or its first most bytes where most > 0; ErrMiss where there is none.
	get(ctx context.Context, name string, most int64) ([]byte, error)
	// put stores values in order, as far as that can be, and returns how many are there.
	put(ctx context.Context, list []*Record) (n int, err error)
	del(ctx context.Context, b []values.Value) error
	// index lists what is there, and says how many bytes more lie there that are nobody's.
	index(ctx context.Context) (list []values.Value, foreign int64, err error)
	// used notes that values were read now; where the server cannot keep that, the oldest written go first.
	used(ctx context.Context, b []values.Value) error
	// turn waits until nobody else changes anything; closing it gives the turn back.
	turn(ctx context.Context) (io.Closer, error)
	close() error
}

// asked is a blobStore that has to be asked which of the names have a value: what is known of it is old.
type asked interface {
	there(ctx context.Context, names []string) ([]bool, error)
}

// served is a server as a blobStore: everybody may change things at the same time.
type served struct{ values.Server }

func (s served) get(ctx context.Context, name string, most int64) ([]byte, error) {
	return s.Get(ctx, name, most)
}

func (s served) put(ctx context.Context, list []*Record) (int, error) {
	for i, r := range list {
		long, cancel := values.OpContext(ctx, r.Bytes())
		err := s.Put(long, r.Key.String(), r.Raw())
		cancel()
		if err != nil {
			return i, err
		}
	}
	return len(list), nil
}

func (s served) del(ctx context.Context, list []values.Value) error { return s.Delete(ctx, list) }

func (s served) there(ctx context.Context, names []string) ([]bool, error) {
	return s.There(ctx, names)
}

func (s served) index(ctx context.Context) ([]values.Value, int64, error) {
	list, err := s.Index(ctx)
	return slices.DeleteFunc(list, func(v values.Value) bool { return len(v.Name) != 2*len(Key{}) }), 0, err
}

func (s served) used(ctx context.Context, list []values.Value) error { return s.Used(ctx, list) }

func (s served) turn(context.Context) (io.Closer, error) { return io.NopCloser(nil), nil }

func (s served) close() error { return s.Close() }

// indexAge is how old what is known of a server's account may be when something is written.
const indexAge = 30 * time.Second

// blobs is a tier of values that several processes share. Of a folder (local) the capacity holds always: who writes has the turn, and looks at what
// is there first. On a server it holds for what all machines store together, as far as each knows: processes that write at the same
// moment may pass it by what they write in that moment.
type blobs struct {
	b     blobStore
	cap   int64
	fixed bool            // nothing gives way to others
	local bool            // it is looked at before each change, and what cannot be read of it is that value's trouble alone
	yield func([]*Record) // has what gives way first; nil = nobody

	writing sync.Mutex // held by who changes what is there; before mu
	mu      sync.Mutex // of what follows
	known   map[string]values.Value
	total   int64
	foreign int64
	asked   time.Time    // for the index
	broken  map[Key]bool // found damaged: to be written again
}

func newBlobs(b blobStore, capBytes int64, fixed bool) *blobs {
	return &blobs{b: b, cap: capBytes, fixed: fixed, known: map[string]values.Value{}, broken: map[Key]bool{}}
}

func (t *blobs) read(ctx context.Context, key Key) (*Record, error) {
	ctx, cancel := values.OpContext(ctx, 0)
	defer cancel()
	raw, err := t.b.get(ctx, key.String(), 0)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return nil, err
	}
	var r *Record
	if err == nil {
		r, err = parseAligned(raw)
	}
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

// parseAligned is Parse of bytes that lie anywhere.
func parseAligned(raw []byte) (*Record, error) {
	if !vfs.Aligned(raw, pageBytes) {
		raw = append(storage.Aligned(len(raw))[:0], raw...)
	}
	return Parse(raw)
}

func (t *blobs) isBroken(key Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken[key]
}

func (t *blobs) has(key Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.known[key.String()]
	return ok && !t.broken[key]
}

// change has its turn to change what is there, once it has looked at it.
func (t *blobs) change(ctx context.Context, fn func() error) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	turn, err := t.b.turn(ctx)
	if err != nil {
		return err
	}
	if err = t.look(ctx, t.local); err == nil {
		err = fn()
	}
	return errors.Join(err, turn.Close())
}

// look asks for what is there, where what is known is old, or always.
func (t *blobs) look(ctx context.Context, always bool) error {
	t.mu.Lock()
	fresh := time.Since(t.asked) < indexAge
	t.mu.Unlock()
	if fresh && !always {
		return nil
	}
	ctx, cancel := values.OpContext(ctx, 0)
	defer cancel()
	list, foreign, err := t.b.index(ctx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked, t.total, t.foreign = time.Now(), 0, foreign
	clear(t.known)
	for _, b := range list {
		t.known[b.Name] = b
		t.total += b.Bytes
	}
	return nil
}

func (t *blobs) write(ctx context.Context, batch []*Record) error {
	return t.change(ctx, func() error {
		names, keep := make([]string, len(batch)), map[string]bool{}
		for i, r := range batch {
			names[i] = r.Key.String()
			keep[names[i]], keep[r.Parent.String()] = true, true
		}
		there, err := t.there(ctx, names)
		if err != nil {
			return err
		}
		var fresh []*Record
		more := int64(0)
		var full error
		if t.local { // the capacity may be another than it was
			full = t.room(ctx, 0, keep)
		}
		for i, r := range batch {
			if there[i] && !t.isBroken(r.Key) {
				continue
			}
			if full = t.room(ctx, more+r.Bytes(), keep); full != nil {
				break
			}
			fresh, more = append(fresh, r), more+r.Bytes()
		}
		n, err := t.b.put(ctx, fresh)
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, r := range fresh[:n] {
			name := r.Key.String()
			delete(t.broken, r.Key)
			t.total += r.Bytes() - t.known[name].Bytes
			t.known[name] = values.Value{Name: name, Bytes: r.Bytes(), Used: time.Now()}
		}
		return errors.Join(err, full)
	})
}

// there reports which of the names have a value, by asking, or by what was just looked at.
func (t *blobs) there(ctx context.Context, names []string) ([]bool, error) {
	if b, ok := t.b.(asked); ok {
		ctx, cancel := values.OpContext(ctx, 0)
		defer cancel()
		return b.there(ctx, names)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]bool, len(names))
	for i, name := range names {
		_, out[i] = t.known[name]
	}
	return out, nil
}

// room deletes the least recently used values until there is room for more; of those used together the last named go first.
func (t *blobs) room(ctx context.Context, more int64, keep map[string]bool) error {
	t.mu.Lock()
	free := t.cap - t.total - t.foreign
	var old []values.Value
	for name, b := range t.known {
		if free < more && !keep[name] && !t.fixed {
			old = append(old, b)
		}
	}
	t.mu.Unlock()
	if free >= more {
		return nil
	}
	slices.SortFunc(old, func(a, b values.Value) int { return cmp.Or(a.Used.Compare(b.Used), cmp.Compare(a.Name, b.Name)) })
	n := 0
	for ; n < len(old) && free < more; n++ {
		free += old[n].Bytes
	}
	if free < more {
		return fmt.Errorf("contexts: %d bytes more: %w", more, ErrFull)
	}
	t.handOver(ctx, old[:n])
	ctx, cancel := values.OpContext(ctx, 0)
	defer cancel()
	return t.drop(ctx, old[:n])
}

// drop deletes values.
func (t *blobs) drop(ctx context.Context, list []values.Value) error {
	if len(list) == 0 {
		return nil
	}
	if err := t.b.del(ctx, list); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range list {
		t.total -= t.known[b.Name].Bytes
		delete(t.known, b.Name)
	}
	return nil
}

func (t *blobs) touch(keys []Key) {
	if !t.local && t.look(context.Background(), false) != nil {
		return // a hint
	}
	list := t.of(keys)
	now := time.Now()
	t.mu.Lock()
	for i := range list {
		list[i].Used = now.Add(-time.Duration(i)) // a chain's end before its beginning
		t.known[list[i].Name] = list[i]
	}
	t.mu.Unlock()
	ctx, cancel := values.OpContext(context.Background(), 0)
	defer cancel()
	if len(list) > 0 {
		_ = t.b.used(ctx, list)
	}
}

// of are those of the keys that have values.
func (t *blobs) of(keys []Key) (list []values.Value) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		if b, ok := t.known[k.String()]; ok {
			list = append(list, b)
		}
	}
	return list
}

func (t *blobs) remove(ctx context.Context, keys []Key) error {
	return t.change(ctx, func() error {
		ctx, cancel := values.OpContext(ctx, 0)
		defer cancel()
		return t.drop(ctx, t.of(keys))
	})
}

// each calls fn with every value, some at a time; most as in get.
func (t *blobs) each(ctx context.Context, most int64, fn func(b values.Value, raw []byte, err error)) error {
	if err := t.look(ctx, true); err != nil {
		return err
	}
	var all []values.Value
	t.mu.Lock()
	for _, b := range t.known {
		all = append(all, b)
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b values.Value) int { return cmp.Compare(a.Name, b.Name) })
	var group errgroup.Group
	var said sync.Mutex
	group.SetLimit(fetchWorkers)
	for _, b := range all {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			ctx, cancel := values.OpContext(ctx, b.Bytes)
			defer cancel()
			raw, err := t.b.get(ctx, b.Name, most)
			said.Lock()
			defer said.Unlock()
			if t.local || err == nil || errors.Is(err, ErrMiss) || ctx.Err() != nil {
				fn(b, raw, err)
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

func (t *blobs) list(ctx context.Context) (out []Entry, err error) {
	err = t.each(ctx, pageBytes, func(b values.Value, raw []byte, err error) {
		if err != nil {
			return
		}
		if m, total, _, err := parseHeader(raw); err == nil {
			out = append(out, Entry{m, total, b.Used})
		}
	})
	return out, err
}

// whole reports what is wrong with a value that was read, or not.
func whole(b values.Value, raw []byte, err error) error {
	if err != nil {
		return err
	}
	r, err := Parse(raw)
	if err == nil && r.Key.String() != b.Name {
		err = fmt.Errorf("contexts: record %s lies there: %w", r.Key, ErrDamaged)
	}
	return err
}

func (t *blobs) verify(ctx context.Context, note func(Finding)) error {
	return t.each(ctx, 0, func(b values.Value, raw []byte, err error) {
		if !errors.Is(err, ErrMiss) { // it went meanwhile
			note(Finding{"record " + b.Name[:min(12, len(b.Name))], whole(b, raw, err)})
		}
	})
}

func (t *blobs) gc(ctx context.Context) (freed int64, err error) {
	var bad []values.Value
	err = t.each(ctx, 0, func(b values.Value, raw []byte, err error) {
		if err = whole(b, raw, err); errors.Is(err, ErrDamaged) || !t.local && errors.Is(err, ErrMiss) {
			bad = append(bad, b)
			freed += b.Bytes
		}
	})
	if err != nil {
		return 0, err
	}
	return freed, t.change(ctx, func() error {
		ctx, cancel := values.OpContext(ctx, 0)
		defer cancel()
		return t.drop(ctx, bad)
	})
}

func (t *blobs) bytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}

func (t *blobs) close() error { return t.b.close() }
