package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"

	"terrace/engine"
	"terrace/model"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/vocab"
)

// sweepStride is coprime to 8, so that every position in a byte is met; TERRACE_TEST_SWEEP=1 flips every bit (a minute).
const sweepStride = 23

// TestHeaderSweep flips bits of a GGUF header and loads the model each time, up to eight tokens: each flip is an error, or the
// same tokens, never a panic. Only the values of rotary base and epsilon may give other tokens: any number is valid there.
func TestHeaderSweep(t *testing.T) {
	data, err := os.ReadFile("../../weights/gguf/testdata/tiny.gguf")
	if err != nil {
		t.Fatal(err)
	}
	stride := sweepStride
	if os.Getenv("TERRACE_TEST_SWEEP") != "" {
		stride = 1
	}
	const headerBytes = 2848
	path := filepath.Join(t.TempDir(), "m.gguf")
	want, err := loadAndDecode(t, path, data)
	if err != nil || len(want) != 8 {
		t.Fatalf("the file as it is: %v, %v", want, err)
	}
	counted := map[string]int{}
	for bit := 0; bit < 8*headerBytes; bit += stride {
		data[bit/8] ^= 1 << (bit % 8)
		got, err := loadAndDecode(t, path, data)
		switch {
		case err != nil:
			counted["refused"]++
		case slices.Equal(got, want):
			counted["same"]++
		case inFloat(data, bit/8):
			counted["other figure"]++
		default:
			t.Errorf("bit %d of byte %d: other tokens %v, after %q", bit%8, bit/8, got, data[max(0, bit/8-40):bit/8+1])
		}
		data[bit/8] ^= 1 << (bit % 8)
	}
	t.Logf("%v", counted)
}

// inFloat reports whether byte i belongs to the value of a figure for which every number is valid.
func inFloat(data []byte, i int) bool {
	for _, key := range []string{"llama.rope.freq_base", "llama.attention.layer_norm_rms_epsilon"} {
		at := bytes.Index(data, []byte(key))
		if value := at + len(key) + 4; at > 0 && i >= value && i < value+4 {
			return true
		}
	}
	return false
}

// loadAndDecode writes the file, opens it with its tokenizer and continues a prompt by eight tokens.
func loadAndDecode(t *testing.T, path string, data []byte) (ids []int, err error) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Fatalf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := model.Open(f)
	if err != nil {
		return nil, err
	}
	v, err := vocab.FromModel(f.Meta(), "")
	if err != nil {
		return nil, err
	}
	if _, err := tokenizer.New(v); err != nil {
		return nil, err
	}
	e, err := engine.Open(m, engine.Options{Threads: 1, Exact: true})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	r, err := e.Generate(t.Context(), engine.Request{IDs: []int{1, 54, 3, 7, 5, 24}, MaxTokens: 8, IgnoreEOS: true})
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	return r.IDs, nil
}
