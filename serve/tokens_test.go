package serve

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"terrace/engine"
)

// vLLM's fields of /tokenize, /detokenize and /tokenizer_info, which lm-evaluation-harness 0.4.13 asks for
// (lm_eval/utils.py, RemoteTokenizer), say what llama.cpp's do.
func TestRemoteTokenizer(t *testing.T) {
	b := newBench(t, engine.Options{Context: 256}, Options{})
	_, llama := b.post("/tokenize", `{"content":"a b"}`)
	if code, body := b.post("/tokenize", `{"prompt":"a b","add_special_tokens":false}`); code != http.StatusOK || body != llama {
		t.Errorf("plain: %d %s, want %s", code, body, llama)
	}
	_, llama = b.post("/tokenize", `{"content":"a b","add_special":true}`)
	if _, body := b.post("/tokenize", `{"prompt":"a b"}`); body != llama {
		t.Errorf("vLLM adds special tokens where nothing is said: %s, want %s", body, llama)
	}
	for _, body := range []string{`{"content":"a","prompt":"a"}`, `{"content":"a","add_special_tokens":true}`, `{}`} {
		if code, answer := b.post("/tokenize", body); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, code, answer)
		}
	}
	_, ids := b.post("/tokenize", `{"content":"a b"}`)
	if _, body := b.post("/detokenize", ids); !strings.Contains(body, `"prompt":"a b"`) || !strings.Contains(body, `"content":"a b"`) {
		t.Errorf("detokenize: %s", body)
	}
	r, err := http.Get(b.http.URL + "/tokenizer_info")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for name, at := range map[string]func() (int, bool){"eos_token": b.tok.EOS, "bos_token": b.tok.BOS, "pad_token": b.tok.PAD} {
		id, ok := at()
		if got := dig(t, text, name); ok && got != b.tok.TokenText(id) || !ok && got != nil {
			t.Errorf("%s: %v, token %d (%v)", name, got, id, ok)
		}
	}
	if dig(t, text, "chat_template") != b.tok.Template() || dig(t, text, "model_max_length") != 256.0 {
		t.Errorf("info: %s", text)
	}
}

// TestPiecesMakeTheText: pieces are each token's own bytes, as numbers where they are part of a character, and make the text again.
func TestPiecesMakeTheText(t *testing.T) {
	b := newBench(t, engine.Options{Context: 256}, Options{})
	for _, text := range []string{"a b", "é🎉 日本", " x\n"} {
		body, err := json.Marshal(map[string]any{"content": text, "with_pieces": true})
		if err != nil {
			t.Fatal(err)
		}
		_, out := b.post("/tokenize", string(body))
		var got struct{ Tokens []tokenPiece }
		if err := json.Unmarshal([]byte(out), &got, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		var whole []byte
		for _, x := range got.Tokens {
			switch piece := x.Piece.(type) {
			case string:
				whole = append(whole, piece...)
			case []any:
				var own []byte
				for _, c := range piece {
					own = append(own, byte(c.(float64)))
				}
				if utf8.Valid(own) {
					t.Errorf("%q: %q is a character, and written as numbers", text, own)
				}
				whole = append(whole, own...)
			}
		}
		if string(whole) != text {
			t.Errorf("the pieces of %q make %q: %s", text, whole, out)
		}
	}
}
