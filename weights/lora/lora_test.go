package lora_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/weights"
	"terrace/weights/gguf"
	"terrace/weights/hf/hftest"
	"terrace/weights/lora"
	"terrace/weights/safetensors"
)

// values are the tensors of a safetensors file in float64.
type values map[string]struct {
	shape []int
	data  []float64
}

func read(t *testing.T, path string) values {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := values{}
	for _, x := range f.Tensors() {
		raw, err := x.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		v := out[x.Name]
		v.shape = x.Shape
		for i := 0; i < len(raw); i += 4 {
			v.data = append(v.data, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:]))))
		}
		out[x.Name] = v
	}
	return out
}

const rank = 3

var adapterConfig = map[string]any{"peft_type": "LORA", "lora_alpha": 12, "r": rank, "bias": "none", "use_dora": false, "modules_to_save": nil, "fan_in_fan_out": false}

// adapterOf writes a PEFT adapter for the named modules of a model's shapes.
func adapterOf(t *testing.T, shapes hftest.Shapes, config map[string]any, modules ...string) string {
	t.Helper()
	dir := t.TempDir()
	s := hftest.Shapes{}
	for _, m := range modules {
		w := shapes[m+".weight"]
		s["base_model.model."+m+".lora_A.weight"], s["base_model.model."+m+".lora_B.weight"] = []int{rank, w[1]}, []int{w[0], rank}
	}
	text, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "adapter_config.json"), text, 0o600)
	}
	if err == nil {
		err = hftest.WriteTensors(filepath.Join(dir, "adapter_model.safetensors"), s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// mergedFolder writes a copy of a model folder with the adapter's sums in its weights, by plain loops in float64 over the names that
// both files have.
func mergedFolder(t *testing.T, dir, adapter string, scale float64) string {
	t.Helper()
	base, ab := read(t, filepath.Join(dir, "model.safetensors")), read(t, filepath.Join(adapter, "adapter_model.safetensors"))
	for name, a := range ab {
		module, isA := strings.CutSuffix(strings.TrimPrefix(name, "base_model.model."), ".lora_A.weight")
		if !isA {
			continue
		}
		b, w := ab["base_model.model."+module+".lora_B.weight"], base[module+".weight"]
		for i := range w.shape[0] {
			for j := range w.shape[1] {
				for r := range rank {
					w.data[i*w.shape[1]+j] += scale * b.data[i*rank+r] * a.data[r*w.shape[1]+j]
				}
			}
		}
	}
	out := t.TempDir()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(out, "config.json"), config, 0o600)
	}
	var entries []safetensors.Entry
	shapes := hftest.Shapes{}
	for name, v := range base {
		shapes[name] = v.shape
	}
	for _, name := range shapes.Names() {
		entries = append(entries, safetensors.Entry{Name: name, DType: "F32", Shape: shapes[name]})
	}
	w, err2 := safetensors.Create(filepath.Join(out, "model.safetensors"), entries)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		x := make([]float32, len(base[e.Name].data))
		for i, v := range base[e.Name].data {
			x[i] = float32(v)
		}
		if err := w.WriteFloat32s(x); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

func open(t *testing.T, path string, adapters ...weights.Adapter) *weights.Model {
	t.Helper()
	m, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if err := m.Adapt(adapters); err != nil {
		t.Fatal(err)
	}
	return m
}

var prompt = []int{3, 31, 7, 7, 12, 0, 25, 18}

func logits(t *testing.T, m *weights.Model) []float64 {
	t.Helper()
	slow, err := hftest.New(m.Meta(), m.Tensors())
	if err != nil {
		t.Fatal(err)
	}
	rows := slow.Logits(prompt, 0)
	return rows[len(rows)-1]
}

// apart is the largest difference, of the largest value.
func apart(a, b []float64) float64 {
	off, most := 0.0, 0.0
	for i := range a {
		off, most = max(off, math.Abs(a[i]-b[i])), max(most, math.Abs(b[i]))
	}
	return off / most
}

var modules = []string{"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj", "model.layers.1.self_attn.v_proj", "model.layers.1.self_attn.o_proj", "model.layers.0.mlp.gate_proj", "model.layers.1.mlp.up_proj",
	"model.layers.1.mlp.down_proj", "lm_head"}

// TestPEFT: logits of a folder with an adapter are those of a folder whose weights were merged by plain loops, whatever the scale,
// in Hugging Face's rows and in those of a GGUF file, and with two adapters at once.
func TestPEFT(t *testing.T) {
	c := hftest.Llama()
	shapes := hftest.Decoder(c)
	dir := hftest.Folder(t, c, shapes)
	adapter := adapterOf(t, shapes, adapterConfig, modules...)
	plain := logits(t, open(t, dir))
	for _, scale := range []float64{1, 0.5, -1} {
		want := logits(t, open(t, mergedFolder(t, dir, adapter, scale*12/rank)))
		if d := apart(plain, want); d < 0.05 {
			t.Fatalf("the adapter changes logits by %.2g only: nothing is tested", d)
		}
		if d := apart(logits(t, open(t, dir, weights.Adapter{Path: adapter, Scale: scale})), want); d > 1e-5 {
			t.Errorf("scale %g, folder: %.2g of the largest logit", scale, d)
		}
		file := ggufModel(t, open(t, dir), quant.F32)
		if d := apart(logits(t, open(t, file, weights.Adapter{Path: filepath.Join(adapter, "adapter_model.safetensors"), Scale: scale})), want); d > 1e-5 {
			t.Errorf("scale %g, GGUF: %.2g of the largest logit", scale, d)
		}
	}
	second := maps.Clone(adapterConfig)
	second["use_rslora"] = true
	other := adapterOf(t, shapes, second, modules[1:3]...)
	want := logits(t, open(t, mergedFolder(t, mergedFolder(t, dir, adapter, 4), other, 0.25*12/math.Sqrt(rank))))
	if d := apart(logits(t, open(t, dir, weights.Adapter{Path: adapter, Scale: 1}, weights.Adapter{Path: other, Scale: 0.25})), want); d > 1e-5 {
		t.Errorf("two adapters: %.2g of the largest logit", d)
	}
}

// TestHalf: what is merged into 16 bits is F16, and within its rounding.
func TestHalf(t *testing.T) {
	c := hftest.Llama()
	shapes := hftest.Decoder(c)
	dir := hftest.Folder(t, c, shapes)
	adapter := adapterOf(t, shapes, adapterConfig, modules...)
	file := ggufModel(t, open(t, dir), quant.BF16)
	m := open(t, file, weights.Adapter{Path: adapter, Scale: 1})
	if q, err := m.Tensor("blk.0.attn_q.weight"); err != nil || q.Type != quant.F16 {
		t.Errorf("merged type %v, %v", q, err)
	}
	if d := apart(logits(t, m), logits(t, open(t, mergedFolder(t, dir, adapter, 4)))); d > 0.03 {
		t.Errorf("%.2g of the largest logit", d)
	}
}

// permute puts rows of heads into the order of GGUF's llama files, as convert_hf_to_gguf.py does (reshape to heads, halves, rows;
// swap; reshape).
func permute(data []float64, rows, heads int) (out []float64) {
	cols, half := len(data)/rows, rows/heads/2
	for h := range heads {
		for i := range half {
			for s := range 2 {
				r := (h*2+s)*half + i
				out = append(out, data[r*cols:(r+1)*cols]...)
			}
		}
	}
	return out
}

// heads are those of hftest.Llama.
var heads = map[string]int{"attn_q": 2, "attn_k": 1}

// ggufModel writes a model whose tensors are F32 as a GGUF file, matrices in a type.
func ggufModel(t *testing.T, m *weights.Model, kind quant.Type) string {
	t.Helper()
	meta := m.Meta().Clone()
	meta.Delete("terrace.rope.layout")
	var infos []gguf.Info
	var data [][]byte
	for _, x := range m.Tensors() {
		raw, err := x.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		v := make([]float32, len(raw)/4)
		quant.Dequantize(quant.F32, v, raw)
		to := quant.F32
		if len(x.Shape) == 2 {
			to = kind
			if _, part, _ := strings.Cut(strings.TrimPrefix(x.Name, "blk."), "."); heads[strings.TrimSuffix(part, ".weight")] > 0 {
				wide := make([]float64, len(v))
				for i := range v {
					wide[i] = float64(v[i])
				}
				for i, y := range permute(wide, x.Shape[0], heads[strings.TrimSuffix(part, ".weight")]) {
					v[i] = float32(y)
				}
			}
		}
		out := make([]byte, to.RowBytes(len(v)))
		if err := quant.Quantize(to, out, v); err != nil {
			t.Fatal(err)
		}
		infos, data = append(infos, gguf.Info{Name: x.Name, Type: to, Shape: x.Shape}), append(data, out)
	}
	return writeGGUF(t, meta, infos, data)
}

func writeGGUF(t *testing.T, meta *gguf.Meta, infos []gguf.Info, data [][]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := gguf.NewWriter(f, meta, infos)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range data {
		if _, err := w.Write(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// ggufAdapter writes llama.cpp's form of a PEFT adapter: rows of B of q and k as convert_lora_to_gguf.py permutes them.
func ggufAdapter(t *testing.T, peft, arch string) string {
	t.Helper()
	names := map[string]string{"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
	meta := &gguf.Meta{}
	meta.Set("general.architecture", arch)
	meta.Set("general.type", "adapter")
	meta.Set("adapter.type", "lora")
	meta.Set("adapter.lora.alpha", float32(12))
	var infos []gguf.Info
	var data [][]float64
	for name, v := range read(t, filepath.Join(peft, "adapter_model.safetensors")) {
		var layer int
		rest := strings.TrimPrefix(name, "base_model.model.")
		to := "output.weight"
		if module, side, _ := strings.Cut(rest, ".lora_"); module != "lm_head" {
			var tail string
			if _, err := fmt.Sscanf(module, "model.layers.%d.%s", &layer, &tail); err != nil {
				t.Fatal(err)
			}
			to = fmt.Sprintf("blk.%d.%s.weight", layer, names[tail])
			if n := heads[names[tail]]; n > 0 && side == "B.weight" {
				v.data = permute(v.data, v.shape[0], n)
			}
		}
		side := ".lora_a"
		if strings.HasSuffix(name, "lora_B.weight") {
			side = ".lora_b"
		}
		infos = append(infos, gguf.Info{Name: to + side, Type: quant.F32, Shape: v.shape})
		data = append(data, v.data)
	}
	var raw [][]byte
	for _, d := range data {
		var b []byte
		for _, x := range d {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		}
		raw = append(raw, b)
	}
	return writeGGUF(t, meta, infos, raw)
}

// TestGGUF: llama.cpp's form of an adapter does what PEFT's does, to folders and to GGUF files.
func TestGGUF(t *testing.T) {
	c := hftest.Llama()
	shapes := hftest.Decoder(c)
	dir := hftest.Folder(t, c, shapes)
	peft := adapterOf(t, shapes, adapterConfig, modules...)
	adapter := ggufAdapter(t, peft, "llama")
	file := ggufModel(t, open(t, dir), quant.F32)
	want := logits(t, open(t, mergedFolder(t, dir, peft, 4)))
	for _, base := range []string{dir, file} {
		if d := apart(logits(t, open(t, base, weights.Adapter{Path: adapter, Scale: 1})), want); d > 1e-5 {
			t.Errorf("%s: %.2g of the largest logit", filepath.Base(base), d)
		}
	}
	m := open(t, dir)
	other := ggufAdapter(t, peft, "qwen2")
	if err := m.Adapt([]weights.Adapter{{Path: other, Scale: 1}}); !errors.Is(err, lora.ErrAdapter) || !strings.Contains(err.Error(), "qwen2") {
		t.Errorf("an adapter of another architecture: %v", err)
	}
	if err := m.Adapt([]weights.Adapter{{Path: file, Scale: 1}}); !errors.Is(err, lora.ErrAdapter) {
		t.Errorf("a model as an adapter: %v", err)
	}
}

// TestPermutedFiles: adapters of checkpoints are added to the rows of GGUF files where these lie, in each architecture that permutes them.
func TestPermutedFiles(t *testing.T) {
	for _, kind := range []string{"llama", "mistral", "granite", "smollm3", "ministral3"} {
		c := hftest.Llama().With(map[string]any{"model_type": kind})
		shapes := hftest.Decoder(c)
		dir := hftest.Folder(t, c, shapes)
		adapter := adapterOf(t, shapes, adapterConfig, modules...)
		want := logits(t, open(t, mergedFolder(t, dir, adapter, 4)))
		for _, base := range []string{dir, ggufModel(t, open(t, dir), quant.F32)} {
			if d := apart(logits(t, open(t, base, weights.Adapter{Path: adapter, Scale: 1})), want); d > 1e-5 {
				t.Errorf("%s, %s: %.2g of the largest logit", kind, filepath.Base(base), d)
			}
		}
	}
}

// TestRefusals: what would be another sum, or belongs to another model, is refused by name, and the model stays as it was.
func TestRefusals(t *testing.T) {
	c := hftest.Llama()
	shapes := hftest.Decoder(c)
	dir := hftest.Folder(t, c, shapes)
	m := open(t, dir)
	plain := logits(t, m)
	q := "model.layers.0.self_attn.q_proj"
	with := func(key string, v any) map[string]any {
		out := maps.Clone(adapterConfig)
		out[key] = v
		return out
	}
	wide := maps.Clone(shapes)
	wide[q+".weight"] = []int{16, 24}
	wide["model.layers.7.self_attn.q_proj.weight"], wide["model.layers.0.mlp.experts.0.up_proj.weight"] = []int{16, 16}, []int{16, 16}
	half := t.TempDir()
	for _, err := range []error{os.CopyFS(half, os.DirFS(adapterOf(t, shapes, adapterConfig, q))),
		hftest.WriteTensors(filepath.Join(half, "adapter_model.safetensors"), hftest.Shapes{"base_model.model." + q + ".lora_A.weight": {rank, 16}})} {
		if err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	for want, path := range map[string]string{
		"use_dora":        adapterOf(t, shapes, with("use_dora", true), q),
		"bias is all":     adapterOf(t, shapes, with("bias", "all"), q),
		"modules_to_save": adapterOf(t, shapes, with("modules_to_save", []string{"lm_head"}), q),
		"alpha_pattern":   adapterOf(t, shapes, with("alpha_pattern", map[string]any{"q_proj": 3}), q),
		"peft_type":       adapterOf(t, shapes, with("peft_type", "IA3"), q),
		"lora_alpha":      adapterOf(t, shapes, with("lora_alpha", "x"), q),
		"embed_tokens":    adapterOf(t, shapes, adapterConfig, "model.embed_tokens"),
		"[16 24]":         adapterOf(t, wide, adapterConfig, q),
		"blk.7":           adapterOf(t, wide, adapterConfig, "model.layers.7.self_attn.q_proj"),
		"experts.0":       adapterOf(t, wide, adapterConfig, "model.layers.0.mlp.experts.0.up_proj"),
		"no A or no B":    half,
		"no adapter_mod":  t.TempDir(),
	} {
		err := m.Adapt([]weights.Adapter{{Path: path, Scale: 1}})
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, weights.ErrFormat) && !errors.Is(err, weights.ErrUnsupported) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if d := apart(logits(t, m), plain); d != 0 {
		t.Errorf("refused adapters changed logits by %.2g", d)
	}
}
