package serve

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"terrace/engine"
	"terrace/model/bert"
	"terrace/weights"
)

func embeddingBench(t *testing.T) (*bench, *bert.Encoder) {
	t.Helper()
	file, err := weights.Open("../model/bert/testdata/tiny")
	if err != nil {
		t.Fatal(err)
	}
	e, err := bert.Open(file, bert.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, engine.Options{}, Options{Encoders: &Encoders{e, "tiny-bert"}})
	t.Cleanup(func() { e.Close(); file.Close() })
	return b, e
}

// TestEmbeddings: texts, ids and lists of them, as numbers and as base64, are the encoder's.
func TestEmbeddings(t *testing.T) {
	b, e := embeddingBench(t)
	want, err := e.Embed([][]int32{e.Tokens("hello world"), e.Tokens("the fox")})
	if err != nil {
		t.Fatal(err)
	}
	for body, n := range map[string]int{
		`{"model":"tiny-bert","input":"hello world"}`:                                                                              1,
		`{"input":["hello world","the fox"],"encoding_format":"float"}`:                                                            2,
		`{"input":` + jsonOf(t, e.Tokens("hello world")) + `,"dimensions":32,"user":"somebody"}`:                                   1,
		`{"input":[` + jsonOf(t, e.Tokens("hello world")) + `,` + jsonOf(t, e.Tokens("the fox")) + `],"encoding_format":"base64"}`: 2,
	} {
		code, text := b.post("/v1/embeddings", body)
		var got struct {
			Object, Model string
			Data          []struct {
				Object    string
				Index     int
				Embedding any
			}
			Usage struct {
				PromptTokens int `json:"prompt_tokens"`
				TotalTokens  int `json:"total_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(text), &got, json.MatchCaseInsensitiveNames(true)); err != nil || code != 200 || len(got.Data) != n || got.Model != "tiny-bert" || got.Object != "list" {
			t.Fatalf("%s: %d %s %v", body, code, text, err)
		}
		if want := []int{4, 4 + len(e.Tokens("the fox"))}[n-1]; got.Usage.PromptTokens != want || got.Usage.TotalTokens != want {
			t.Errorf("%s: usage %+v, want %d", body, got.Usage, want)
		}
		for i, d := range got.Data {
			if d.Index != i || d.Object != "embedding" {
				t.Errorf("%s: %+v", body, d)
			}
			for j, x := range floatsOf(t, d.Embedding) {
				if math.Abs(x-float64(want[i][j])) > 1e-6 {
					t.Fatalf("%s: number %d of text %d is %g, want %g", body, j, i, x, want[i][j])
				}
			}
		}
	}
	models, err := http.Get(b.http.URL + "/v1/models/tiny-bert")
	if err != nil {
		t.Fatal(err)
	}
	defer models.Body.Close()
	if models.StatusCode != http.StatusOK {
		t.Errorf("GET /v1/models/tiny-bert: %s", models.Status)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func floatsOf(t *testing.T, v any) (out []float64) {
	t.Helper()
	switch v := v.(type) {
	case string:
		raw, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(raw) > 0; raw = raw[4:] {
			out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
		}
	case []any:
		for _, x := range v {
			out = append(out, x.(float64))
		}
	}
	if len(out) != 32 {
		t.Fatalf("%d numbers", len(out))
	}
	return out
}

// TestEmbeddingsRefused: each bad request is a 4xx that names the field.
func TestEmbeddingsRefused(t *testing.T) {
	b, _ := embeddingBench(t)
	for body, c := range map[string]struct {
		code int
		says string
	}{
		`{"model":"other","input":"x"}`:          {404, "model"},
		`{}`:                                     {400, "input"},
		`{"input":""}`:                           {400, "input"},
		`{"input":[]}`:                           {400, "input"},
		`{"input":["a",1]}`:                      {400, "input"},
		`{"input":[-1]}`:                         {400, "input"},
		`{"input":[99999999]}`:                   {400, "input"},
		`{"input":[[]]}`:                         {400, "input"},
		`{"input":{"a":1}}`:                      {400, "input"},
		`{"input":"x","dimensions":16}`:          {400, "dimensions"},
		`{"input":"x","encoding_format":"int8"}`: {400, "encoding_format"},
		`{"input":"x","prompt":"y"}`:             {400, "prompt"},
		`{"input":"` + strings.Repeat("dog ", 200) + `"}`:     {400, "at most 110"},
		`{"input":[` + strings.Repeat(`"a",`, 2048) + `"a"]}`: {400, "2048"},
	} {
		if code, text := b.post("/v1/embeddings", body); code != c.code || !strings.Contains(text, c.says) || !strings.Contains(text, `"error"`) {
			t.Errorf("%.60s: %d %s", body, code, text)
		}
	}
	alone := newBench(t, engine.Options{}, Options{})
	if code, text := alone.post("/v1/embeddings", `{"input":"x"}`); code != 404 || !strings.Contains(text, "--embeddings") {
		t.Errorf("without an encoder: %d %s", code, text)
	}
}
