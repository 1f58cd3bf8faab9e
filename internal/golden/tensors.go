package golden

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"testing"
)

// Tensor is one tensor of an oracle: its values as float64, whatever they were stored as.
type Tensor struct {
	Shape  []int
	Values []float64
}

// Floats are the values as float32.
func (t Tensor) Floats() []float32 {
	out := make([]float32, len(t.Values))
	for i, v := range t.Values {
		out[i] = float32(v)
	}
	return out
}

// Ints are the values as integers.
func (t Tensor) Ints() []int {
	out := make([]int, len(t.Values))
	for i, v := range t.Values {
		out[i] = int(v)
	}
	return out
}

// Tensors reads a safetensors file by its plain definition (oracles hold integer types that models do not).
func Tensors(t testing.TB, path string) map[string]Tensor {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b)
	var header map[string]struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	out := map[string]Tensor{}
	for name, h := range header {
		d := b[8+n:][h.Offsets[0]:h.Offsets[1]]
		x := Tensor{Shape: h.Shape}
		for len(d) > 0 {
			switch h.DType {
			case "F32":
				x.Values, d = append(x.Values, float64(math.Float32frombits(binary.LittleEndian.Uint32(d)))), d[4:]
			case "I32":
				x.Values, d = append(x.Values, float64(int32(binary.LittleEndian.Uint32(d)))), d[4:]
			case "I64":
				x.Values, d = append(x.Values, float64(int64(binary.LittleEndian.Uint64(d)))), d[8:]
			case "U8", "BOOL":
				x.Values, d = append(x.Values, float64(d[0])), d[1:]
			default:
				t.Fatalf("%s: %s is %s", path, name, h.DType)
			}
		}
		out[name] = x
	}
	return out
}
