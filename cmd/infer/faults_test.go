package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tinyFolder copies a golden Hugging Face model with some keys of its configuration changed, or skips.
func tinyFolder(t *testing.T, name string, change map[string]any) string {
	t.Helper()
	from := filepath.Join(filepath.Dir(filepath.Dir(tinyGGUF(t))), "tiny_hf", name)
	dir := t.TempDir()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err == nil && e.Name() == "config.json" {
			var config map[string]any
			if err = json.Unmarshal(data, &config); err == nil {
				maps.Copy(config, change)
				data, err = json.Marshal(config)
			}
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, e.Name()), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// fill sets all values of a float32 tensor in a folder's model.safetensors.
func fill(t *testing.T, dir, tensor string, x float32) {
	t.Helper()
	path := filepath.Join(dir, "model.safetensors")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := binary.LittleEndian.Uint64(b)
	var header map[string]struct {
		DType   string
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:8+size], &header); err != nil {
		t.Fatal(err)
	}
	h := header[tensor]
	if h.DType != "F32" || h.Offsets[1] == 0 {
		t.Fatalf("%s is %+v", tensor, h)
	}
	for at := h.Offsets[0]; at < h.Offsets[1]; at += 4 {
		binary.LittleEndian.PutUint32(b[8+int(size)+at:], math.Float32bits(x))
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func idsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ids.json")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLogitsThatAreNotFinite writes no file, and says why.
func TestLogitsThatAreNotFinite(t *testing.T) {
	dir := tinyFolder(t, "llama_gqa", nil)
	fill(t, dir, "model.norm.weight", math.MaxFloat32)
	ids := idsFile(t, "[1, 2, 3]")
	for _, args := range [][]string{{"logits"}, {"logits", "--all"}, {"logits", "--backend", "gorgonia"}, {"kv"}} {
		out := filepath.Join(t.TempDir(), "out")
		code, _, errs := inferCommand(t, append(args, "--model", dir, "--ids-file", ids, "--out", out)...)
		if code != exitData || !strings.Contains(errs, "not finite") {
			t.Errorf("%v: exit %d, %q", args, code, errs)
		}
		if left, err := os.ReadDir(filepath.Dir(out)); err != nil || len(left) != 0 {
			t.Errorf("%v leaves %v (%v)", args, left, err)
		}
	}
}

// TestNullIsNoToken refuses null where a token id belongs.
func TestNullIsNoToken(t *testing.T) {
	model := tinyGGUF(t)
	code, _, errs := inferCommand(t, "generate", "--model", model, "--ids-file", idsFile(t, "[1, null]"), "-n", "1")
	if code != exitData || !strings.Contains(errs, "item 1 is null") {
		t.Errorf("generate: exit %d, %q", code, errs)
	}
	if code, out, errs := runTokenize("[null]", "--model", model, "--ids"); code != exitData || !strings.Contains(errs, "item 0 is null") {
		t.Errorf("tokenize --ids: exit %d, %q %q", code, out, errs)
	}
	if code, out, errs := runTokenize(`{"ids": [1, null]}`, "--model", model, "--jsonl"); code != exitData || !strings.Contains(errs, "item 1 is null") {
		t.Errorf("tokenize --jsonl: exit %d, %q %q", code, out, errs)
	}
}

// TestEndlessInput refuses a device that never ends after a little of it.
func TestEndlessInput(t *testing.T) {
	if _, err := os.Stat("/dev/zero"); err != nil {
		t.Skip(err)
	}
	model := tinyGGUF(t)
	for _, args := range [][]string{
		{"generate", "--model", model, "--prompt-file", "/dev/zero"},
		{"generate", "--model", model, "--ids-file", "/dev/zero"},
		{"perplexity", "--model", model, "--file", "/dev/zero"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		code, _, errs := inferCommand(t, args...)
		runtime.ReadMemStats(&after)
		if code != exitData || !strings.Contains(errs, "the most that is read of a device") {
			t.Errorf("%v: exit %d, %q", args, code, errs)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
			t.Errorf("%v took %d MiB of memory", args, took>>20)
		}
	}
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	var out, errOut bytes.Buffer
	if code := run([]string{"tokenize", "--model", model}, zero, &out, &errOut); code != exitData {
		t.Errorf("tokenize < /dev/zero: exit %d, %q", code, errOut.String())
	}
}

// TestReadBounded reads files of any size whole, and what is longer than allowed not at all.
func TestReadBounded(t *testing.T) {
	for _, n := range []int{0, 1, 4096, 1 << 20} {
		path := filepath.Join(t.TempDir(), "text")
		want := strings.Repeat("x", n)
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readBounded(file, path)
		file.Close()
		if err != nil || got != want {
			t.Errorf("%d bytes: %d read, %v", n, len(got), err)
		}
	}
	large := filepath.Join(t.TempDir(), "sparse")
	file, err := os.Create(large)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(maxFileBytes + 1); err != nil {
		t.Skip(err)
	}
	if _, err := readBounded(file, large); exitCode(err) != exitData || !strings.Contains(err.Error(), "more than 1GiB") {
		t.Errorf("a file too large: %v", err)
	}
}

// TestProfileOnFullDisk fails where the profile could not be written, however well the command went.
func TestProfileOnFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	for _, kind := range []string{"--cpu-profile", "--memory-profile"} {
		if code, _, errs := inferCommand(t, "policies", kind, "/dev/full"); code != exitFailed || !strings.Contains(errs, "no space left") {
			t.Errorf("%s: exit %d, %q", kind, code, errs)
		}
		path := filepath.Join(t.TempDir(), "profile")
		if code, _, errs := inferCommand(t, "policies", kind, path); code != exitDone || errs != "" {
			t.Errorf("%s: exit %d, %q", kind, code, errs)
		}
		if st, err := os.Stat(path); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v, %v", kind, st, err)
		}
	}
}

// TestUnreadableModel has exit code 3 wherever a model is missing or cannot be read.
func TestUnreadableModel(t *testing.T) {
	for err, want := range map[error]int{
		&fs.PathError{Op: "open", Path: "m.gguf", Err: syscall.EACCES}: exitData,
		&fs.PathError{Op: "open", Path: "m.gguf", Err: syscall.ENOENT}: exitData,
		&fs.PathError{Op: "read", Path: "m.gguf", Err: syscall.EIO}:    exitData,
		&fs.PathError{Op: "open", Path: "m.gguf", Err: syscall.EMFILE}: exitMemory,
		errors.New("else"): exitFailed,
	} {
		if got := exitCode(modelError(err)); got != want {
			t.Errorf("%v: exit %d, want %d", err, got, want)
		}
	}
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	noTokenizer, noModel := tinyFolder(t, "llama_gqa", nil), filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(noModel, []byte("GGUF"), 0o000); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(noTokenizer, "tokenizer.json"), 0o000); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	for _, model := range []string{noModel, noTokenizer} {
		for _, args := range [][]string{{"generate", "--model", model, "x"}, {"tokenize", "--model", model}, {"bench", "--model", model},
			{"logits", "--model", model, "--ids-file", idsFile(t, "[1]"), "--out", out}, {"quantize", model, out, "--type", "Q8_0"}} {
			if code, _, errs := inferCommand(t, args...); code != exitData || !strings.Contains(errs, "permission denied") {
				t.Errorf("%v: exit %d, %q", args, code, errs)
			}
		}
	}
}

