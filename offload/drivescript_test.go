package offload

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"terrace/csdshim"
	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/internal/trace"
	"terrace/policy"
)

// given reports whether a command has an argument, with or without a value.
func given(d *datadriven.TestData, key string) bool {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return true
		}
	}
	return false
}

// fated sets what becomes of the next calls of a drive.
func (d *fakeDrive) fated(t *testing.T, c *datadriven.TestData) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fates, d.broken = nil, given(c, "broken")
	d.down = number(t, c, "down", 0)
	for _, a := range c.CmdArgs {
		if a.Key != "next" {
			continue
		}
		for _, v := range a.Vals {
			fate, ok := fakeFates[v]
			if !ok {
				c.Fatalf(t, "fate %q", v)
			}
			d.fates = append(d.fates, fate)
		}
	}
}

// csdScript is a store on a fakeDrive, and a queue on it.
type csdScript struct {
	t     *testing.T
	d     *fakeDrive
	c     *CSD
	q     *Queue
	clock *clock.Jumping
}

func (s *csdScript) open(d *datadriven.TestData) error {
	s.clock = clock.NewJumping()
	s.d = newFakeDrive(csdshim.Identity{Profile: "fake", CanScore: !given(d, "dumb"), CapacityBytes: 1 << 20})
	if given(d, "paced") {
		s.d.id.Clock, s.d.id.LinkBytesPerS = "real", 1e9
	}
	s.d.down = number(s.t, d, "down", 0)
	shape := csdShape()
	shape.GroupTokens = number(s.t, d, "group", 16)
	if given(d, "latent") {
		for i := range shape.Layers {
			shape.Layers[i].KV.ValueInKey = true
		}
	}
	c, err := OpenCSD(s.t.Context(), "s", shape, CSDOptions{Codes: csdshim.CodesInt8, Clock: s.clock, Dial: s.d.dial})
	if err != nil {
		return err
	}
	s.c, s.q = c, NewQueue(c, QueueOptions{Clock: s.clock, Depth: 1})
	return nil
}

// records are those that a command names.
func (s *csdScript) records(d *datadriven.TestData, heads int32) (recs []Record) {
	for _, seq := range append(numbers(s.t, d, "seq"), 1)[:max(1, len(numbers(s.t, d, "seq")))] {
		for _, g := range numbers(s.t, d, "groups") {
			r := csdRecord(csdShape(), uint64(seq), int32(number(s.t, d, "layer", 0)), g)
			if heads > 0 {
				r.Part, r.Data = Part{First: 1, N: heads}, r.Data[csdShape().HeadBytes(0):][:int(heads)*csdShape().HeadBytes(0)]
			}
			recs = append(recs, r)
		}
	}
	return recs
}

func (s *csdScript) run(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	var said strings.Builder
	before := s.clock
	began := int64(0)
	if before != nil {
		began = int64(before.Now())
	}
	err := s.do(d, &said)
	out := s.d.take() + said.String()
	if s.clock == before && before != nil && int64(before.Now()) != began {
		out += fmt.Sprintf("  after %d ms\n", (int64(before.Now())-began)/1e6)
	}
	return out + outcome(err) + "\n"
}

