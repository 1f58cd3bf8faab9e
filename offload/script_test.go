package offload

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"terrace/csdshim"
	"terrace/internal/vfs"
)

// TestScripts runs the scripts in testdata: queue* on a store whose calls end when the script says so, ssd* on the SSD store, csd* and
// attend* on drives in this process whose calls fail when the script says so. All print what the tier was asked to do. go test ./offload -run TestScripts -rewrite writes the answers.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		switch name := filepath.Base(path); {
		case strings.HasPrefix(name, "ssd"):
			s := &ssdScript{}
			datadriven.RunTest(t, path, s.run)
			s.close(t)
			return
		case strings.HasPrefix(name, "csd"):
			s := &csdScript{t: t}
			datadriven.RunTest(t, path, s.run)
			return
		case strings.HasPrefix(name, "attend"):
			s := &attendScript{t: t}
			datadriven.RunTest(t, path, s.run)
			return
		}
		synctest.Test(t, func(t *testing.T) { // time is the script's
			s := &queueScript{tickets: map[string]*Ticket{}, steps: make(chan error)}
			datadriven.RunTest(t, path, s.run)
		})
	})
}

// journal is what a script's stores write down.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) print(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(&j.text, format+"\n", args...)
}

// take is what was written down since the last time.
func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.text.Reset()
	return j.text.String()
}

// outcome is an error in one line.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}

// numbers are the values of an argument: 3, or (0,2,5-7).
func numbers(t *testing.T, d *datadriven.TestData, key string) (list []int32) {
	for _, a := range d.CmdArgs {
		if a.Key != key {
			continue
		}
		for _, v := range a.Vals {
			from, to, span := v, "", false
			if !strings.HasPrefix(v, "-") {
				from, to, span = strings.Cut(v, "-")
			}
			a, err := strconv.Atoi(from)
			b := a
			if err == nil && span {
				b, err = strconv.Atoi(to)
			}
			if err != nil {
				d.Fatalf(t, "%s: %v", key, err)
			}
			for n := a; n <= b; n++ {
				list = append(list, int32(n))
			}
		}
	}
	return list
}

// number is one value, or another where there is none.
func number(t *testing.T, d *datadriven.TestData, key string, otherwise int) int {
	if list := numbers(t, d, key); len(list) > 0 {
		return int(list[0])
	}
	return otherwise
}

func word(d *datadriven.TestData, key string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return strings.Join(a.Vals, " ")
		}
	}
	return ""
}

// asked are the records of a command: seq, layer, groups.
func asked(t *testing.T, d *datadriven.TestData, version uint64) (recs []Record) {
	for _, g := range numbers(t, d, "groups") {
		r := record(testShape(), uint64(number(t, d, "seq", 1)), int32(number(t, d, "layer", 0)), g)
		if version > 0 {
			fill(r, version)
		}
		recs = append(recs, r)
	}
	return recs
}

// queueScript is a queue over a drive in memory. Each command prints what happened until nothing moves any more: the drive's
// calls in their order, and then what those who wait were told.
type queueScript struct {
	journal
	told journal
	*Memory
	q       *Queue
	tickets map[string]*Ticket
	steps   chan error // how the next call of the store ends
}

func (s *queueScript) call(what string, do func() error) error {
	s.print("  > %s", what)
	err := <-s.steps
	if err == nil {
		err = do()
	}
	s.print("  < %s: %s", what, outcome(err))
	return err
}

func naming(verb string, recs []Record) string {
	groups, n := make([]string, len(recs)), 0
	for i, r := range recs {
		groups[i], n = strconv.Itoa(int(r.Key.Group)), n+len(r.Data)
	}
	if len(groups) > 3 {
		groups = []string{groups[0], "to", groups[len(groups)-1]}
	}
	return fmt.Sprintf("%s layer %d group %s, %d bytes", verb, recs[0].Key.Layer, strings.Join(groups, " "), n)
}

func (s *queueScript) Read(ctx context.Context, recs []Record) error {
	return s.call(naming("read", recs), func() error { return s.Memory.Read(ctx, recs) })
}

func (s *queueScript) Write(ctx context.Context, recs []Record) error {
	return s.call(naming("write", recs), func() error { return s.Memory.Write(ctx, recs) })
}

func (s *queueScript) Gather(_ context.Context, _ uint64, layer int, tokens []int32, dst []byte) (csdshim.Timing, error) {
	return csdshim.Timing{}, s.call(fmt.Sprintf("gather layer %d tokens %v, %d bytes", layer, tokens, len(dst)), func() error { return nil })
}

