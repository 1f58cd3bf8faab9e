package serve

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"terrace/engine"
	"terrace/tokenizer"
)

// TestInfill: the prompt is what llama.cpp makes of prefix, prompt, suffix and further files; the answer ends at the tokens that end a part.
func TestInfill(t *testing.T) {
	b := newBenchOf(t, func(v *tokenizer.Vocab) {
		v.Types = slices.Clone(v.Types)
		for i, name := range []string{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"} {
			id := len(v.Tokens) - 1 - i
			v.Merges = slices.DeleteFunc(slices.Clone(v.Merges), func(m string) bool {
				return strings.ReplaceAll(m, " ", "") == v.Tokens[id] || slices.Contains(strings.Fields(m), v.Tokens[id])
			})
			v.Tokens[id], v.Types[id] = name, tokenizer.TypeControl
		}
	}, func() engine.Options { return engine.Options{Context: 400} }, Options{Queue: 4}, func(*engine.Engine) {})
	fim, ok := b.tok.FIM()
	if last := b.tok.Size() - 1; !ok || fim != (tokenizer.FIM{Prefix: last, Suffix: last - 1, Middle: last - 2, Pad: -1, Repo: last - 3, File: last - 4}) {
		t.Fatalf("%+v %v", fim, ok)
	}
	text := func(s string) []int {
		ids, err := b.tok.Encode(s, false, false)
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	var start []int
	if bos, ok := b.tok.BOS(); ok && b.tok.AddsBOS() {
		start = []int{bos}
	}
	start = slices.Concat(start, []int{fim.Repo}, text("myproject\n"))
	hole := slices.Concat([]int{fim.File}, text("filename\n"), []int{fim.Prefix}, text("def f(<|fim_suffix|>"), text("x"), []int{fim.Suffix}, text("return"), []int{fim.Middle})
	extra := slices.Concat([]int{fim.File}, text("a.py\n"), text("import b"), []int{fim.File}, text("tmp\n"), text("c"))
	for body, prompt := range map[string][]int{
		`{"input_prefix": "def f(<|fim_suffix|>", "prompt": "x", "input_suffix": "return"`:                                                                           slices.Concat(start, hole),
		`{"input_prefix": "def f(<|fim_suffix|>", "prompt": "x", "input_suffix": "return", "input_extra": [{"filename": "a.py", "text": "import b"}, {"text": "c"}]`: slices.Concat(start, extra, hole),
	} {
		res, err := b.alone.Generate(t.Context(), engine.Request{IDs: prompt, MaxTokens: 12, IgnoreEOS: true, Text: b.tok.NewDetokenizer()})
		if err != nil {
			t.Fatal(err)
		}
		status, out := b.post("/infill", body+`, "n_predict": 12, "temperature": 0, "ignore_eos": true}`)
		if want := strings.ToValidUTF8(res.Text, "\uFFFD"); status != 200 || dig(t, out, "content") != want || dig(t, out, "tokens_evaluated") != float64(len(prompt)) {
			t.Errorf("%s: %d %s, want %q of %d tokens", body, status, out, want, len(prompt))
		}
	}
	whole := slices.Concat(start, []int{fim.File}, text("filename\n"), []int{fim.Prefix}, text("ab"), []int{fim.Suffix}, text("cd"), []int{fim.Middle})
	for path, body := range map[string]string{"/v1/completions": `{"prompt": "ab", "suffix": "cd", "max_tokens": 3, "logit_bias": {"%d": 100}}`, "/api/generate": `{"model": "small", "prompt": "ab", "suffix": "cd", "stream": false, "options": {"num_predict": 3}}`} {
		if strings.Contains(body, "%d") {
			body = fmt.Sprintf(body, fim.File)
		}
		status, out := b.post(path, body)
		at := map[string]string{"/v1/completions": "usage/prompt_tokens", "/api/generate": "prompt_eval_count"}[path]
		if status != 200 || dig(t, out, at) != float64(len(whole)) || path == "/v1/completions" && dig(t, out, "usage/completion_tokens") != 1.0 {
			t.Errorf("%s: %d %s, want %d prompt tokens", path, status, out, len(whole))
		}
	}
	for body, name := range map[string]string{`{"input_suffix": "a"}`: "input_prefix", `{"input_prefix": "a"}`: "input_suffix", `{"input_prefix": "a", "input_suffix": "b", "prompt": [1]}`: "prompt", `{"input_prefix": "a", "input_suffix": "b", "input_extra": [{}]}`: "input_extra"} {
		if status, out := b.post("/infill", body); status != 400 || !strings.Contains(out, name) {
			t.Errorf("%s: %d %s", body, status, out)
		}
	}
	if status, out := b.post("/v1/completions", `{"prompt": ["a"], "suffix": "b"}`); status != 400 || !strings.Contains(out, "suffix") {
		t.Errorf("a list with a suffix: %d %s", status, out)
	}
}

// TestRerank: documents by the cosine of their vectors, the nearest first.
func TestRerank(t *testing.T) {
	b, e := embeddingBench(t)
	texts := []string{"hello world", "the fox", "hello hello", "a quick brown fox"}
	var ids [][]int32
	for _, s := range texts {
		ids = append(ids, e.Tokens(s))
	}
	vectors, err := e.Embed(ids)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		Index    int
		Score    float64 `json:"relevance_score"`
		Document *struct{ Text string }
	}
	var want []result
	for i, v := range vectors[1:] {
		var dot, x, y float64
		for k := range v {
			dot, x, y = dot+float64(v[k]*vectors[0][k]), x+float64(v[k]*v[k]), y+float64(vectors[0][k]*vectors[0][k])
		}
		want = append(want, result{Index: i, Score: dot / math.Sqrt(x) / math.Sqrt(y)})
	}
	slices.SortFunc(want, func(a, b result) int { return int(math.Copysign(1, b.Score-a.Score)) })
	for _, path := range []string{"/v1/rerank", "/rerank", "/reranking", "/v1/reranking"} {
		status, out := b.post(path, `{"model": "tiny-bert", "query": "hello world", "documents": ["the fox", {"text": "hello hello"}, "a quick brown fox"], "top_n": 2, "return_documents": true}`)
		var got struct {
			Results []result
			Usage   struct {
				PromptTokens int `json:"prompt_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(out), &got, json.MatchCaseInsensitiveNames(true)); err != nil || status != 200 || len(got.Results) != 2 || got.Usage.PromptTokens != len(slices.Concat(ids...)) {
			t.Fatalf("%s: %d %s %v", path, status, out, err)
		}
		for i, r := range got.Results {
			if r.Index != want[i].Index || math.Abs(r.Score-want[i].Score) > 1e-5 || r.Document == nil || r.Document.Text != texts[1+r.Index] {
				t.Errorf("%s: result %d %+v, want %+v", path, i, r, want[i])
			}
		}
	}
	for body, name := range map[string]string{`{"documents": ["a"]}`: "query", `{"query": "a"}`: "documents", `{"query": "a", "documents": [3]}`: "documents", `{"query": "a", "documents": ["b"], "top_n": 0}`: "top_n", `{"query": "a", "documents": ["` + strings.Repeat("fox ", 600) + `"]}`: "documents"} {
		if status, out := b.post("/v1/rerank", body); status != 400 || !strings.Contains(out, name) {
			t.Errorf("%.60s: %d %s", body, status, out)
		}
	}
	if status, _ := b.post("/v1/rerank", `{"model": "other-name", "query": "a", "documents": ["b"]}`); status != 404 {
		t.Errorf("another encoder: %d", status)
	}
}
