package longbench_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"

	"terrace/eval"
	"terrace/eval/local"
	"terrace/eval/longbench"
	"terrace/internal/golden"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/vocab"
)

// reference is a line of testdata/truncation.jsonl (see truncation.py beside it).
type reference struct {
	Task   string `json:"task"`
	Row    int    `json:"row"`
	Case   string `json:"case"`
	Prompt string `json:"prompt"`
	Cut    int    `json:"cut"`
	N      int    `json:"n"`
	IDs    string `json:"ids"`
}

func digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

func digestIDs(ids []int) string {
	raw := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
	}
	return digest(raw)
}

// textRunner is a runner that only tokenises, with a model's own tokenizer.
func textRunner(t *testing.T, path string) eval.Runner {
	t.Helper()
	file, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	dir := "" // the vocabulary is in the file
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		dir = path
	}
	v, err := vocab.FromModel(file.Meta(), dir)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	return local.New(eval.Model{Name: "text only"}, tok, nil)
}

// Prompts are Python's str.format of the official templates byte for byte, and what the model reads after the cut and the
// chat template is what transformers makes of them token for token, on every shared row.
func TestPromptsAndTruncationAgainstTransformers(t *testing.T) {
	dir := golden.Shared(t, "data", "longbench")
	byCase := map[string]map[string]reference{}
	for _, r := range golden.Lines[reference](t, "testdata/truncation.jsonl") {
		if byCase[r.Case] == nil {
			byCase[r.Case] = map[string]reference{}
		}
		byCase[r.Case][r.Task+"/"+strconv.Itoa(r.Row)] = r
	}
	for name, want := range byCase {
		t.Run(strings.ReplaceAll(name, "/", " at "), func(t *testing.T) {
			model, limit, _ := strings.Cut(name, "/")
			path := ""
			if model == "tiny" {
				path = golden.Shared(t, "data", "golden", "tiny_hf", "llama_gqa")
			} else {
				path = golden.Model(t, "smollm2:135m")
			}
			r := textRunner(t, path)
			n, err := strconv.Atoi(limit)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, dir, r, n, want)
		})
	}
}

func compare(t *testing.T, dir string, r eval.Runner, limit int, want map[string]reference) {
	s, err := longbench.New(longbench.Options{Data: dir, MaxContext: limit})
	if err != nil {
		t.Fatal(err)
	}
	samples, err := s.Samples(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	known, cuts := 0, 0
	for _, x := range samples {
		w, ok := want[x.Task+"/"+x.ID]
		row := x.Data.(*longbench.Row)
		whole, err := s.Fill(x.Task, row)
		if err != nil {
			t.Fatal(err)
		}
		if !ok || digest([]byte(whole)) != w.Prompt {
			continue
		}
		known++
		ids, cut, err := s.Prompt(r, x.Task, row)
		if err != nil {
			t.Fatal(err)
		}
		if cut > 0 {
			cuts++
		}
		if cut != w.Cut || len(ids) != w.N || digestIDs(ids) != w.IDs {
			t.Errorf("%s/%s: %d tokens after %d were cut (%s), transformers has %d after %d (%s)", x.Task, x.ID, len(ids), cut, digestIDs(ids), w.N, w.Cut, w.IDs)
		}
	}
	if known == 0 {
		t.Skip("the shared rows are not those of testdata/truncation.jsonl: make it again with truncation.py")
	}
	if known != len(samples) || len(samples) != len(want) || cuts < known/2 {
		t.Errorf("%d of %d prompts are the reference's byte for byte (it has %d), %d of them cut", known, len(samples), len(want), cuts)
	}
}