func (s *queueScript) Scores() csdshim.Codes                                   { return csdshim.CodesNone }
func (s *queueScript) SetScales(context.Context, uint64, int, []float32) error { return nil }
func (s *queueScript) Place(context.Context, uint64, []int32, bool) error      { return nil }
func (s *queueScript) Score(context.Context, uint64, int, *csdshim.Query, func(*csdshim.Block) error) (csdshim.Timing, error) {
	return csdshim.Timing{}, nil
}

var fates = map[string]error{"": nil, "EIO": syscall.EIO, "corrupt": ErrCorrupt, "missing": ErrMissing, "full": ErrFull, "lost": csdshim.ErrLost, "timeout": csdshim.ErrTimeout}

func (s *queueScript) run(t *testing.T, d *datadriven.TestData) string {
	name := ""
	if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 {
		name = d.CmdArgs[0].Key
	}
	p := map[string]Priority{"": Demand, "demand": Demand, "prefetch": Prefetch, "write-back": WriteBack}[word(d, "priority")]
	switch d.Cmd {
	case "queue":
		var err error
		if s.Memory, err = NewMemory("drive", testShape(), int64(number(t, d, "capacity", 0))); err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.q = NewQueue(s, QueueOptions{Depth: number(t, d, "depth", 1), MaxWaiting: number(t, d, "waiting", 0)})
	case "write":
		s.tickets[name] = s.q.Write(p, asked(t, d, 1))
	case "read":
		s.tickets[name] = s.q.Read(p, asked(t, d, 0))
	case "gather":
		tokens := numbers(t, d, "tokens")
		s.tickets[name] = s.q.Gather(p, 1, number(t, d, "layer", 0), tokens, make([]byte, (len(tokens)+15)/16*testShape().RecordBytes(0)))
	case "wait":
		patience := time.Hour
		if text := word(d, "for"); text != "" {
			var err error
			if patience, err = time.ParseDuration(text); err != nil {
				d.Fatalf(t, "%v", err)
			}
		}
		go func(ticket *Ticket) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			s.told.print("%s: %s", name, outcome(ticket.Wait(ctx)))
		}(s.tickets[name])
	case "cancel":
		s.tickets[name].Cancel()
	case "step": // lets the calls under way end, one after another
		fate, ok := fates[word(d, "fail")]
		if !ok {
			d.Fatalf(t, "fate %q", word(d, "fail"))
		}
		for range number(t, d, "calls", 1) {
			s.steps <- fate
			synctest.Wait()
		}
	case "sleep":
		pause, err := time.ParseDuration(name)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		time.Sleep(pause)
	case "drop":
		s.print("%s", outcome(s.q.Drop(uint64(number(t, d, "seq", 1)))))
	case "close":
		go func() { s.told.print("closed: %s", outcome(s.q.Close())) }()
	case "stats":
		st := s.q.Stats()
		s.print("reads %d of %d bytes, writes %d of %d bytes, %d begun again, %d waits of %v, %d at most under way",
			st.Transfers[0], st.Bytes[0], st.Transfers[1], st.Bytes[1], st.Retries, st.Waits, st.Stall, st.MaxDepth)
	default:
		d.Fatalf(t, "no command %q", d.Cmd)
	}
	synctest.Wait()
	return s.take() + s.told.take()
}

// ssdScript is an SSD store in memory, one operation at a time, whose file's operations are printed.
type ssdScript struct {
	journal
	s      *SSD
	q      *Queue
	faults *vfs.Faults
	stored map[Key]uint64 // versions
	writes uint64
}

func (s *ssdScript) close(t *testing.T) {
	t.Helper()
	if s.s == nil {
		return
	}
	if err := s.q.Close(); err != nil {
		t.Error(err)
	}
	if err := s.s.Close(); err != nil {
		t.Error(err)
	}
	s.s = nil
}

