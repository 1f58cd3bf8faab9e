package vfs

import "sync"

// Shares are who reads and writes one disk. Alone, a user is never made to wait. Where several have something to do, at most limitBytes
// are under way and turns go to whoever has had the fewest bytes for its weight since all of them had something to do (start-time
// fair queuing; Goyal et al. 1996): none starves another, whatever it asks for at a time.
type Shares struct {
	mu     sync.Mutex
	users  []*Share
	flying int64   // bytes under way
	now    float64 // virtual time: of the turn that was given last
}

// limitBytes is what may be under way while users compete: an SSD is busy with it, and a new turn comes soon.
const limitBytes = 2 << 20

// Share is one user's part of a disk. It may be used by many goroutines.
type Share struct {
	name   string
	weight float64
	of     *Shares

	waiting []turn
	flying  int     // operations under way
	tag     float64 // virtual time at which its next turn is due
	use     ShareUse
}

// turn is an operation that waits.
type turn struct {
	bytes int64
	begin func()
}

// ShareUse is what a user of a disk has had.
type ShareUse struct {
	Name  string
	Bytes int64 // asked for
	Turns int64 // operations
	Waits int64 // of Turns: those that had to wait for another user's
}

// New adds a user; weights are relative to each other's, above 0.
func (s *Shares) New(name string, weight float64) *Share {
	u := &Share{name: name, weight: weight, of: s, use: ShareUse{Name: name}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users = append(s.users, u)
	return u
}

// Use is what users have had, in the order of New.
func (s *Shares) Use() (out []ShareUse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.users {
		out = append(out, u.use)
	}
	return out
}

// Ask asks for a turn of some bytes. True: it is the caller's now. Otherwise begin is called when it is, in some goroutine that holds
// no lock of the shares'. Either way Done ends it.
func (u *Share) Ask(bytes int64, begin func()) bool {
	s := u.of
	s.mu.Lock()
	defer s.mu.Unlock()
	u.use.Bytes += bytes
	u.use.Turns++
	if len(u.waiting) == 0 && u.flying == 0 {
		u.tag = max(u.tag, s.now) // what it did not use is gone
	}
	if len(u.waiting) == 0 && (!s.contested(u) || s.fits(bytes) && s.next(u) == u) {
		s.give(u, bytes)
		return true
	}
	u.use.Waits++
	u.waiting = append(u.waiting, turn{bytes, begin})
	return false
}

// Done ends a turn of so many bytes, and begins those that may now.
func (u *Share) Done(bytes int64) {
	s := u.of
	s.mu.Lock()
	s.flying -= bytes
	u.flying--
	var begin []func()
	for {
		v := s.next(nil)
		if v == nil || s.contested(v) && !s.fits(v.waiting[0].bytes) {
			break
		}
		t := v.waiting[0]
		v.waiting[0] = turn{}
		v.waiting = v.waiting[1:]
		s.give(v, t.bytes)
		begin = append(begin, t.begin)
	}
	s.mu.Unlock()
	for _, b := range begin {
		b()
	}
}

// Leave takes a user out; none of its operations may wait or be under way. It is out already, or nil: nothing is done.
func (u *Share) Leave() {
	if u == nil {
		return
	}
	s := u.of
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, v := range s.users {
		if v == u {
			s.users = append(s.users[:i:i], s.users[i+1:]...)
			return
		}
	}
}

// contested reports whether somebody else has something to do; s.mu is held.
func (s *Shares) contested(u *Share) bool {
	for _, v := range s.users {
		if v != u && (v.flying > 0 || len(v.waiting) > 0) {
			return true
		}
	}
	return false
}

// fits reports whether so many bytes may begin beside what is under way; s.mu is held.
func (s *Shares) fits(bytes int64) bool { return s.flying == 0 || s.flying+bytes <= limitBytes }

// next is who has a turn next of those that wait, and of who asks; nil for nobody; s.mu is held.
func (s *Shares) next(asks *Share) (out *Share) {
	for _, v := range s.users {
		if (v == asks || len(v.waiting) > 0) && (out == nil || v.tag < out.tag) {
			out = v
		}
	}
	return out
}

// give counts a turn; s.mu is held.
func (s *Shares) give(u *Share, bytes int64) {
	s.now = max(s.now, u.tag)
	u.tag += float64(bytes) / u.weight
	u.flying++
	s.flying += bytes
}

// Read does a read, or any other operation of so many bytes, in a turn; it waits for it.
func (u *Share) Read(bytes int64, read func() (int, error)) (int, error) {
	if u == nil {
		return read()
	}
	ready := make(chan struct{})
	if !u.Ask(bytes, func() { close(ready) }) {
		<-ready
	}
	defer u.Done(bytes)
	return read()
}

// Engine is an engine whose operations take turns; nil shares change nothing.
func (u *Share) Engine(e Engine) Engine {
	if u == nil {
		return e
	}
	return &sharedEngine{e, u}
}

type sharedEngine struct {
	Engine
	share *Share
}

// Start begins what has its turn in one call, and the rest as turns come.
func (e *sharedEngine) Start(ios []*IO) {
	now := make([]*IO, 0, len(ios))
	for _, op := range ios {
		bytes, done := int64(op.Bytes()), op.Done
		op.Done = func(op *IO) {
			op.Done = done // it may be begun again
			e.share.Done(bytes)
			done(op)
		}
		if e.share.Ask(bytes, func() { e.Engine.Start([]*IO{op}) }) {
			now = append(now, op)
		}
	}
	if len(now) > 0 {
		e.Engine.Start(now)
	}
}
