package bert

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/internal/golden"
	"terrace/weights"
)

type row struct {
	Text      string
	IDs       []int32
	Embedding []float32
}

func rows(t *testing.T, name string) (out []row) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func open(t testing.TB, dir string, threads int) *Encoder {
	t.Helper()
	file, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	e, err := Open(file, Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// agree compares ids exactly and embeddings to 1e-5 with what transformers computes in double precision (testdata/make.py).
func agree(t *testing.T, e *Encoder, want []row) {
	t.Helper()
	var texts [][]int32
	for _, r := range want {
		ids := e.Tokens(r.Text)
		if !slices.Equal(ids, r.IDs) {
			t.Errorf("%q: ids %v, want %v", r.Text, ids, r.IDs)
		}
		texts = append(texts, e.Cut(r.IDs))
	}
	got, err := e.Embed(texts)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range want {
		if len(texts[i]) < len(r.IDs) {
			continue // the golden is not cut
		}
		worst, dot, square := 0.0, 0.0, 0.0
		for j, x := range r.Embedding {
			worst = max(worst, math.Abs(float64(x-got[i][j])))
			dot += float64(x) * float64(got[i][j])
			square += float64(x) * float64(x)
		}
		if worst > 1e-5 || len(r.Embedding) == len(got[i]) && math.Abs(dot-1) > 1e-5 {
			t.Errorf("%q: off by %g, cosine %g", r.Text, worst, dot/square)
		}
	}
}

func TestTiny(t *testing.T) { agree(t, open(t, "testdata/tiny", 2), rows(t, "tiny.json")) }

func TestMiniLM(t *testing.T) {
	agree(t, open(t, golden.Model(t, "minilm:l6"), 2), rows(t, "minilm.json"))
}

// TestAlone: an embedding depends on neither the texts beside it nor the threads (invariant 1).
func TestAlone(t *testing.T) {
	one, two := open(t, "testdata/tiny", 1), open(t, "testdata/tiny", 3)
	var texts [][]int32
	for _, r := range rows(t, "tiny.json") {
		for range 3 {
			texts = append(texts, one.Cut(r.IDs))
		}
	}
	all, err := two.Embed(texts)
	if err != nil {
		t.Fatal(err)
	}
	for i, ids := range texts {
		alone, err := one.Embed([][]int32{ids})
		if err != nil || !slices.Equal(alone[0], all[i]) {
			t.Fatalf("text %d: alone %v, among others %v (%v)", i, alone, all[i], err)
		}
	}
}

func TestRefused(t *testing.T) {
	e := open(t, "testdata/tiny", 1)
	long := e.Tokens(strings.Repeat("dog ", 200))
	for _, c := range []struct {
		ids  []int32
		want error
	}{{nil, ErrToken}, {[]int32{-1}, ErrToken}, {[]int32{int32(e.Vocab)}, ErrToken}, {long, ErrTooLong}} {
		if _, err := e.Embed([][]int32{{2, 3}, c.ids}); !errors.Is(err, c.want) {
			t.Errorf("%d ids: %v, want %v", len(c.ids), err, c.want)
		}
	}
	cut := e.Cut(long)
	if len(cut) != e.MaxTokens || cut[len(cut)-1] != long[len(long)-1] || len(long) != 202 {
		t.Errorf("%d ids cut to %d, last %d", len(long), len(cut), cut[len(cut)-1])
	}
}

// TestNeighbours: folders as transformers 5 and sentence-transformers 5 save them, against what these compute.
func TestNeighbours(t *testing.T) {
	var want []struct {
		Text      string
		IDs       []int32
		Mean, CLS []float32
	}
	data, err := os.ReadFile(golden.Shared(t, "data", "cases", "bert_v5", "golden.json"))
	if err != nil || json.Unmarshal(data, &want) != nil {
		t.Fatal(err)
	}
	var means, firsts []row
	for _, r := range want {
		means, firsts = append(means, row{r.Text, r.IDs, r.Mean}), append(firsts, row{r.Text, r.IDs, r.CLS})
	}
	agree(t, open(t, golden.Shared(t, "data", "cases", "bert_v5"), 1), means)
	for pooling, rows := range map[string][]row{"mean": means, "cls": firsts, "sideways": nil} {
		dir := filepath.Join(t.TempDir(), "m")
		if err := os.CopyFS(dir, os.DirFS(golden.Shared(t, "data", "cases", "bert_pooling"))); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "1_Pooling/config.json", fmt.Sprintf(`{"embedding_dimension": 8, "pooling_mode": %q}`, pooling))
		if rows != nil {
			agree(t, open(t, dir, 1), rows)
		} else if _, err := weights.Open(dir); err == nil || !strings.Contains(err.Error(), pooling) {
			t.Errorf("pooling %s: %v", pooling, err)
		}
	}
}

// TestTokenizerJSON: what a tokenizer.json asks of a WordPiece tokenizer that is not done is refused by name.
func TestTokenizerJSON(t *testing.T) {
	src := golden.Shared(t, "data", "cases", "bert_v5")
	text, err := os.ReadFile(filepath.Join(src, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	for change, want := range map[[2]string]string{
		{`"WordPiece"`, `"BPE"`}: "BPE", {`"##"`, `"@@"`}: "@@", {`"max_input_chars_per_word": 100`, `"max_input_chars_per_word": 50`}: "max_input_chars_per_word",
		{`"clean_text": true`, `"clean_text": false`}: "clean_text", {`"BertPreTokenizer"`, `"Whitespace"`}: "Whitespace", {`"BertNormalizer"`, `"NFC"`}: "NFC",
		{`"[PAD]": 0`, `"[PAD]": 500`}: "500", {`"[PAD]": 0`, `"[PAD]": 1`}: "[UNK]", {`"lstrip": false`, `"lstrip": true`}: "lstrip",
	} {
		dir := filepath.Join(t.TempDir(), "m")
		if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
			t.Fatal(err)
		}
		edited := strings.ReplaceAll(string(text), change[0], change[1])
		if edited == string(text) {
			edited = strings.ReplaceAll(strings.ReplaceAll(string(text), `":`, `": `), change[0], change[1])
		}
		write(t, dir, "tokenizer.json", edited)
		file, err := weights.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(file, Options{Threads: 1}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want an error that names %s", change, err, want)
		}
		file.Close()
	}
}

// TestBadFolders: a folder that is not what it says is one error with a sentinel, never a panic.
func TestBadFolders(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, dir string){
		"a cut vocabulary":      func(t *testing.T, dir string) { write(t, dir, "vocab.txt", "[UNK]\n[SEP]\n") },
		"a token twice":         func(t *testing.T, dir string) { write(t, dir, "vocab.txt", "[UNK]\n[SEP]\n[CLS]\na\na\n") },
		"more tokens than rows": func(t *testing.T, dir string) { grow(t, dir) },
		"no vocabulary":         func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "vocab.txt")) },
		"no UTF-8":              func(t *testing.T, dir string) { write(t, dir, "vocab.txt", "[UNK]\xff\n") },
		"another tokenizer": func(t *testing.T, dir string) {
			write(t, dir, "tokenizer_config.json", `{"tokenizer_class":"T5Tokenizer"}`)
		},
		"two poolings": func(t *testing.T, dir string) {
			write(t, dir, "1_Pooling/config.json", `{"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":true}`)
		},
		"max pooling": func(t *testing.T, dir string) {
			write(t, dir, "1_Pooling/config.json", `{"pooling_mode_max_tokens":true}`)
		},
		"too long a maximum": func(t *testing.T, dir string) { write(t, dir, "sentence_bert_config.json", `{"max_seq_length":129}`) },
		"relative positions": func(t *testing.T, dir string) {
			edit(t, dir, "config.json", `"model_type"`, `"position_embedding_type": "relative_key", "model_type"`)
		},
		"a decoder": func(t *testing.T, dir string) {
			edit(t, dir, "config.json", `"is_decoder": false`, `"is_decoder": true`)
		},
		"heads that do not share": func(t *testing.T, dir string) {
			edit(t, dir, "config.json", `"num_attention_heads": 4`, `"num_attention_heads": 5`)
		},
		"another width": func(t *testing.T, dir string) {
			edit(t, dir, "config.json", `"intermediate_size": 48`, `"intermediate_size": 64`)
		},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS("testdata/tiny")); err != nil {
			t.Fatal(err)
		}
		change(t, dir)
		file, err := weights.Open(dir)
		if err == nil {
			defer file.Close()
			_, err = Open(file, Options{Threads: 1})
		}
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func edit(t *testing.T, dir, name, from, to string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || !strings.Contains(string(data), from) {
		t.Fatalf("%s has no %s (%v)", name, from, err)
	}
	write(t, dir, name, strings.Replace(string(data), from, to, 1))
}

func grow(t *testing.T, dir string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "vocab.txt"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "vocab.txt", string(data)+"onemore\n")
}

// FuzzTokens: any text has ids of the vocabulary, between [CLS] and [SEP].
func FuzzTokens(f *testing.F) {
	file, err := weights.Open("testdata/tiny")
	if err != nil {
		f.Fatal(err)
	}
	e, err := Open(file, Options{Threads: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("Hello, 你好 [MASK] \xff")
	f.Fuzz(func(t *testing.T, text string) {
		ids := e.Tokens(text)
		if len(ids) < 2 || ids[0] != 2 || ids[len(ids)-1] != 3 || slices.Max(ids) >= int32(e.Vocab) || slices.Min(ids) < 0 {
			t.Errorf("ids %v", ids)
		}
	})
}

// BenchmarkEmbed: one text of 256 tokens through MiniLM.
func BenchmarkEmbed(b *testing.B) {
	e := open(b, golden.Model(b, "minilm:l6"), 2)
	ids := e.Cut(e.Tokens(strings.Repeat("the quick brown fox ", 80)))
	for b.Loop() {
		if _, err := e.Embed([][]int32{ids}); err != nil {
			b.Fatal(err)
		}
	}
}