// TestModelFeature has exit code 3 for a model that asks for what is not computed here: the command line is right.
func TestModelFeature(t *testing.T) {
	dir := tinyFolder(t, "gpt2", map[string]any{"scale_attn_by_inverse_layer_idx": true})
	for _, args := range [][]string{{"generate", "--model", dir, "x"}, {"show", dir}, {"fit", dir}} {
		if code, _, errs := inferCommand(t, args...); code != exitData || !strings.Contains(errs, "scale_attn_by_inverse_layer_idx") {
			t.Errorf("%v: exit %d, %q", args, code, errs)
		}
	}
}

// TestPromptOverTheContext has one exit code and one wording in every command.
func TestPromptOverTheContext(t *testing.T) {
	model, ids, out := tinyGGUF(t), idsFile(t, "["+strings.Repeat("5, ", 39)+"5]"), filepath.Join(t.TempDir(), "out")
	for _, args := range [][]string{
		{"generate", "--model", model, "--ids-file", ids, "-n", "1"},
		{"logits", "--model", model, "--ids-file", ids, "--out", out},
		{"kv", "--model", model, "--ids-file", ids, "--out", out},
		{"bench", "--model", model, "-p", "40", "-n", "0"},
		{"perplexity", "--model", model, "--file", ids, "--chunk", "40"},
	} {
		code, _, errs := inferCommand(t, append(args, "--context", "16")...)
		if code != exitMemory || !strings.Contains(errs, "40 prompt tokens") || !strings.Contains(errs, "the context holds 16: does not fit the context; shorten the prompt or raise --context") {
			t.Errorf("%v: exit %d, %q", args, code, errs)
		}
	}
}

// overwriter writes a file again, in place, when something is written to it.
type overwriter struct {
	path string
	data []byte
}

func (o overwriter) Write(p []byte) (int, error) {
	return len(p), os.WriteFile(o.path, o.data, 0o644)
}

// TestModelWrittenOverWhileGenerating ends with exit code 3, not as if the text were the model's.
func TestModelWrittenOverWhileGenerating(t *testing.T) {
	data, err := os.ReadFile(tinyGGUF(t))
	if err != nil {
		t.Fatal(err)
	}
	const header = 16 << 10
	broken := append(slices.Clone(data[:header]), bytes.Repeat([]byte{0xff}, len(data)-header)...) // all weights NaN
	for _, over := range [][]byte{data, broken} {
		path, past := filepath.Join(t.TempDir(), "m.gguf"), time.Now().Add(-time.Hour)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		code := run([]string{"generate", "--raw", "--model", path, "-n", "8", "--ignore-eos", "The"}, strings.NewReader(""), overwriter{path, over}, &errs)
		if code != exitData || !strings.Contains(errs.String(), "changed while in use") || strings.Contains(errs.String(), "not finite") {
			t.Errorf("exit %d, %q", code, errs.String())
		}
	}
}
