package quant

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"testing"
)

// TestAsGGUFPy: random blocks give the values of gguf-py's dequantisation, to the bit. testdata/gguf_py.json says where they are from.
func TestAsGGUFPy(t *testing.T) {
	raw, err := os.ReadFile("testdata/gguf_py.json")
	if err != nil {
		t.Fatal(err)
	}
	var fixture struct {
		Types map[string]struct {
			Blocks []byte
			First  []float32
			Hash   string
		}
	}
	if err := json.Unmarshal(raw, &fixture); err != nil {
		t.Fatal(err)
	}
	if len(fixture.Types) != 11 {
		t.Errorf("%d types, want 11", len(fixture.Types))
	}
	for name, want := range fixture.Types {
		kind, err := ParseType(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(want.Blocks)%kind.BlockBytes() != 0 || CheckFinite(kind, want.Blocks) != -1 {
			t.Fatalf("%s: %d bytes in blocks of %d, first that is not finite %d", name, len(want.Blocks), kind.BlockBytes(), CheckFinite(kind, want.Blocks))
		}
		got := make([]float32, len(want.Blocks)/kind.BlockBytes()*kind.BlockLen())
		Dequantize(kind, got, want.Blocks)
		for i, v := range want.First {
			if got[i] != v {
				t.Errorf("%s: value %d is %g, want %g", name, i, got[i], v)
			}
		}
		sum := fnv.New64a()
		for _, v := range got {
			_ = binary.Write(sum, binary.LittleEndian, math.Float32bits(v))
		}
		if h := fmt.Sprintf("%016x", sum.Sum64()); h != want.Hash {
			t.Errorf("%s: the values hash to %s, want %s", name, h, want.Hash)
		}
	}
}

// TestE4M3 decodes every code by the specification's text: sign, four bits of exponent with bias 7, three of mantissa.
func TestE4M3(t *testing.T) {
	for code, want := range map[byte]float32{0: 0, 1: 0x1p-9, 7: 7 * 0x1p-9, 8: 0x1p-6, 0x38: 1, 0x3C: 1.5, 0x7E: 448, 0xFE: -448, 0xB8: -1} {
		if got := E4M3(code); got != want {
			t.Errorf("code %#x is %g, want %g", code, got, want)
		}
	}
	for _, code := range []byte{127, 255} {
		if got := E4M3(code); got == got {
			t.Errorf("code %#x is %g, want NaN", code, got)
		}
	}
	for code := range 126 {
		if a, b := E4M3(byte(code)), E4M3(byte(code+1)); !(a < b) || E4M3(byte(code+128)) != -a {
			t.Errorf("code %#x is %g, the next %g, the negative one %g", code, a, b, E4M3(byte(code+128)))
		}
	}
}
