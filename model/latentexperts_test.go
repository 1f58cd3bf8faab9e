package model_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/weights/safetensors"
)

// TestExpertsOnLatent: a model whose experts work on a latent that holds each row's numbers in other places, with room between them, computes
// what the model without a latent does.
func TestExpertsOnLatent(t *testing.T) {
	dir := filepath.Join(shared(t, "data", "golden", "families"), "nemotron_h_moe")
	const hidden, latent = 40, 48
	to := t.TempDir()
	config := readConfig(t, dir)
	config["moe_latent_size"] = latent
	text, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(filepath.Join(to, "config.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	src, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	var entries []safetensors.Entry
	data := map[string][]byte{}
	add := func(e safetensors.Entry, bytes []byte) {
		entries, data[e.Name] = append(entries, e), bytes
	}
	place := func(j int) int { return (7*j + 3) % latent }
	for _, e := range src.Entries() {
		bytes := slices.Clone(src.Bytes(e.Name))
		layer, _, expert := strings.Cut(e.Name, "mixer.experts.")
		switch {
		case expert && strings.HasSuffix(e.Name, "up_proj.weight"):
			bytes = moved(bytes, e.Shape[0], hidden, latent, place)
			e.Shape = []int{e.Shape[0], latent}
		case expert:
			width := 2 * e.Shape[1]
			rows := make([]byte, latent*width)
			for j := range hidden {
				copy(rows[place(j)*width:], bytes[j*width:(j+1)*width])
			}
			bytes, e.Shape = rows, []int{latent, e.Shape[1]}
		}
		add(e, bytes)
		if expert && strings.HasSuffix(e.Name, "experts.0.up_proj.weight") {
			in, out := make([]byte, 2*latent*hidden), make([]byte, 2*latent*hidden)
			for j := range hidden { // 1 in bfloat16
				copy(in[2*(place(j)*hidden+j):], []byte{0x80, 0x3f})
				copy(out[2*(j*latent+place(j)):], []byte{0x80, 0x3f})
			}
			add(safetensors.Entry{Name: layer + "mixer.fc1_latent_proj.weight", DType: e.DType, Shape: []int{latent, hidden}}, in)
			add(safetensors.Entry{Name: layer + "mixer.fc2_latent_proj.weight", DType: e.DType, Shape: []int{hidden, latent}}, out)
		}
	}
	w, err := safetensors.Create(filepath.Join(to, "model.safetensors"), entries)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, err := w.Write(data[e.Name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	g := readGolden(t, filepath.Join(dir, "golden.safetensors"))
	r := newRunner(t, to)
	ids := g.ints("input_ids")
	if off := worst(r.pass(ids, len(ids)), g.rows("logits", r.m.Vocab)); off > 2e-4 {
		t.Errorf("max |Δlogit| is %.2g of the largest logit, want at most 2e-4", off)
	}
}

// moved puts the columns of a bfloat16 matrix [rows, cols] into wider rows.
func moved(bytes []byte, rows, cols, wide int, place func(j int) int) []byte {
	out := make([]byte, 2*rows*wide)
	for r := range rows {
		for j := range cols {
			copy(out[2*(r*wide+place(j)):], bytes[2*(r*cols+j):2*(r*cols+j)+2])
		}
	}
	return out
}