func (s *csdScript) do(d *datadriven.TestData, said *strings.Builder) error {
	ctx, seq, layer := s.t.Context(), uint64(number(s.t, d, "seq", 1)), number(s.t, d, "layer", 0)
	switch d.Cmd {
	case "open":
		return s.open(d)
	case "drive":
		s.d.fated(s.t, d)
	case "kill":
		s.d.kill(given(d, "restart"))
	case "write":
		if given(d, "queued") {
			return s.q.Write(WriteBack, s.records(d, 0)).Wait(ctx)
		}
		return s.c.Write(ctx, s.records(d, 0))
	case "read":
		return s.read(ctx, d)
	case "gather":
		dst := make([]byte, csdShape().RecordBytes(0))
		err := s.q.Gather(Prefetch, seq, layer, numbers(s.t, d, "tokens"), dst).Wait(ctx)
		fmt.Fprintf(said, "byte %d, gathers %v\n", dst[0], s.q.Gathers())
		return err
	case "place":
		return s.c.Place(ctx, seq, numbers(s.t, d, "tokens"), given(d, "hot"))
	case "scales":
		return s.c.SetScales(ctx, seq, layer, []float32{1, 1})
	case "score":
		_, err := s.c.Score(ctx, seq, layer, &csdshim.Query{}, func(b *csdshim.Block) error {
			fmt.Fprintf(said, "%v %v\n", b.Positions, b.Scores)
			if given(d, "enough") {
				return ErrCancelled
			}
			return nil
		})
		return err
	case "many":
		s.many(ctx, d, said)
	case "drop":
		return s.c.Drop(seq)
	case "trip":
		_, err := s.c.RoundTrip(ctx)
		return err
	case "reset":
		s.c.ResetPeak()
		s.c.Trim()
	case "stats":
		st := s.c.Stats()
		fmt.Fprintf(said, "%d used, %d at most, of %d; %d writes of %d bytes, %d reads of %d for %d asked, %d corrupt, %d begun again, %d in host memory, %v scores, paced %v\n",
			st.UsedBytes, st.PeakBytes, st.CapacityBytes, st.Writes, st.WrittenBytes, st.Reads, st.DeviceReadBytes, st.ReadBytes, st.Corrupt, st.Retries, st.HostBytes, s.c.Scores(), st.Paced)
	case "close":
		return s.c.Close()
	default:
		d.Fatalf(s.t, "no command %q", d.Cmd)
	}
	return nil
}

// read compares what is read with what was written.
func (s *csdScript) read(ctx context.Context, d *datadriven.TestData) error {
	heads := int32(number(s.t, d, "heads", 0))
	want, recs := s.records(d, heads), s.records(d, heads)
	for i := range recs {
		recs[i].Data = make([]byte, len(want[i].Data))
	}
	var err error
	if given(d, "queued") {
		err = s.q.Read(Demand, recs).Wait(ctx)
	} else {
		err = s.c.Read(ctx, recs)
	}
	for i := range recs {
		if err == nil && !bytes.Equal(recs[i].Data, want[i].Data) {
			d.Fatalf(s.t, "%v: other bytes than were written", recs[i].Key)
		}
	}
	return err
}

// many asks one question a sequence, in one message.
func (s *csdScript) many(ctx context.Context, d *datadriven.TestData, said *strings.Builder) {
	var list []csdshim.Question
	for _, seq := range numbers(s.t, d, "seqs") {
		var got []int32
		list = append(list, csdshim.Question{Seq: uint64(seq), Layer: number(s.t, d, "layer", 0), Query: &csdshim.Query{},
			Each: func(b *csdshim.Block) error { got = append(got, b.Positions...); return nil },
			Done: func(_ csdshim.Timing, err error) { fmt.Fprintf(said, "%d: %v %s\n", seq, got, outcome(err)) }})
	}
	s.c.ScoreMany(ctx, list)
}

// attendScript is sequences sharded over drives that attend.
type attendScript struct {
	t      *testing.T
	drives []*fakeDrive
	d      *Drives
	shape  AttendShape

	rec      *trace.Recorder
	timeline bytes.Buffer
}

func (s *attendScript) run(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	var said strings.Builder
	err := s.do(d, &said)
	var out strings.Builder
	for i, drive := range s.drives {
		if text := drive.take(); text != "" {
			fmt.Fprintf(&out, "drive %d\n%s", i, text)
		}
	}
	return out.String() + said.String() + outcome(err) + "\n"
}

func (s *attendScript) open(d *datadriven.TestData) (err error) {
	s.drives = nil
	byName := map[string]*fakeDrive{}
	var sockets []string
	for i := range number(s.t, d, "drives", 2) {
		drive := newFakeDrive(csdshim.Identity{Profile: "fake", CanAttend: i != number(s.t, d, "dumb", -1), PageBytes: 4096})
		s.drives = append(s.drives, drive)
		sockets = append(sockets, fmt.Sprint("s", i))
		byName[sockets[i]] = drive
	}
	heads := number(s.t, d, "heads", 3)
	s.shape = AttendShape{Layers: 2, Heads: 2 * heads, KVHeads: heads, KeyDim: 8, ValueDim: 4, Elem: kvpage.F16}
	s.d, err = OpenDrives(s.t.Context(), sockets, s.shape, DrivesOptions{Clock: clock.NewJumping(), Trace: s.rec, Dial: func(ctx context.Context, socket string, o csdshim.ClientOptions) (Link, error) {
		return byName[socket].dial(ctx, socket, o)
	}})
	return err
}

