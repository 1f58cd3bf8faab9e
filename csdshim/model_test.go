package csdshim

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"terrace/csdshim/flash"
	"terrace/csdshim/hardware"
	"terrace/csdshim/profiles"
	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/internal/vfs"
)

// roundProfile has figures that can be checked by hand.
func roundProfile() Profile {
	return Profile{Name: "round", Link: hardware.LinkProfile{ToHostBytesPerS: 1e9, ToDriveBytesPerS: 2e9, LatencyUs: 3},
		NAND:   hardware.NANDProfile{Channels: 4, Dies: 2, Planes: 1, PageBytes: 4096, BlockPages: 16, ChannelBytesPerS: 4.096e8, ReadUs: 40, ProgramUs: 200, EraseUs: 1000},
		DRAM:   hardware.DRAMProfile{Bytes: 1e9, BytesPerS: 4e9},
		Engine: hardware.EngineProfile{ScanBytesPerS: 2e9, CommandUs: 7}}
}

// TestModelByHand compares times with what a pencil gives.
func TestModelByHand(t *testing.T) {
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	m := newModel(roundProfile())
	// 2,000 bytes at 2 GB/s are 1 µs; latency 3, command 7.
	if got := us(m.arrive(0, 2000)); got != 11 {
		t.Errorf("arrive: %v µs, want 11", got)
	}
	// One page: 40 µs in its cell, 10 µs on its channel. Four pages on four channels take as long.
	if got := us(m.read(100*time.Microsecond, m.spread(4))); got != 150 {
		t.Errorf("four pages: %v µs, want 150", got)
	}
	// Eight pages on each channel at 150 µs: its two dies sense one each, both cross one after another, four times 40+10+10.
	if got := us(m.read(150*time.Microsecond, m.spread(32))); got != 150+4*60 {
		t.Errorf("32 pages: %v µs, want 390", got)
	}
	// With cache read the dies sense on meanwhile: each of four rounds takes the cell's 40 µs, the last two pages cross.
	fast := roundProfile()
	fast.NAND.CacheRead = true
	m = newModel(fast)
	if got := us(m.read(0, m.spread(32))); got != 4*40+20 {
		t.Errorf("32 pages with cache read: %v µs, want 180", got)
	}
	// Writing two pages on each channel: they cross one after another, the dies program them side by side.
	m = newModel(roundProfile())
	if got := us(m.program(0, m.spread(8))); got != 220 {
		t.Errorf("8 pages written: %v µs, want 220", got)
	}
	// Two pages moved and their block erased: read 50 and written 210; the block's die is free 1,000 µs later.
	m = newModel(roundProfile())
	m.collect(0, flash.Housekeeping{Moved: []flash.Move{{From: 0, To: 64}}, Erased: []uint32{0}})
	if got := us(m.read(0, []uint32{1})); got != 50+210+1000+50 {
		t.Errorf("a page behind an erase: %v µs, want 1310", got)
	}
	// 8,000 bytes of codes: 2 µs from DRAM, 4 µs in the engine; the next 8,000 wait for the engine.
	if a, b := us(m.scan(0, 8000, true)), us(m.scan(0, 8000, true)); a != 4 || b != 8 {
		t.Errorf("scans end at %v and %v µs, want 4 and 8", a, b)
	}
	// 1,024 bytes to the host at 1 GB/s; a second reply follows the first.
	if a, b := us(m.send(0, 1024)), us(m.send(0, 1024)); a != 1.024 || b != 2.048 {
		t.Errorf("replies end at %v and %v µs", a, b)
	}
}

// scoredDrive is a drive with one layer of 8 KV heads of 128 over 4,096 tokens, and a session on it.
func scoredDrive(t testing.TB, p Profile, keys KeyPlace, c clock.Clock) (*Session, *cache) {
	t.Helper()
	d := openDrive(t, t.TempDir(), func(o *Options) { o.Profile, o.CapacityBytes, o.Keys, o.Clock = p, 1<<30, keys, c })
	s := d.Connect([16]byte{1}, 0)
	w := newCache(Shape{Layers: 1, KVHeads: 8, Codes: CodesInt8, Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 128, ValueDim: 128, Tokens: 16, TokenMajor: true}}, 1)
	if err := s.OpenSequence(1, w.shape); err != nil {
		t.Fatal(err)
	}
	w.tell(t, func(layer int, scales []float32) error {
		_, err := s.SetScales(context.Background(), 1, layer, scales)
		return err
	})
	for g := range 256 {
		if _, err := s.Write(context.Background(), 1, []Group{w.group(0, g)}); err != nil {
			t.Fatal(err)
		}
	}
	return s, w
}

