package csdshim

import (
	"context"
	"path/filepath"
	"testing"

	"terrace/internal/cputime"
	"terrace/internal/kvpage"
)

// benchDrive is a drive that holds tokens of one layer of SmolLM2-135M's shape (3 KV heads of 64) or of 8 heads of 128, and
// a client on a socket.
func benchDrive(b *testing.B, heads, dim, tokens int, major bool) (*Client, *cache) {
	b.Helper()
	d := openDrive(b, b.TempDir(), func(o *Options) { o.CapacityBytes = 1 << 30 })
	c := dial(b, serve(b, d), ClientOptions{})
	w := newCache(Shape{Layers: 1, KVHeads: heads, Codes: CodesInt8, Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: dim, ValueDim: dim, Tokens: 16, TokenMajor: major}}, 1)
	if err := c.OpenSequence(context.Background(), 1, w.shape); err != nil {
		b.Fatal(err)
	}
	var batch []Group
	for g := range tokens / GroupTokens {
		batch = append(batch, w.group(0, g))
	}
	if _, err := c.WriteGroups(context.Background(), 1, batch); err != nil {
		b.Fatal(err)
	}
	w.tell(b, func(layer int, scales []float32) error {
		_, err := c.SetScales(context.Background(), 1, layer, scales)
		return err
	})
	return c, w
}

// BenchmarkScore scores 8,000 tokens over the socket; bytes are those of the key codes.
func BenchmarkScore(b *testing.B) {
	for _, s := range []struct {
		name       string
		heads, dim int
	}{{"smollm2", 3, 64}, {"8x128", 8, 128}} {
		b.Run(s.name, func(b *testing.B) {
			c, w := benchDrive(b, s.heads, s.dim, 8000, true)
			q := w.query(256)
			b.SetBytes(int64(8000 * w.shape.Width()))
			for b.Loop() {
				n := 0
				if _, err := c.Score(context.Background(), 1, 0, q, func(x *Block) error { n += len(x.Positions); return nil }); err != nil || n != 8000 {
					b.Fatal(n, err)
				}
			}
		})
	}
}

