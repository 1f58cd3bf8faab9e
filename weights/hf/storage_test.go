package hf_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
	"terrace/weights/hf"
	"terrace/weights/hf/hftest"
)

// TestStored: every form gives the values of its definition, in the type that it is said to have.
func TestStored(t *testing.T) {
	for name, form := range hftest.Forms(t) {
		t.Run(name, func(t *testing.T) {
			s := form.Write(t)
			_, tensors, closer, err := hf.Open(s.Folder(t, form.Config))
			if err != nil {
				t.Fatal(err)
			}
			defer closer.Close()
			names := map[string]string{"blk.0.ffn_up.weight": "mlp.up_proj.", "blk.0.attn_output.weight": "self_attn.o_proj.", "blk.0.ffn_down.weight": "mlp.down_proj."}
			for _, got := range tensors {
				stem := names[got.Name]
				if stem == "" {
					continue
				}
				delete(names, got.Name)
				data, err := got.Bytes()
				if err != nil || got.Type != form.Kind {
					t.Fatalf("%s: type %s, want %s; error %v", got.Name, got.Type, form.Kind, err)
				}
				x := make([]float32, got.Rows()*got.Cols())
				quant.Dequantize(got.Type, x, data)
				for i, want := range s.Values["model.layers.0."+stem+"weight"] {
					if d := math.Abs(float64(x[i] - want)); d > form.Limit*math.Abs(float64(want)) {
						t.Fatalf("%s: value %d is %g, want %g", got.Name, i, x[i], want)
					}
				}
			}
			if len(names) > 0 {
				t.Errorf("not presented: %v", names)
			}
		})
	}
}

// TestStoredRefused changes one thing of a good checkpoint: one error that names it.
func TestStoredRefused(t *testing.T) {
	forms := hftest.Forms(t)
	const stem = "model.layers.0.mlp.up_proj."
	for name, c := range map[string]struct {
		form   string
		config config
		tensor string
		to     hftest.RawTensor
		want   error
		text   string
	}{
		"method":       {"gptq", config{"quant_method": "bitsandbytes"}, "", hftest.RawTensor{}, hf.ErrQuantized, "bitsandbytes"},
		"key":          {"gptq", config{"surprise": 1}, "", hftest.RawTensor{}, hf.ErrQuantized, "surprise"},
		"bits":         {"gptq", config{"bits": 3}, "", hftest.RawTensor{}, hf.ErrQuantized, "bits is 3"},
		"group zero":   {"gptq", config{"group_size": 0}, "", hftest.RawTensor{}, hf.ErrConfig, "group_size"},
		"group odd":    {"awq", config{"group_size": 48}, "", hftest.RawTensor{}, hf.ErrConfig, "group_size 48"},
		"marlin":       {"gptq", config{"checkpoint_format": "marlin"}, "", hftest.RawTensor{}, hf.ErrQuantized, "marlin"},
		"dynamic":      {"gptq", config{"dynamic": config{"-:lm_head": config{}}}, "", hftest.RawTensor{}, hf.ErrQuantized, "dynamic"},
		"gemv":         {"awq", config{"version": "gemv"}, "", hftest.RawTensor{}, hf.ErrQuantized, "gemv"},
		"fmt":          {"fp8 blocks", config{"fmt": "e5m2"}, "", hftest.RawTensor{}, hf.ErrQuantized, "e5m2"},
		"block size":   {"fp8 blocks", config{"weight_block_size": []float64{0.5, 32}}, "", hftest.RawTensor{}, hf.ErrConfig, "weight_block_size"},
		"format":       {"int4", config{"format": "marlin-24"}, "", hftest.RawTensor{}, hf.ErrQuantized, "marlin-24"},
		"sparse":       {"int4", config{"sparsity_config": config{"format": "sparse-24-bitmask"}}, "", hftest.RawTensor{}, hf.ErrQuantized, "sparse-24-bitmask"},
		"no zeros":     {"gptq", nil, stem + "qzeros", hftest.RawTensor{}, hf.ErrMissingTensor, "qzeros"},
		"short scales": {"awq", nil, stem + "scales", hftest.RawTensor{DType: "F16", Shape: []int{1, 4}, Data: make([]byte, 8)}, hf.ErrShape, "scales"},
		"no scale":     {"fp8 blocks", nil, stem + "weight_scale_inv", hftest.RawTensor{}, hf.ErrMissingTensor, "up_proj.weight_scale"},
		"scale dtype":  {"nvfp4", nil, stem + "weight_scale", hftest.RawTensor{DType: "U8", Shape: []int{256, 4}, Data: make([]byte, 1024)}, hf.ErrShape, "weight_scale"},
		"shape":        {"int4", nil, stem + "weight_shape", hftest.RawTensor{DType: "I64", Shape: []int{2}, Data: make([]byte, 16)}, hf.ErrShape, "weight_shape"},
		"cut":          {"int4", nil, stem + "weight_packed", hftest.RawTensor{DType: "I32", Shape: []int{256, 7}, Data: make([]byte, 256*28)}, hf.ErrShape, "weight_packed"},
	} {
		t.Run(name, func(t *testing.T) {
			form := forms[c.form]
			s := form.Write(t)
			if c.tensor != "" {
				if s.Tensors[c.tensor] = c.to; c.to.DType == "" {
					delete(s.Tensors, c.tensor)
				}
			}
			_, _, err := open(t, s.Folder(t, form.Config.With(c.config)))
			if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.text) || strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("error %v, want %q with %q in it", err, c.want, c.text)
			}
		})
	}
}

// TestStoredValuesRefused: what only the numbers show is refused when the matrix is read, by its name.
func TestStoredValuesRefused(t *testing.T) {
	forms := hftest.Forms(t)
	const stem = "model.layers.0.mlp.up_proj."
	for name, c := range map[string]struct {
		form, tensor string
		change       func(b []byte)
		text         string
	}{
		"nan code":     {"fp8 blocks", stem + "weight", func(b []byte) { b[70] = 0x7f }, "NaN"},
		"infinite":     {"nvfp4", stem + "weight_global_scale", func(b []byte) { clear(b) }, "infinite"},
		"zero points":  {"gptq", stem + "qzeros", func(b []byte) { b[0] = 0 }, "sym"},
		"order":        {"gptq", stem + "g_idx", func(b []byte) { b[0] = 1 }, "desc_act"},
		"group":        {"gptq act-order", stem + "g_idx", func(b []byte) { b[3] = 0x80 }, "group"},
		"large scale":  {"int8", stem + "weight_scale", func(b []byte) { b[0], b[1] = 0, 0x48 }, "float16"},
		"nan of scale": {"awq", stem + "scales", func(b []byte) { b[0], b[1] = 0, 0x7e }, "NaN"},
	} {
		t.Run(name, func(t *testing.T) {
			form := forms[c.form]
			s := form.Write(t)
			c.change(s.Tensors[c.tensor].Data)
			_, tensors, closer, err := hf.Open(s.Folder(t, form.Config))
			if err != nil {
				t.Fatal(err)
			}
			defer closer.Close()
			for _, tensor := range tensors {
				if tensor.Name != "blk.0.ffn_up.weight" {
					continue
				}
				if _, err := tensor.Bytes(); !errors.Is(err, gguf.ErrFormat) && !errors.Is(err, gguf.ErrNotFinite) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "ffn_up") && !strings.Contains(err.Error(), "up_proj") {
					t.Errorf("error %v, want one with %q and the tensor's name", err, c.text)
				}
			}
		})
	}
}