// TestSmartSSDByTheModel: on the paper's figures a layer's scoring takes the time of its keys: 4,096 tokens of 8 heads of
// 128 are 4 MiB of int8 codes, 218 µs at 19.2 GB/s from DRAM; with keys=nand the 8 MiB of full keys cross 3.2 GB/s, 2.6 ms.
func TestSmartSSDByTheModel(t *testing.T) {
	p, err := profiles.Load("smartssd")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		keys   KeyPlace
		us     float64
		nand   uint64
		engine float64
	}{{KeysDDR, 4096 * 1024 / 19.2e3, 0, 4096 * 1024 / 19.2e3}, {KeysNAND, 4096 * 2048 / 3.2e3, 8 << 20, 4096 * 1024 / 19.2e3}} {
		s, w := scoredDrive(t, p, tc.keys, nil)
		var last time.Duration
		began := s.d.clock.Now()
		tm, err := s.Score(context.Background(), 1, 0, w.query(256), func(b *Block, at time.Duration) error {
			if at < last {
				t.Errorf("a block at %v after one at %v", at, last)
			}
			last = at
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		total := float64(tm.TotalNs) / 1e3
		if total < tc.us || total > tc.us*1.2+80 {
			t.Errorf("%v: %.0f µs by the model, want %.0f and some latency", tc.keys, total, tc.us)
		}
		if tm.NANDBytes != tc.nand || tm.ScanBytes != 4<<20 || tm.LinkBytes != 4*4096 || math.Abs(float64(tm.EngineNs)/1e3-tc.engine) > 1 {
			t.Errorf("%v: %+v", tc.keys, tm)
		}
		if now := s.d.clock.Now(); now-began < time.Duration(tm.TotalNs) || uint64(now) != s.d.Stats().ModelClockNs {
			t.Errorf("the clock went from %v to %v", began, now)
		}
	}
}

// TestGatherReadsItsTokens: a token's keys and values lie together, so that scattered tokens read the flash pages that hold
// them: one page a token of 8 heads of 128 (4 KiB), a sixteenth of its group.
func TestGatherReadsItsTokens(t *testing.T) {
	p, err := profiles.Load("smartssd")
	if err != nil {
		t.Fatal(err)
	}
	s, w := scoredDrive(t, p, KeysDDR, nil)
	positions := []int32{3, 70, 71, 500, 4000}
	tm, err := s.Gather(context.Background(), 1, 0, positions, make([]byte, gatherBytes(w.shape, 5)))
	if err != nil || tm.NANDBytes != 5*4096 || tm.LinkBytes != 5*4096 {
		t.Errorf("%+v, %v: want 5 pages read and sent", tm, err)
	}
	group := []Group{{Index: 9, Data: make([]byte, w.shape.RecordBytes())}}
	if tm, err = s.Read(context.Background(), 1, group); err != nil || tm.NANDBytes != 16*4096 || tm.LinkBytes != 16*4096 {
		t.Errorf("a whole group: %+v, %v", tm, err)
	}
	// 16 groups are 1 MiB: 328 µs on a link of 3.2 GB/s, and some latency.
	var many []Group
	for i := range 16 {
		many = append(many, Group{Index: i, Data: make([]byte, w.shape.RecordBytes())})
	}
	if tm, err = s.Read(context.Background(), 1, many); err != nil || tm.TotalNs < 327e3 || tm.TotalNs > 450e3 {
		t.Errorf("1 MiB: %d µs by the model, %v", tm.TotalNs/1000, err)
	}
}

// TestRealClockIsNeverEarly: on the real clock a reply takes at least its modelled time.
func TestRealClockIsNeverEarly(t *testing.T) {
	p := roundProfile()
	p.Engine.ScanBytesPerS = 2e9 // 4 MiB of codes: 2.1 ms
	s, w := scoredDrive(t, p, KeysDDR, clock.Real())
	c := dial(t, serve(t, s.d), ClientOptions{Owner: [16]byte{1}, Lease: Keep})
	c.shapes[1] = w.shape
	began := time.Now()
	tm, err := c.Score(context.Background(), 1, 0, w.query(256), func(*Block) error { return nil })
	took := time.Since(began)
	if err != nil || tm.TotalNs < 2.0e6 || tm.MeasuredNs < tm.TotalNs-100e3 || took < time.Duration(tm.TotalNs)-100*time.Microsecond {
		t.Errorf("modelled %v, measured %v at the drive and %v at the client: %v", time.Duration(tm.TotalNs), time.Duration(tm.MeasuredNs), took, err)
	}
}

// TestDRAMIsHard: codes beyond the DRAM's size are read from flash, with the same scores; rewinds give the memory back.
func TestDRAMIsHard(t *testing.T) {
	p := roundProfile()
	p.DRAM.Bytes = 100 << 10
	s, w := scoredDrive(t, p, KeysDDR, nil)
	st := s.d.Stats()
	if st.DRAMUsedBytes > 100<<10 || st.DRAMUsedBytes < 80<<10 {
		t.Errorf("%d of %d bytes of DRAM in use", st.DRAMUsedBytes, 100<<10)
	}
	q, n := w.query(64), 0
	tm, err := s.Score(context.Background(), 1, 0, q, func(b *Block, _ time.Duration) error {
		for i, p := range b.Positions {
			if b.Scores[i] != w.score(q, 0, int(p)) {
				t.Fatalf("position %d", p)
			}
			n++
		}
		return nil
	})
	if err != nil || n != 4096 || tm.NANDBytes == 0 {
		t.Errorf("%d tokens, %+v, %v", n, tm, err)
	}
	if err := s.Drop(1, 2); err != nil || s.d.Stats().DRAMUsedBytes != uint64(2*w.shape.CodeBytes()) {
		t.Errorf("after a rewind to 2 groups %d bytes: %v", s.d.Stats().DRAMUsedBytes, err)
	}
}

// TestLease: what an owner stored goes when it was away for its lease, not before; without a lease it stays. Time is the test's.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem(64 << 20)
		open := func() *Drive { return openDrive(t, "drive", func(o *Options) { o.FS = disk }) }
		d := open()
		w := newCache(smallShape(CodesInt8, true), 1)
		stored := func(after time.Duration) int {
			time.Sleep(after)
			synctest.Wait()
			return d.store.Usage().Sequences
		}
		const lease = 50 * time.Millisecond
		var present *Session
		for owner, lease := range map[byte]time.Duration{1: lease, 2: 0, 3: 2 * time.Hour} {
			s := d.Connect([16]byte{owner}, lease)
			if err := s.OpenSequence(4, w.shape); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write(t.Context(), 4, []Group{w.group(0, 0)}); err != nil {
				t.Fatal(err)
			}
			if owner != 1 {
				s.Disconnect()
				continue
			}
			here := d.store.Usage().Sequences
			if stored(10*lease) != here {
				t.Error("a present owner's sequence has gone")
			}
			present = s
		}
		present.Disconnect()
		if n := stored(lease - 1); n != 3 {
			t.Errorf("%d sequences before the lease is over", n)
		}
		if n := stored(1); n != 2 {
			t.Errorf("%d sequences after the lease is over", n)
		}
		if n := stored(2 * time.Hour); n != 1 {
			t.Errorf("%d sequences two hours later", n)
		}
		s := d.Connect([16]byte{5}, lease)
		if err := s.OpenSequence(4, w.shape); err != nil {
			t.Fatal(err)
		}
		d.Close() // with a session open, as when it is killed
		d = open()
		if a, b := stored(lease-1), stored(1); a != 2 || b != 1 {
			t.Errorf("after a restart: %d sequences before the lease is over, %d after", a, b)
		}
	})
}

