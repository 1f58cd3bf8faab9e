package csdshim

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"terrace/csdshim/wire"
	"terrace/internal/vfs/view"
)

// TestSharedReplies: what is fetched and gathered is the same through shared memory and through the socket, and the same as was
// written.
func TestSharedReplies(t *testing.T) {
	d := openDrive(t, t.TempDir(), func(o *Options) { o.CapacityBytes = 64 << 20 })
	socket := serve(t, d)
	w := newCache(smallShape(CodesNone, true), 1)
	owner := [16]byte{7}
	shared := dial(t, socket, ClientOptions{Owner: owner})
	plain := dial(t, socket, ClientOptions{Owner: owner, FrameBytes: wire.MaxShareBytes}) // too much to share
	if got := shared.shared != nil; got != (runtime.GOOS == "linux") || plain.shared != nil {
		t.Fatalf("memory shared: %v, and %v where a reply is larger than what may be shared", got, plain.shared != nil)
	}
	ctx := context.Background()
	for _, c := range []*Client{shared, plain} {
		if err := c.OpenSequence(ctx, 1, w.shape); err != nil {
			t.Fatal(err)
		}
	}
	var batch []Group
	for g := range 300 {
		batch = append(batch, w.group(1, g))
	}
	if _, err := shared.WriteGroups(ctx, 1, batch); err != nil {
		t.Fatal(err)
	}
	positions := []int32{0, 17, 18, 1000, 4799}
	var gathered [2][]byte
	for i, c := range []*Client{shared, plain} {
		groups := make([]Group, len(batch))
		for j := range groups {
			groups[j] = Group{Layer: 1, Index: j, Data: make([]byte, w.shape.RecordBytes())}
		}
		if _, err := c.Fetch(ctx, 1, groups); err != nil {
			t.Fatal(err)
		}
		for j, g := range groups {
			if !bytes.Equal(g.Data, batch[j].Data) {
				t.Fatalf("client %d: group %d has other bytes than were written", i, j)
			}
		}
		gathered[i] = make([]byte, gatherBytes(w.shape, len(positions)))
		if _, err := c.Gather(ctx, 1, 1, positions, gathered[i]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(gathered[0], gathered[1]) || bytes.Equal(gathered[0], make([]byte, len(gathered[0]))) {
		t.Error("gathered tokens differ, or are nothing")
	}
}

// TestPlaceOfACancelledCall: the drive may still write to the place of a call that nobody waits for: it is given out again only when
// the drive has answered.
func TestPlaceOfACancelledCall(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no shared memory on this system")
	}
	d := openDrive(t, t.TempDir(), nil)
	c := dial(t, serve(t, d), ClientOptions{})
	w := newCache(smallShape(CodesNone, true), 1)
	ctx := context.Background()
	if err := c.OpenSequence(ctx, 1, w.shape); err != nil {
		t.Fatal(err)
	}
	g := w.group(0, 0)
	if _, err := c.WriteGroups(ctx, 1, []Group{g}); err != nil {
		t.Fatal(err)
	}
	d.faults.set(Faults{Rules: []Fault{{Kind: FaultSlow, On: "fetch", For: 300 * time.Millisecond, Times: 1}}})
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	dst := []Group{{Data: make([]byte, w.shape.RecordBytes())}}
	if _, err := c.Fetch(short, 1, dst); !errors.Is(err, ErrTimeout) {
		t.Fatalf("a call that was cut off: %v", err)
	}
	places := func() int {
		c.shared.mu.Lock()
		defer c.shared.mu.Unlock()
		return len(c.shared.free)
	}
	free := places() // before late answers are counted: one that comes in between is in neither
	c.mu.Lock()
	late := len(c.late)
	c.mu.Unlock()
	if late+free > inFlight {
		t.Errorf("%d places free, %d held for late answers, want at most %d together", free, late, inFlight)
	}
	if _, err := c.Fetch(ctx, 1, dst); err != nil || !bytes.Equal(dst[0].Data, g.Data) {
		t.Errorf("the next call: %v, the bytes that were written: %v", err, bytes.Equal(dst[0].Data, g.Data))
	}
	if !eventually(5*time.Second, func() bool { return places() == inFlight }) {
		t.Fatalf("%d of %d places are free after all answers", places(), inFlight)
	}
}

// TestSlots: a place is one reply's; memory goes when nobody reads it any more.
func TestSlots(t *testing.T) {
	v, f, err := view.Share(4 * wire.ShareUnit)
	if err != nil {
		t.Skip(err)
	}
	f.Close()
	s := newSlots(v, 2*wire.ShareUnit, 2)
	a, b := s.take(2*wire.ShareUnit), s.take(1)
	if a == b || a == 0 || b == 0 || s.take(1) != 0 || s.take(0) != 0 || s.take(2*wire.ShareUnit+1) != 0 {
		t.Fatalf("places %d and %d", a, b)
	}
	copy(v.At(offset(b), 3), "abc")
	s.leave(a, false)
	if got := s.take(1); got != 0 {
		t.Errorf("place %d was given out before the drive had answered", got)
	}
	s.answered(a)
	if got := s.take(1); got != a {
		t.Errorf("place %d, want %d", got, a)
	}
	s.leave(a, true)
	s.close()
	if got := s.bytes(b, 3); string(got) != "abc" || s.view == nil {
		t.Errorf("read %q from memory that is given back while it is read", got)
	}
	if s.leave(b, true); s.view != nil || s.take(1) != 0 {
		t.Error("memory stays after its last use")
	}
}

// TestHostileShares: files that are no sealed memory are not used, and requests that name places outside it are refused.
func TestHostileShares(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no shared memory on this system")
	}
	d := openDrive(t, t.TempDir(), nil)
	socket := serve(t, d)
	file, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	memory, sealed, err := view.Share(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer sealed.Close()
	defer memory.Close()
	for _, x := range []struct {
		name  string
		file  *os.File
		bytes uint32
		want  bool
	}{{"a file on disk", file, 1 << 20, false}, {"another size", sealed, 2 << 20, false}, {"no size", sealed, 0, false}, {"too much", sealed, wire.MaxShareBytes + 1, false}, {"memory", sealed, 1 << 20, true}} {
		r, c := rawDial(t, socket)
		if err := sendFile(c, frameOf(wire.TypeHello, 0, wire.Hello{Owner: [16]byte{1}, ShareBytes: x.bytes}.Append(nil)), x.file); err != nil {
			t.Fatal(err)
		}
		h, payload, err := readFrame(r)
		if err != nil || h.Type != wire.TypeWelcome {
			t.Fatalf("%s: %v frame, %v", x.name, h.Type, err)
		}
		if id, err := wire.ParseIdentity(payload); err != nil || id.Shares != x.want {
			t.Errorf("%s: shares %v, %v, want %v", x.name, id.Shares, err, x.want)
		}
		w := newCache(smallShape(CodesNone, true), 1)
		c.Write(frameOf(wire.TypeOpen, 1, wire.Open{Seq: 1, Shape: w.shape}.Append(nil)))
		if h, _, err := readFrame(r); err != nil || h.Type != wire.TypeDone {
			t.Fatalf("%s: open: %v frame, %v", x.name, h.Type, err)
		}
		for i, at := range []uint32{1 << 20 / wire.ShareUnit, 1<<32 - 1} { // the last unit is too small for four records
			ask := wire.Fetch{Seq: 1, Places: make([]wire.Place, 4)}.Append(nil)
			c.Write(wire.Header{Type: wire.TypeFetch, ID: uint64(2 + i), At: at, Length: len(ask), Sum: wire.Checksum(0, ask)}.Append(nil))
			c.Write(ask)
			h, payload, err := readFrame(r)
			if err != nil || h.Type != wire.TypeError {
				t.Fatalf("%s: place %d: %v frame, %v", x.name, at, h.Type, err)
			}
			if f, err := wire.ParseFailure(payload); err != nil || !errors.Is(remote(f), ErrRequest) {
				t.Errorf("%s: place %d: %v, %v", x.name, at, f, err)
			}
		}
	}
}

// TestGreetingIsAReader: a greeting that ends with an error reads no negative count, at which bufio panics: in a drive that is stopped while a client
// has not said hello yet.
func TestGreetingIsAReader(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	drive, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer drive.Close()
	if err := drive.SetReadDeadline(time.Now().Add(5 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := (&greeting{c: drive}).Read(make([]byte, 16)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v", n, err)
	}
}