// BenchmarkFetch reads 8,000 tokens' records over the socket.
func BenchmarkFetch(b *testing.B) {
	for _, major := range []bool{true, false} {
		b.Run(map[bool]string{true: "token-major", false: "tiles"}[major], func(b *testing.B) {
			c, w := benchDrive(b, 3, 64, 8000, major)
			room := make([]byte, 500*w.shape.RecordBytes())
			groups := make([]Group, 500)
			for i := range groups {
				groups[i] = Group{Index: i, Data: room[i*w.shape.RecordBytes() : (i+1)*w.shape.RecordBytes()]}
			}
			b.SetBytes(int64(len(room)))
			for b.Loop() {
				if _, err := c.Fetch(context.Background(), 1, groups); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkGather gets every tenth of 8,000 tokens.
func BenchmarkGather(b *testing.B) {
	c, w := benchDrive(b, 3, 64, 8000, true)
	var positions []int32
	for p := int32(3); p < 8000; p += 10 {
		positions = append(positions, p)
	}
	dst := make([]byte, gatherBytes(w.shape, len(positions)))
	b.SetBytes(int64(len(positions) * w.shape.TokenBytes()))
	for b.Loop() {
		if _, err := c.Gather(context.Background(), 1, 0, positions, dst); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDrive is the drive's own part, without a socket: reading 8,000 tokens' records in 1 MiB questions, every tenth of the
// tokens, and 40 of them.
func BenchmarkDrive(b *testing.B) {
	d := openDrive(b, b.TempDir(), func(o *Options) { o.CapacityBytes = 1 << 30 })
	s := d.Connect([16]byte{1}, 0)
	w := newCache(Shape{Layers: 1, KVHeads: 3, Codes: CodesInt8, Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 64, ValueDim: 64, Tokens: 16, TokenMajor: true}}, 1)
	if err := s.OpenSequence(1, w.shape); err != nil {
		b.Fatal(err)
	}
	var batch []Group
	for g := range 500 {
		batch = append(batch, w.group(0, g))
	}
	if _, err := s.Write(context.Background(), 1, batch); err != nil {
		b.Fatal(err)
	}
	b.Run("fetch", func(b *testing.B) {
		room := make([]byte, 500*w.shape.RecordBytes())
		groups := make([]Group, 500)
		for i := range groups {
			groups[i] = Group{Index: i, Data: room[i*w.shape.RecordBytes() : (i+1)*w.shape.RecordBytes()]}
		}
		b.SetBytes(int64(len(room)))
		defer processorTime(b)()
		for b.Loop() {
			for _, part := range cut(groups, 85) {
				if _, err := s.Read(context.Background(), 1, part); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	for _, every := range []int32{10, 200} {
		b.Run(map[int32]string{10: "gather-800", 200: "gather-40"}[every], func(b *testing.B) {
			var positions []int32
			for p := int32(3); p < 8000; p += every {
				positions = append(positions, p)
			}
			dst := make([]byte, gatherBytes(w.shape, len(positions)))
			b.SetBytes(int64(len(positions) * w.shape.TokenBytes()))
			defer processorTime(b)()
			for b.Loop() {
				if _, err := s.Gather(context.Background(), 1, 0, positions, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStream reads as policy full streams, layer after layer, more than processors cache: the drive's own part, and what a client gets
// of a drive in a process of its own, which is kept on core 1.
func BenchmarkStream(b *testing.B) {
	for _, s := range []struct {
		name               string
		layers, heads, dim int
	}{{"3x64", 32, 3, 64}, {"8x128", 6, 8, 128}, {"32x128", 2, 32, 128}} {
		shape := Shape{Layers: s.layers, KVHeads: s.heads, Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: s.dim, ValueDim: s.dim, Tokens: 16}}
		b.Run(s.name+"/drive", func(b *testing.B) {
			one := openDrive(b, b.TempDir(), func(o *Options) { o.CapacityBytes = 1 << 30 }).Connect([16]byte{1}, 0)
			if err := one.OpenSequence(1, shape); err != nil {
				b.Fatal(err)
			}
			benchStream(b, shape, 256<<10, one.Write, one.Read)
		})
		b.Run(s.name+"/process", func(b *testing.B) {
			dir := b.TempDir()
			c := startProcess(b, dir, filepath.Join(dir, "s"), "", "1").connect(b, [16]byte{1})
			defer c.Close()
			if err := c.OpenSequence(b.Context(), 1, shape); err != nil {
				b.Fatal(err)
			}
			benchStream(b, shape, 4<<20, c.WriteGroups, c.Fetch)
		})
	}
}

type exchange = func(context.Context, uint64, []Group) (Timing, error)

// benchStream writes 8,000 tokens of each layer and reads them, so many bytes a call.
func benchStream(b *testing.B, shape Shape, bytes int, write, read exchange) {
	record, list := shape.RecordBytes(), make([]Group, 500)
	room := make([]byte, len(list)*record)
	for i := range room {
		room[i] = byte(i * 7)
	}
	each := func(use exchange) {
		for l := range shape.Layers {
			for g := range list {
				list[g] = Group{Layer: l, Index: g, Data: room[g*record:][:record]}
			}
			for _, part := range cut(list, bytes/record) {
				if _, err := use(b.Context(), 1, part); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	each(write)
	b.SetBytes(int64(shape.Layers * len(room)))
	defer processorTime(b)()
	for b.Loop() {
		each(read)
	}
}

// processorTime reports what the process's threads computed since a mark.
func processorTime(b *testing.B) (report func()) {
	from := cputime.Used()
	return func() { b.ReportMetric(float64(cputime.Used()-from)/float64(b.N), "cpu-ns/op") }
}
