package stream

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
	"terrace/internal/vfs"
)

// state is where a unit is.
type state uint8

const (
	absent state = iota
	coming       // memory is set aside, pieces are read
	here
)

// unit is a Unit with its place in memory.
type unit struct {
	parts Unit
	size  int64
	stays bool
	state state
	holds int  // steps that need it where it is
	ahead bool // was asked for by a prediction that no step has met yet

	memory  []byte
	pieces  []piece // yet to be read
	flying  int     // pieces that readers have
	failure error   // of a read, until the next attempt

	keep  keeping // of an expert
	owner *layer  // whose bytes it counts in; nil = no layer's
}

// piece is rows of a part.
type piece struct{ part, row, rows int }

const (
	// pieceBytes is what is read at a time, at most, but for rows that are longer.
	pieceBytes = 256 << 10
	// readers are the reads under way at most: enough for an SSD, few enough that what they bring into form does not crowd out who
	// computes.
	readers = 8
)

// pieceOf is the bytes of a part's pieces.
func pieceOf(w *kernels.Matrix) int {
	return min(rowsOf(w), w.Rows()) * w.Type().RowBytes(w.Cols())
}

// rowsOf is the rows of a piece.
func rowsOf(w *kernels.Matrix) int {
	return max(1, pieceBytes/(w.Type().RowBytes(w.Cols())*kernels.PlaceRows)) * kernels.PlaceRows
}

// Store holds units.
type Store struct {
	files *Files
	plan  Plan
	slots *slots // nil: of a Modelled store
	work  sync.WaitGroup

	mu     sync.Mutex
	moved  *sync.Cond // a unit came or left, or the store was closed
	urgent []*unit    // with pieces left, that somebody waits for
	early  []*unit    // that a prediction asked for
	closed bool

	held    int64 // bytes of units that are here or coming, and of all else that counts
	layers  []layer
	sweep   sweep
	account account
	stall   stall
}

// Open reads what stays and begins to serve the rest. Errors wrap ErrBudget, ErrRead, mapped.ErrChanged, ErrNotFinite.
func Open(p Plan, files *Files) (*Store, error) {
	s, first, err := newStore(p)
	if err != nil {
		return nil, err
	}
	s.files, s.slots, s.stall.await = files, &slots{}, s.moved.Wait
	s.stall.timer = time.AfterFunc(stallAfter, func() { s.stall.expired(s) })
	stage := int(p.staging()) / readers
	for range readers {
		s.work.Go(func() { s.reader(stage) })
	}
	if err := s.pin(first); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newStore makes the units of a plan, and returns those that stay, in the order in which they are read.
func newStore(p Plan) (s *Store, first []*unit, err error) {
	if err := p.Check(); err != nil {
		return nil, nil, err
	}
	s = &Store{plan: p, held: p.OtherBytes + p.staging()}
	s.moved = sync.NewCond(&s.mu)
	for _, u := range p.Pinned {
		first = append(first, newUnit(u))
	}
	first = append(first, s.layOut()...)
	s.account.total = p.TotalBytes()
	return s, first, nil
}

// layOut makes the units that come and leave, and returns those of them that stay.
func (s *Store) layOut() (stay []*unit) {
	p := &s.plan
	pinned := p.pinLayers()
	for i, u := range p.Layers {
		s.sweep.units = append(s.sweep.units, newUnit(u))
		if pinned[i] {
			stay = append(stay, s.sweep.units[i])
		}
	}
	s.sweep.pinned = pinned
	for _, list := range p.Experts {
		l := layer{}
		for _, u := range list {
			l.units = append(l.units, newUnit(u))
		}
		s.layers = append(s.layers, l)
	}
	s.divide()
	return stay
}

func newUnit(u Unit) *unit { return &unit{parts: u, size: u.Bytes()} }

// pin reads units that stay, in order.
func (s *Store) pin(list []*unit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := int64(0)
	for _, u := range list {
		u.stays = true
		all += u.size
	}
	s.slots.reserve(all)
	for _, u := range list {
		u.holds++
		s.begin(u, &s.urgent)
	}
	for _, u := range list {
		if err := s.wait(u); err != nil {
			return err
		}
	}
	return nil
}

// wait waits until a unit that is coming is here; s.mu is held.
func (s *Store) wait(u *unit) error {
	for u.state == coming && !s.closed {
		if err := s.stall.pause(s); err != nil {
			return err
		}
	}
	switch {
	case s.closed:
		return ErrClosed
	case u.failure != nil:
		return u.failure
	}
	return nil
}

// begin sets memory aside for an absent unit, for which there is room, and queues its pieces; s.mu is held.
func (s *Store) begin(u *unit, queue *[]*unit) {
	if u.state, u.failure = coming, nil; len(u.parts) == 0 {
		u.state = here
		return
	}
	s.held += u.size
	s.account.resident(s.held)
	if u.stays {
		u.memory = s.slots.keep(u.size)
	} else {
		u.memory = s.slots.take(u.size)
	}
	for i := range u.parts {
		w := u.parts[i].W
		for row, step := 0, rowsOf(w); row < w.Rows(); row += step {
			u.pieces = append(u.pieces, piece{i, row, min(step, w.Rows()-row)})
		}
	}
	*queue = append(*queue, u)
	s.moved.Broadcast()
}

// hurry moves a unit that a prediction asked for among those that somebody waits for; s.mu is held.
func (s *Store) hurry(u *unit) {
	for i, e := range s.early {
		if e == u {
			s.early = append(s.early[:i], s.early[i+1:]...)
			s.urgent = append(s.urgent, u)
			return
		}
	}
}

// leave gives the memory of a unit that is here, and not held, back; s.mu is held.
func (s *Store) leave(u *unit) {
	for i := range u.parts {
		u.parts[i].W.Vacate()
	}
	if u.ahead {
		u.ahead = false
		s.account.use.Wasted++
		s.account.trust.learn(false)
	}
	u.state = absent
	s.forget(u)
}

// forget takes a unit's memory; s.mu is held.
func (s *Store) forget(u *unit) {
	if len(u.parts) == 0 {
		return
	}
	s.held -= u.size
	if u.owner != nil {
		u.owner.bytes -= u.size
	}
	s.slots.give(u.memory)
	u.memory = nil
}

// reader reads pieces until the store is closed.
func (s *Store) reader(stageBytes int) {
	stage := vfs.AlignedBytes(stageBytes)
	defer vfs.FreeAligned(stage)
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		u, p, ok := s.next()
		if !ok {
			return
		}
		memory := u.memory
		s.mu.Unlock()
		err := s.bring(u, p, memory, stage)
		s.mu.Lock()
		s.arrived(u, err)
	}
}

