package csdshim

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"terrace/csdshim/wire"
)

// rawDial is a connection without a client on it.
func rawDial(t testing.TB, socket string) (*bufio.Reader, net.Conn) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(5 * time.Second))
	return bufio.NewReader(c), c
}

// readFrame reads one frame.
func readFrame(r io.Reader) (h wire.Header, payload []byte, err error) {
	if h, err = wire.ReadHeader(r); err != nil {
		return h, nil, err
	}
	payload = make([]byte, h.Length)
	return h, payload, wire.ReadPayload(r, h, payload)
}

func frameOf(kind wire.Type, id uint64, payload []byte) []byte {
	h := wire.Header{Type: kind, ID: id, Length: len(payload), Sum: wire.Checksum(0, payload)}
	return append(h.Append(nil), payload...)
}

// TestHostileClients sends what no client sends. The drive answers with an error or hangs up, stays alive, and allocates no
// more than a frame.
func TestHostileClients(t *testing.T) {
	d := openDrive(t, t.TempDir(), nil)
	socket := serve(t, d)
	hello := frameOf(wire.TypeHello, 0, wire.Hello{Owner: [16]byte{1}}.Append(nil))
	huge := binary.LittleEndian.AppendUint32(nil, 1<<31-1)
	long := wire.Header{Type: wire.TypeWrite, ID: 1, Length: 1 << 30}.Append(nil)
	wrongSum := frameOf(wire.TypeStats, 1, []byte("x"))
	wrongSum[len(wrongSum)-1]++
	for name, send := range map[string][]byte{
		"nothing":               nil,
		"half a header":         hello[:9],
		"noise":                 []byte("GET / HTTP/1.1\r\nHost: drive\r\n\r\n and more than a header"),
		"no hello":              frameOf(wire.TypeStats, 1, nil),
		"short hello":           frameOf(wire.TypeHello, 0, []byte("abc")),
		"hello of 8 MiB":        wire.Header{Type: wire.TypeHello, Length: 8 << 20}.Append(nil),
		"frame of 1 GiB":        append(hello[:len(hello):len(hello)], long...),
		"wrong checksum":        append(hello[:len(hello):len(hello)], wrongSum...),
		"id 0":                  append(hello[:len(hello):len(hello)], frameOf(wire.TypeStats, 0, nil)...),
		"a drive's frame":       append(hello[:len(hello):len(hello)], frameOf(wire.TypeDone, 3, nil)...),
		"second hello":          append(hello[:len(hello):len(hello)], hello...),
		"fetch of 2^31 groups":  append(hello[:len(hello):len(hello)], frameOf(wire.TypeFetch, 1, append(make([]byte, 8), huge...))...),
		"gather of 2^31 tokens": append(hello[:len(hello):len(hello)], frameOf(wire.TypeGather, 1, append(make([]byte, 12), huge...))...),
		"write of 2^31 groups":  append(hello[:len(hello):len(hello)], frameOf(wire.TypeWrite, 1, append(append(make([]byte, 8), huge...), huge...))...),
		"score, wide":           append(hello[:len(hello):len(hello)], frameOf(wire.TypeScore, 1, append(append(make([]byte, 12), 3, 0, 1, 0, 0, 0, 0, 0, 0, 0), huge...))...),
		"cancel of nothing":     append(hello[:len(hello):len(hello)], frameOf(wire.TypeCancel, 77, nil)...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, c := rawDial(t, socket)
		c.Write(send)
		c.(*net.UnixConn).CloseWrite()
		io.Copy(io.Discard, r)
		c.Close()
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 10<<20 {
			t.Errorf("%s: %d bytes were allocated", name, grown)
		}
	}
	// Requests that are frames, but nonsense: each fails, and the connection goes on.
	r, c := rawDial(t, socket)
	c.Write(hello)
	if h, _, err := readFrame(r); err != nil || h.Type != wire.TypeWelcome {
		t.Fatal(h, err)
	}
	shape := smallShape(CodesInt8, true)
	c.Write(frameOf(wire.TypeOpen, 1, wire.Open{Seq: 1, Shape: shape}.Append(nil)))
	if h, p, err := readFrame(r); err != nil || h.Type != wire.TypeDone {
		t.Fatal(h, p, err)
	}
	other := shape
	other.Fingerprint[3]++
	for i, send := range []struct {
		kind    wire.Type
		payload []byte
	}{
		{wire.TypeOpen, wire.Open{Seq: 1, Shape: other}.Append(nil)},
		{wire.TypeFetch, wire.Fetch{Seq: 1, Places: []wire.Place{{Layer: 3}}}.Append(nil)},
		{wire.TypeFetch, wire.Fetch{Seq: 1, Places: []wire.Place{{Group: math.MaxInt32}}}.Append(nil)},
		{wire.TypeFetch, wire.Fetch{Seq: 1, Places: make([]wire.Place, 100000)}.Append(nil)},
		{wire.TypeFetch, wire.Fetch{Seq: 2}.Append(nil)},
		{wire.TypeGather, wire.Gather{Seq: 1, Positions: []int32{5, 5}}.Append(nil)},
		{wire.TypeGather, wire.Gather{Seq: 1, Positions: []int32{math.MaxInt32}}.Append(nil)},
		{wire.TypePromote, wire.Tokens{Seq: 1, Positions: []int32{math.MaxInt32}}.Append(nil)},
		{wire.TypeScore, wire.Score{Seq: 1, Query: Query{Codes: CodesInt4, Int8: make([]int8, shape.Width()), Block: 1}}.Append(nil)},
		{wire.TypeScore, wire.Score{Seq: 1, Query: Query{Codes: CodesInt8, Int8: make([]int8, 3), Block: 1}}.Append(nil)},
		{wire.TypeScore, wire.Score{Seq: 1, Layer: 99, Query: Query{Codes: CodesInt8, Int8: make([]int8, shape.Width()), Block: 1}}.Append(nil)},
		{wire.TypeWrite, append(wire.Write{Seq: 1, RecordBytes: 1, Places: make([]wire.Place, 1)}.AppendHead(nil), 0)},
		{wire.TypeWelcome, nil},
	} {
		c.Write(frameOf(send.kind, uint64(i+9), send.payload))
		h, payload, err := readFrame(r)
		if err != nil || h.Type != wire.TypeError || h.ID != uint64(i+9) {
			t.Fatalf("request %d: %v frame %d: %v", i, h.Type, h.ID, err)
		}
		if f, err := wire.ParseFailure(payload); err != nil || f.Code == 0 {
			t.Errorf("request %d: %+v, %v", i, f, err)
		}
	}
	w := newCache(shape, 1)
	ok := dial(t, socket, ClientOptions{})
	write(t, ok, w, 1, 3)
	checkFetch(t, ok, w, 1)
}

// TestWildGroups: groups far behind the others, in every layer, are refused by name where the drive could never hold so many;
// where it could they take the memory of what is stored. So do marks of tokens, and scoring passes over what is not there.
func TestWildGroups(t *testing.T) {
	shape := smallShape(CodesHalf, true)
	shape.Layers = 40
	for name, capacity := range map[string]int64{"a small drive": 8 << 20, "a large drive": 1 << 40} {
		t.Run(name, func(t *testing.T) {
			d := openDrive(t, t.TempDir(), func(o *Options) {
				o.CapacityBytes = capacity
				if capacity > 1<<30 {
					o.Profile.NAND.BlockPages = 4096
				}
			})
			c := dial(t, serve(t, d), ClientOptions{})
			if err := c.OpenSequence(t.Context(), 1, shape); err != nil {
				t.Fatal(err)
			}
			w := newCache(shape, 1)
			first := w.group(0, 0)
			if _, err := c.WriteGroups(t.Context(), 1, []Group{first}); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			wild := []int32{0, 1 << 20, maxPosition - 20}
			for layer := range shape.Layers {
				for _, p := range wild[1:] {
					_, err := c.WriteGroups(t.Context(), 1, []Group{{Layer: layer, Index: int(p) / GroupTokens, Data: first.Data}})
					if (capacity < 1<<30) != errors.Is(err, ErrFull) || err != nil && !strings.Contains(err.Error(), "can hold groups 0 to") {
						t.Fatalf("layer %d, position %d: %v", layer, p, err)
					}
				}
			}
			if err := c.Promote(t.Context(), 1, []int32{0, maxPosition - 20}); (capacity < 1<<30) != errors.Is(err, ErrRequest) {
				t.Errorf("a wild mark: %v", err)
			}
			scored := 0
			q := &Query{Codes: CodesHalf, Float: make([]float32, shape.Width()), Block: 32}
			if _, err := c.Score(t.Context(), 1, 0, q, func(b *Block) error { scored += len(b.Positions); return nil }); err != nil {
				t.Error(err)
			}
			if want := map[bool]int{true: 16, false: 3*16 - 2}[capacity < 1<<30]; scored != want {
				t.Errorf("%d tokens scored, want %d", scored, want)
			}
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
				t.Errorf("%d MiB were allocated", grown>>20)
			}
		})
	}
}