// rows are tokens' values or keys of all heads: the byte 10·token + head, all over.
func (s *attendScript) rows(first, tokens, dim int) (b []byte) {
	for i := range tokens {
		for h := range s.shape.KVHeads {
			b = append(b, bytes.Repeat([]byte{byte(10*(first+i) + h)}, 2*dim)...)
		}
	}
	return b
}

func (s *attendScript) do(d *datadriven.TestData, said *strings.Builder) error {
	ctx, seq, layer, at := s.t.Context(), uint64(number(s.t, d, "seq", 1)), number(s.t, d, "layer", 0), number(s.t, d, "at", 0)
	switch d.Cmd {
	case "drives":
		return s.open(d)
	case "drive":
		s.drives[number(s.t, d, "number", 0)].fated(s.t, d)
	case "kill":
		s.drives[number(s.t, d, "number", 0)].kill(true)
	case "open":
		err := s.d.Open(ctx, seq, Groups{Columns: given(d, "columns"), Dims: number(s.t, d, "m", 0), Tokens: number(s.t, d, "n", 0), Expected: number(s.t, d, "expected", 0)})
		for _, drive := range s.drives {
			shape, _ := drive.shapes[seq].(csdshim.AttendShape)
			fmt.Fprintf(said, "%d heads, m=%d n=%d%s\n", shape.Heads, shape.EmbeddingGroup, shape.TokenGroup, map[bool]string{true: ", keys and values on one page"}[shape.Paired])
		}
		return err
	case "append":
		n := number(s.t, d, "tokens", 1)
		return s.d.Append(ctx, seq, layer, at, n, s.rows(at, n, s.shape.KeyDim), s.rows(at, n, s.shape.ValueDim))
	case "attend":
		step := &AttendStep{Seq: seq, Layer: layer, At: at, Keys: s.rows(at, 1, s.shape.KeyDim), Values: s.rows(at, 1, s.shape.ValueDim), Q: make([]float32, s.shape.Heads*s.shape.KeyDim),
			Out: make([]float32, s.shape.Heads*s.shape.ValueDim), SparF: policy.SparF{}}
		for h := range s.shape.Heads {
			step.Q[h*s.shape.KeyDim] = float32(h) / 10
		}
		err := s.d.Attend(ctx, step).Wait()
		for h := range s.shape.Heads {
			fmt.Fprintf(said, "%.1f ", step.Out[h*s.shape.ValueDim+s.shape.ValueDim-1])
		}
		said.WriteString("\n")
		return err
	case "drop":
		return s.d.Drop(seq)
	case "reset":
		s.d.ResetPeak()
	case "use":
		for _, u := range s.d.Use() {
			fmt.Fprintf(said, "%s: %d heads, %d bytes down, %d up, %d held, %d at most, %d tokens attended, %d pages programmed, link %d ns, engine %d ns\n",
				u.Socket, u.KVHeads, u.ToDriveBytes, u.ToHostBytes, u.HeldBytes, u.PeakBytes, u.Work.TokensAttended, u.Work.PagesProgrammed, u.LinkNs, u.EngineNs)
		}
	case "trace":
		s.rec = trace.New(&s.timeline, clock.NewJumping().Now)
		return s.open(d)
	case "lines": // of the timeline, as they are named there
		if err := s.rec.Close(); err != nil {
			return err
		}
		for _, unit := range []string{"drive 0 link 0", "drive 1 link 0", "drive 1 " + csdshim.UnitNAND.String() + " 0", "drive 2 link 0"} {
			fmt.Fprintf(said, "%s: %v\n", unit, strings.Contains(s.timeline.String(), unit+" (modelled)"))
		}
		s.rec = nil
	case "close":
		return s.d.Close()
	default:
		d.Fatalf(s.t, "no command %q", d.Cmd)
	}
	return nil
}