// next waits for a piece to read; s.mu is held.
func (s *Store) next() (*unit, piece, bool) {
	for !s.closed {
		if u, p, ok := s.first(); ok {
			return u, p, true
		}
		s.moved.Wait()
	}
	return nil, piece{}, false
}

// first is the piece that is read next, one that somebody waits for if there is any; s.mu is held.
func (s *Store) first() (*unit, piece, bool) {
	queue := &s.urgent
	if len(*queue) == 0 {
		queue = &s.early
	}
	if len(*queue) == 0 {
		return nil, piece{}, false
	}
	u := (*queue)[0]
	p := u.pieces[0]
	u.flying++
	if u.pieces = u.pieces[1:]; len(u.pieces) == 0 {
		*queue = (*queue)[1:]
	}
	return u, p, true
}

// bring reads a piece, looks for what is not finite, and brings it into form.
func (s *Store) bring(u *unit, p piece, memory, stage []byte) error {
	part := &u.parts[p.part]
	w := part.W
	row := w.Type().RowBytes(w.Cols())
	raw, err := s.files.span(part.Path, part.Offset+int64(p.row)*int64(row), p.rows*row, stage)
	if err != nil {
		return err
	}
	if bad := quant.CheckFinite(w.Type(), raw); bad >= 0 {
		return fmt.Errorf("stream: %s: row %d of the matrix at %d: %w", part.Path, p.row+bad/w.Cols(), part.Offset, ErrNotFinite)
	}
	w.Place(u.memoryOf(p.part, memory), part.ByRow, p.row, raw)
	return nil
}

// memoryOf is the memory of a part.
func (u *unit) memoryOf(part int, memory []byte) []byte {
	at := int64(0)
	for i := range part {
		at += u.parts[i].bytes()
	}
	return memory[at : at+u.parts[part].bytes()]
}

// arrived counts a piece; after the last one the unit is here, or absent again; s.mu is held.
func (s *Store) arrived(u *unit, err error) {
	u.flying--
	s.stall.ended()
	if err != nil && u.failure == nil {
		u.failure = err
		u.pieces = nil
		s.urgent, s.early = without(s.urgent, u), without(s.early, u)
	}
	if u.flying > 0 || len(u.pieces) > 0 {
		return
	}
	if u.failure != nil {
		u.state, u.ahead = absent, false
		s.forget(u)
	} else {
		for i := range u.parts {
			if s.slots == nil {
				break
			}
			u.parts[i].W.Occupy(u.memoryOf(i, u.memory), u.parts[i].ByRow)
		}
		u.state = here
	}
	s.moved.Broadcast()
}

func without(list []*unit, u *unit) []*unit {
	for i, e := range list {
		if e == u {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

// Files is what the store reads with.
func (s *Store) Files() *Files { return s.files }

// Close ends the readers and gives the memory back; no matrix may be used any more. Reads that do not end are left, with the memory and
// the files that they use.
func (s *Store) Close() error {
	s.mu.Lock()
	stalled := s.stall.now
	s.closed = true
	s.moved.Broadcast()
	s.mu.Unlock()
	s.stall.timer.Stop()
	if stalled {
		return nil
	}
	s.work.Wait()
	s.slots.free()
	return s.files.Close()
}