// hostileDrive greets as a drive does and then answers the first request with given frames, its id filled in.
func hostileDrive(t *testing.T, answer func(id uint64) []byte) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "csd")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		if _, _, err := readFrame(r); err != nil {
			return
		}
		c.Write(frameOf(wire.TypeWelcome, 0, Identity{Profile: "hostile"}.Append(nil)))
		h, _, err := readFrame(r)
		if err != nil {
			return
		}
		c.Write(answer(h.ID))
		io.Copy(io.Discard, r)
	}()
	c := dial(t, filepath.Join(dir, "s"), ClientOptions{})
	t.Cleanup(func() { c.Abandon(); l.Close(); <-done; os.RemoveAll(dir); noGoroutines(t) })
	c.shapes[1] = smallShape(CodesInt8, true)
	return c
}

// TestHostileDrives: scores that cannot be, and replies of the wrong length, are errors, never results.
func TestHostileDrives(t *testing.T) {
	block := func(pos []int32, s []float32) []byte { return wire.AppendBlock(nil, pos, s) }
	done := func(id uint64) []byte { return frameOf(wire.TypeDone, id, Timing{}.Append(nil)) }
	scores := func(payload []byte) func(uint64) []byte {
		return func(id uint64) []byte { return append(frameOf(wire.TypeScores, id, payload), done(id)...) }
	}
	q := &Query{Codes: CodesInt8, Int8: make([]int8, 64), Block: 16, Limit: 100}
	for name, answer := range map[string]func(uint64) []byte{
		"positions that fall":     scores(append(block([]int32{5, 6}, []float32{1, 2}), block([]int32{6, 7}, []float32{1, 2})...)),
		"a position twice":        scores(block([]int32{5, 5}, []float32{1, 2})),
		"a position past the end": scores(block([]int32{100}, []float32{1})),
		"not a number":            scores(block([]int32{3}, []float32{float32(math.NaN())})),
		"an empty block":          scores(make([]byte, 8)),
		"a cut block":             scores(block([]int32{5, 6}, []float32{1, 2})[:13]),
		"data":                    func(id uint64) []byte { return append(frameOf(wire.TypeData, id, []byte{1}), done(id)...) },
		"a welcome":               func(id uint64) []byte { return frameOf(wire.TypeWelcome, id, nil) },
		"a short done":            func(id uint64) []byte { return frameOf(wire.TypeDone, id, []byte{1, 2}) },
		"an answer to another":    func(id uint64) []byte { return done(id + 7) },
		"an end": func(id uint64) []byte {
			return frameOf(wire.TypeError, 0, wire.Failure{Code: 8, Text: "no more"}.Append(nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := hostileDrive(t, answer)
			ctx := context.Background()
			if name == "an answer to another" {
				short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				ctx = short
			}
			_, err := c.Score(ctx, 1, 0, q, func(*Block) error { return nil })
			if !errors.Is(err, ErrFrame) && !errors.Is(err, ErrLost) && !errors.Is(err, ErrTimeout) || name == "an answer to another" && !errors.Is(err, ErrTimeout) {
				t.Errorf("score: %v", err)
			}
		})
	}
	record := smallShape(CodesInt8, true).RecordBytes()
	for name, answer := range map[string]func(uint64) []byte{
		"too little": func(id uint64) []byte { return append(frameOf(wire.TypeData, id, make([]byte, record-1)), done(id)...) },
		"too much":   func(id uint64) []byte { return append(frameOf(wire.TypeData, id, make([]byte, record+1)), done(id)...) },
		"nothing":    done,
		"not in order": func(id uint64) []byte {
			h := wire.Header{Type: wire.TypeData, ID: id, Length: 8, At: 8, Sum: wire.Checksum(0, make([]byte, 8))}
			return append(append(h.Append(nil), make([]byte, 8)...), done(id)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := hostileDrive(t, answer)
			if _, err := c.Fetch(context.Background(), 1, []Group{{Data: make([]byte, record)}}); !errors.Is(err, ErrFrame) && !errors.Is(err, ErrLost) {
				t.Errorf("fetch: %v", err)
			}
		})
	}
}

// TestSilentDrive: a process that accepts and says nothing costs a dial its timeout, no more.
func TestSilentDrive(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Skip("the temporary folder's path is too long for a socket: ", err)
	}
	defer l.Close()
	if _, err := Dial(context.Background(), filepath.Join(dir, "s"), ClientOptions{Timeout: 50 * time.Millisecond}); !errors.Is(err, ErrTimeout) {
		t.Errorf("%v, want ErrTimeout", err)
	}
}

