package kvpage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"
)

func encodedPage() (Header, []byte, []byte) {
	l := Layout{F16, I8, 16, 32, 16, false}
	h := Header{Layout: l, Layer: 3, Head: 1, First: 1 << 33, N: 9}
	for i := range h.Fingerprint {
		h.Fingerprint[i] = byte(i * 7)
	}
	page := make([]byte, l.PageBytes())
	rnd := rand.New(rand.NewPCG(1, 9))
	for i := range page {
		page[i] = byte(rnd.Uint32())
	}
	return h, page, Encode([]byte("before"), h, page)[len("before"):]
}

func TestEncodeReadsBack(t *testing.T) {
	h, page, data := encodedPage()
	got, bytesOf, err := Decode(data)
	if err != nil || got != h || !bytes.Equal(bytesOf, page) {
		t.Fatalf("Decode: %v %v, want %v", got, err, h)
	}
	if p, err := Verify(data, h); err != nil || !bytes.Equal(p, page) {
		t.Fatalf("Verify: %v", err)
	}
	h.Layout.TokenMajor = true
	if got, _, err := Decode(Encode(nil, h, page)); err != nil || got != h {
		t.Fatalf("Decode with keys by token: %v %v, want %v", got, err, h)
	}
	if _, err := Verify(data, h); !errors.Is(err, ErrMismatch) {
		t.Fatalf("Verify of the other key order: %v, want ErrMismatch", err)
	}
}

// TestEveryBitIsCovered flips each bit of an encoded page in turn, and cuts it at each byte.
func TestEveryBitIsCovered(t *testing.T) {
	_, _, data := encodedPage()
	for i := range len(data) * 8 {
		data[i/8] ^= 1 << (i % 8)
		if _, _, err := Decode(data); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit %d flipped: error %v, want ErrCorrupt", i, err)
		}
		data[i/8] ^= 1 << (i % 8)
	}
	for n := range data {
		if _, _, err := Decode(data[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d: error %v, want ErrCorrupt", n, err)
		}
	}
	if _, _, err := Decode(append(data, 0)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a byte too many: error %v, want ErrCorrupt", err)
	}
}

// TestVerifyNamesTheDifference: a whole page in the wrong place is refused with the field that differs.
func TestVerifyNamesTheDifference(t *testing.T) {
	h, _, data := encodedPage()
	for field, change := range map[string]func(h *Header){
		"layout": func(h *Header) { h.Layout.K = BF16 }, "layer": func(h *Header) { h.Layer++ }, "head": func(h *Header) { h.Head++ },
		"first position": func(h *Header) { h.First++ }, "tokens": func(h *Header) { h.N++ }, "fingerprint": func(h *Header) { h.Fingerprint[31]++ },
	} {
		want := h
		change(&want)
		if _, err := Verify(data, want); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s changed: error %v, want ErrMismatch naming it", field, err)
		}
	}
	data[40] ^= 1
	if _, err := Verify(data, h); !errors.Is(err, ErrCorrupt) {
		t.Errorf("corrupt: error %v, want ErrCorrupt", err)
	}
}

// TestDecodeRefusesLies: a right checksum over a header that cannot be true is still refused.
func TestDecodeRefusesLies(t *testing.T) {
	h, page, _ := encodedPage()
	for name, change := range map[string]func(b []byte){
		"layout":  func(b []byte) { b[6] = 9 },
		"tokens":  func(b []byte) { binary.LittleEndian.PutUint32(b[28:], 17) },
		"dims":    func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 32) },
		"version": func(b []byte) { b[4] = 2 },
	} {
		data := Encode(nil, h, page)
		change(data)
		sum := crc32.Update(crc32.Checksum(data[:HeaderBytes-4], castagnoli), castagnoli, data[HeaderBytes:])
		binary.LittleEndian.PutUint32(data[HeaderBytes-4:], sum)
		if _, _, err := Decode(data); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: error %v, want ErrCorrupt", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	_, _, data := encodedPage()
	f.Add(data)
	f.Add([]byte("TKVP"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, page, err := Decode(data)
		if err == nil && !bytes.Equal(Encode(nil, h, page), data) {
			t.Fatal("an accepted page does not encode to itself")
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	h, _, data := encodedPage()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := Verify(data, h); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, e := range []Elem{F32, F16, BF16, I8, I4} {
		b.Run(e.String(), func(b *testing.B) {
			l := Layout{e, e, 64, 64, 16, false}
			page := make([]byte, l.PageBytes())
			k := randomFloats(rand.New(rand.NewPCG(1, 1)), 16*64)
			b.SetBytes(int64(l.PageBytes()))
			b.ReportAllocs()
			for b.Loop() {
				Append(l, page, 0, 16, k, 64, k, 64)
			}
		})
	}
}