func TestProfiles(t *testing.T) {
	for _, name := range profiles.Names() {
		p, err := profiles.Load(name)
		if err != nil || p.Name != name {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	p, _ := profiles.Load("smartssd")
	if p.Link.ToHostBytesPerS != 3.2e9 || p.DRAM.Bytes != 4e9 || p.NANDBytesPerS() != 3.2e9 {
		t.Errorf("smartssd does not have the paper's figures: %+v", p)
	}
	text, err := os.ReadFile("profiles/smartssd.toml")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"unknown key":   {"[dram]", "[dram]\nspeed = 3"},
		"missing key":   {"latency_us", "# latency_us"},
		"negative rate": {"bytes_per_s = 1.92e10", "bytes_per_s = -1.0"},
		"not a number":  {"bytes_per_s = 1.92e10", "bytes_per_s = nan"},
		"no channels":   {"channels = 8", "channels = 0"},
		"odd pages":     {"page_bytes = 4096", "page_bytes = 4000"},
		"no toml":       {"[nand]", "[nand"},
	} {
		path := filepath.Join(t.TempDir(), "p.toml")
		bad := strings.Replace(string(text), change[0], change[1], 1)
		if bad == string(text) {
			t.Fatalf("%s: nothing was changed", name)
		}
		os.WriteFile(path, []byte(bad), 0o600)
		if _, err := profiles.Load(path); !errors.Is(err, ErrProfile) || strings.Contains(err.Error(), "\n\n") {
			t.Errorf("%s: %v", name, err)
		} else {
			t.Log(err)
		}
	}
	for _, name := range []string{"", "none", "no/such/file.toml"} {
		if _, err := profiles.Load(name); !errors.Is(err, ErrProfile) {
			t.Errorf("profile %q: %v", name, err)
		}
	}
}

// spread is n pages, striped over the channels, then their dies.
func (m *model) spread(n int) (pages []uint32) {
	lanes := m.p.NAND.Channels * m.p.NAND.Dies
	for i := range n {
		pages = append(pages, uint32(i%lanes*m.p.NAND.BlockPages+i/lanes))
	}
	return pages
}
