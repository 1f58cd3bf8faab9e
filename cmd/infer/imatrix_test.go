package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/imatrix"
	"terrace/weights/vocab"
)

// tensorFloats are all values of a tensor.
func tensorFloats(t *testing.T, m *weights.Model, name string) (values []float32, cols int) {
	t.Helper()
	x, err := m.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	values = make([]float32, x.Rows()*x.Cols())
	quant.Dequantize(x.Type, values, b)
	return values, x.Cols()
}

// A matrix computed on a text: the inputs of the first layer's queries are worked out by hand from the embedding and the norm, and
// each type quantised under it has a smaller error in those columns' measure than without.
func TestImatrix(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	code, _, errs := runCommand("synth", at("m.gguf"), "--layers", "2", "--hidden", "256", "--head-dim", "64", "--ffn", "512", "--vocab", "300", "--type", "F32", "--seed", "3")
	if code != exitDone {
		t.Fatalf("synth: exit %d, %s", code, errs)
	}
	text := strings.Repeat("What is read here counts. ", 8)
	if err := os.WriteFile(at("text.txt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := runCommand("imatrix", "-m", at("m.gguf"), "--file", at("text.txt"), "--chunk", "32", "--chunks", "2", "-o", at("i.gguf"), "--json")
	var said struct {
		Entries, Tokens int
		PPL             float64
	}
	if err := json.Unmarshal([]byte(out), &said); code != exitDone || err != nil || said.Entries != 14 || said.Tokens != 64 || !(said.PPL > 1) {
		t.Fatalf("imatrix: exit %d, %v, %q %q", code, err, out, errs)
	}
	m, err := weights.Open(at("m.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	i, err := imatrix.Read(at("i.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := i.Weights("blk.0.attn_q.weight", 1, 256)
	if err != nil {
		t.Fatal(err)
	}
	for c, want := range firstInputs(t, m, text, 32, 2) {
		if math.Abs(float64(got[c])-want) > 1e-4*want {
			t.Fatalf("column %d: mean square %g, by hand %g", c, got[c], want)
		}
	}
	for _, kind := range []string{"Q4_K_S", "IQ4_XS", "Q3_K_M"} {
		misses := map[string]float64{}
		for name, args := range map[string][]string{"with": {"--imatrix", at("i.gguf")}, "without": nil} {
			dst := at(name + kind + ".gguf")
			if code, _, errs := runCommand(append([]string{"quantize", at("m.gguf"), dst, "--type", kind}, args...)...); code != exitDone {
				t.Fatalf("quantize %s %s: exit %d, %s", kind, name, code, errs)
			}
			misses[name] = weightedMiss(t, m, dst, i)
		}
		if !(misses["with"] < misses["without"]) {
			t.Errorf("%s: weighted error %g with the matrix, %g without", kind, misses["with"], misses["without"])
		}
	}
}

// firstInputs are the mean squares of RMS-normalised embeddings of the text's chunks, in float64.
func firstInputs(t *testing.T, m *weights.Model, text string, chunk, chunks int) []float64 {
	t.Helper()
	v, err := vocab.FromModel(m.Meta(), "")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode(text, true, false)
	if err != nil || len(ids) < chunk*chunks {
		t.Fatal(len(ids), err)
	}
	bos, has := tok.BOS()
	embed, cols := tensorFloats(t, m, "token_embd.weight")
	norm, _ := tensorFloats(t, m, "blk.0.attn_norm.weight")
	eps, err := m.Meta().Float("llama.attention.layer_norm_rms_epsilon")
	if err != nil {
		t.Fatal(err)
	}
	sums := make([]float64, cols)
	for at, id := range ids[:chunk*chunks] {
		if at%chunk == 0 && has && tok.AddsBOS() {
			id = bos
		}
		row, squares := embed[id*cols:(id+1)*cols], 0.0
		for _, x := range row {
			squares += float64(x) * float64(x)
		}
		scale := 1 / math.Sqrt(squares/float64(cols)+eps)
		for c, x := range row {
			sums[c] += math.Pow(float64(x)*scale*float64(norm[c]), 2) / float64(chunk*chunks)
		}
	}
	return sums
}

// weightedMiss is the error of the layers' matrices in a quantised file, each column's squares times its weight.
func weightedMiss(t *testing.T, m *weights.Model, path string, i *imatrix.Matrix) (sum float64) {
	t.Helper()
	q, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for _, name := range i.Names() {
		if name == "blk.0.ffn_down.weight" {
			continue // IQ4_XS gives it more bits without a matrix than with one
		}
		want, cols := tensorFloats(t, m, name)
		got, _ := tensorFloats(t, q, name)
		w, err := i.Weights(name, 1, cols)
		if err != nil {
			t.Fatal(err)
		}
		for j := range want {
			d := float64(want[j]) - float64(got[j])
			sum += d * d * float64(w[j%cols])
		}
	}
	return sum
}

func TestImatrixRefusals(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("text.txt"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := imatrix.NewCollector()
	if err := c.Add("blk.0.attn_q.weight", 0, 1, 3, []float32{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	m, err := c.Matrix(nil, 1, 3)
	if err == nil {
		err = m.Write(at("other.gguf"))
	}
	if err != nil {
		t.Fatal(err)
	}
	out := at("out.gguf")
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"no file":         {[]string{"imatrix", "-m", tinyModel, "-o", out}, exitUsage},
		"backend":         {[]string{"imatrix", "-m", tinyModel, "-o", out, "--file", at("text.txt"), "--backend", "gomlx:go"}, exitUsage},
		"exists":          {[]string{"imatrix", "-m", tinyModel, "-o", at("text.txt"), "--file", at("text.txt")}, exitUsage},
		"less than chunk": {[]string{"imatrix", "-m", tinyModel, "-o", out, "--file", at("text.txt"), "--chunk", "64"}, exitUsage},
		"other model":     {[]string{"quantize", tinyModel, out, "--type", "Q4_0", "--imatrix", at("other.gguf")}, exitData},
		"a model":         {[]string{"quantize", tinyModel, out, "--type", "Q4_0", "--imatrix", tinyModel}, exitData},
		"a text":          {[]string{"quantize", tinyModel, out, "--type", "Q4_0", "--imatrix", at("text.txt")}, exitData},
	} {
		code, _, errs := runCommand(c.args...)
		if code != c.code || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, want %d; stderr %q", name, code, c.code, errs)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: leaves %s", name, out)
		}
	}
}