func (s *ssdScript) run(t *testing.T, d *datadriven.TestData) string {
	ctx := context.Background()
	switch d.Cmd {
	case "open":
		s.close(t)
		s.take()
		s.stored = map[Key]uint64{}
		s.faults = &vfs.Faults{Seed: 1, Log: func(line string) { s.print("  %s", strings.Replace(line, "d/terrace.", "", 1)) }}
		var err error
		s.s, err = OpenSSD(testShape(), SSDOptions{Dir: "d", FS: &vfs.Faulty{FS: vfs.NewMem(64 << 20), Faults: s.faults}, CapacityBytes: int64(number(t, d, "capacity", 4<<20)),
			Depth: 1, MaxIOBytes: number(t, d, "io", 0), MergeGapBytes: number(t, d, "gap", 0), TokenRows: slices.ContainsFunc(d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == "rows" })})
		if err != nil {
			return s.take() + outcome(err)
		}
		s.q = NewQueue(s.s, QueueOptions{})
	case "write":
		s.writes++
		recs := asked(t, d, s.writes)
		err := s.q.Write(WriteBack, recs).Wait(ctx)
		for _, r := range recs {
			if err == nil {
				s.stored[r.Key] = s.writes
			}
		}
		s.print("%s", outcome(err))
	case "read":
		recs := asked(t, d, 0)
		part := Part{}
		if heads := numbers(t, d, "heads"); len(heads) > 0 {
			part = Part{First: heads[0], N: int32(len(heads))}
		}
		for i := range recs {
			recs[i].Part = part
			from, size := testShape().span(0, part)
			recs[i].Data = recs[i].Data[from : from+size]
		}
		err := s.q.Read(Demand, recs).Wait(ctx)
		for _, r := range recs {
			from, size := testShape().span(0, part)
			if err == nil && !bytes.Equal(r.Data, s.record(r.Key)[from:from+size]) {
				d.Fatalf(t, "%v: other bytes than were written", r.Key)
			}
		}
		s.print("%s", outcome(err))
	case "gather":
		tokens, layer := numbers(t, d, "tokens"), number(t, d, "layer", 0)
		dst := make([]byte, (len(tokens)+15)/16*testShape().RecordBytes(0))
		err := s.q.Gather(Prefetch, 1, layer, tokens, dst).Wait(ctx)
		if err == nil {
			s.checkTokens(t, d, layer, tokens, dst)
		}
		s.print("%s", outcome(err))
	case "drop":
		if err := s.q.Drop(uint64(number(t, d, "seq", 1))); err != nil {
			d.Fatalf(t, "%v", err)
		}
	case "fault": // strikes the nth operation from now on, and those that follow
		ops, _ := s.faults.Ops()
		s.faults.Nth, s.faults.Times = ops+int64(number(t, d, "nth", 1)), int64(number(t, d, "times", 1))
		s.faults.Kind = map[string]vfs.FaultKind{"EIO": vfs.EIO, "ENOSPC": vfs.ENOSPC, "short": vfs.Short, "flip": vfs.Flip, "misplace": vfs.Misplace, "lose": vfs.Lose}[word(d, "kind")]
	case "stats":
		st, q := s.s.Stats(), s.q.Stats()
		s.print("asked %d, read %d bytes in %d; asked %d, written %d bytes in %d; %d used, %d corrupt, %d begun again",
			st.ReadBytes, st.DeviceReadBytes, st.Reads, st.WrittenBytes, st.DeviceWriteBytes, st.Writes, st.UsedBytes, st.Corrupt, q.Retries)
	default:
		d.Fatalf(t, "no command %q", d.Cmd)
	}
	return s.take()
}

// record is what was written last under a key.
func (s *ssdScript) record(k Key) []byte {
	return fill(record(testShape(), k.Seq, k.Layer, k.Group), s.stored[k]).Data
}

// checkTokens compares gathered tokens with the records they are from.
func (s *ssdScript) checkTokens(t *testing.T, d *datadriven.TestData, layer int, tokens []int32, dst []byte) {
	shape := testShape()
	for i, token := range tokens {
		whole := s.record(Key{1, int32(layer), token / 16})
		for h := range shape.KVHeads(0) {
			want, got := whole[h*shape.HeadBytes(0):][:shape.HeadBytes(0)], dst[i/16*shape.RecordBytes(0)+h*shape.HeadBytes(0):][:shape.HeadBytes(0)]
			if !bytes.Equal(shape.PageOf(0).KRow(got, i%16), shape.PageOf(0).KRow(want, int(token)%16)) || !bytes.Equal(shape.PageOf(0).VRow(got, i%16), shape.PageOf(0).VRow(want, int(token)%16)) {
				d.Fatalf(t, "token %d of layer %d, head %d: other bytes than were written", token, layer, h)
			}
		}
	}
}