// TestSockets: a stale socket is replaced, a served one and a file that is none are left alone.
func TestSockets(t *testing.T) {
	socket := serve(t, openDrive(t, t.TempDir(), nil))
	if _, err := Listen(socket); !errors.Is(err, ErrLocked) {
		t.Errorf("a socket that is served: %v", err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	os.WriteFile(file, []byte("precious"), 0o600)
	if _, err := Listen(file); !errors.Is(err, ErrRefused) {
		t.Errorf("a file: %v", err)
	}
	stale := filepath.Join(filepath.Dir(socket), "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	again, err := Listen(stale)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	if info, err := os.Stat(stale); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v, %v", info.Mode(), err)
	}
	again.Close()
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// FuzzConversation feeds bytes to a drive's connection after a proper greeting.
func FuzzConversation(f *testing.F) {
	shape := smallShape(CodesInt8, true)
	f.Add(frameOf(wire.TypeOpen, 1, wire.Open{Seq: 1, Shape: shape}.Append(nil)))
	f.Add(frameOf(wire.TypeScore, 2, wire.Score{Seq: 1, Query: Query{Codes: CodesInt8, Int8: make([]int8, 64), Block: 16}}.Append(nil)))
	f.Add(frameOf(wire.TypeFetch, 3, wire.Fetch{Seq: 1, Places: []wire.Place{{Layer: 1, Group: 2}}}.Append(nil)))
	f.Add(frameOf(wire.TypeGather, 3, wire.Gather{Seq: 1, Layer: 1, Positions: []int32{4}}.Append(nil)))
	f.Add(frameOf(wire.TypeDrop, 3, wire.Drop{Seq: 1}.Append(nil)))
	f.Add(frameOf(wire.TypeBye, 3, nil))
	d := openDrive(f, f.TempDir(), nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		mine, theirs := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			newConn(d, theirs, ServerOptions{Log: func(string) {}}).serve(context.Background())
		}()
		go io.Copy(io.Discard, mine)
		mine.Write(frameOf(wire.TypeHello, 0, wire.Hello{Owner: [16]byte{byte(rand.Uint32())}}.Append(nil)))
		if len(b) > 6 && string(b[:4]) == "TCSD" && len(b) >= wire.HeaderBytes { // checksums that hold let more of it through
			payload := b[wire.HeaderBytes:]
			b = frameOf(wire.Type(b[5]), 1, payload)
		}
		mine.Write(b)
		mine.Close()
		<-served
	})
}
