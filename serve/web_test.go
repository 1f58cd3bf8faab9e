package serve

import (
	"bufio"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"terrace/engine"
)

// TestPage: the page and every file that it names are served without a key, load nothing from elsewhere, and say so.
func TestPage(t *testing.T) {
	b := newBench(t, engine.Options{}, Options{Keys: []string{"a secret key"}})
	get := func(path string) (*http.Response, string) {
		t.Helper()
		r, err := http.Get(b.http.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var text strings.Builder
		if _, err := bufio.NewReader(r.Body).WriteTo(&text); err != nil {
			t.Fatal(err)
		}
		return r, text.String()
	}
	r, html := get("/")
	if r.StatusCode != http.StatusOK || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") || !strings.Contains(r.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Fatalf("GET /: %v %v", r.Status, r.Header)
	}
	texts, names := []string{html}, regexp.MustCompile(`(?:src|href)="(page/[^"]+)"|from "\./([^"]+)"`)
	for seen, i := map[string]bool{}, 0; i < len(texts); i++ {
		if at := regexp.MustCompile(`https?://`).FindStringIndex(strings.ReplaceAll(texts[i], "http://www.w3.org/2000/svg", "")); at != nil {
			t.Errorf("something is loaded from elsewhere: %.80q", texts[i][max(0, at[0]-20):])
		}
		for _, m := range names.FindAllStringSubmatch(texts[i], -1) {
			path := "/" + m[1]
			if m[1] == "" {
				path = "/page/" + m[2]
			}
			if seen[path] {
				continue
			}
			seen[path] = true
			r, text := get(path)
			if r.StatusCode != http.StatusOK || text == "" {
				t.Errorf("GET %s: %v", path, r.Status)
			}
			texts = append(texts, text)
		}
	}
	if len(texts) != 6 {
		t.Errorf("%d files, want the page, its style and four scripts", len(texts))
	}
	for _, path := range []string{"/page/none.js", "/page/page.go"} {
		if r, _ := get(path); r.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s: %v", path, r.Status)
		}
	}
	if r, _ := get("/v1/terrace/tiers"); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("GET /v1/terrace/tiers without a key: %v", r.Status)
	}
}

// TestTiersLive: who watches sees at once what lies where, and later what a request has changed.
func TestTiersLive(t *testing.T) {
	b := newBench(t, engine.Options{KVBudgetBytes: 8 << 20}, Options{})
	r, err := http.Get(b.http.URL + "/v1/terrace/tiers")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	read := func() (p picture) {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &p); err != nil {
					t.Fatal(err)
				}
				return p
			}
		}
		t.Fatal("the stream has ended")
		return p
	}
	p := read()
	if len(p.Tiers) != 1 || p.Tiers[0].Name != "host" || p.Tiers[0].UsedBytes != 0 || p.Tiers[0].CapacityBytes != 8<<20 || p.Tokens != 0 {
		t.Errorf("at the start: %+v", p)
	}
	code, answer := b.post("/v1/completions", `{"prompt":"hello","max_tokens":4,"ignore_eos":true}`)
	if code != http.StatusOK || !strings.Contains(answer, `"kv_bytes":`) || strings.Contains(answer, `"kv_bytes":0`) {
		t.Errorf("%d %s", code, answer)
	}
	if !strings.Contains(answer, `"prompt_tokens":`) {
		t.Errorf("%s", answer)
	}
	for p.Tokens == 0 || p.Running > 0 {
		p = read()
	}
	if p.Sequences == nil || len(p.Sequences) > 0 {
		t.Errorf("after a request: texts %v", p.Sequences)
	}
	if p.Tiers[0].PeakBytes == 0 || p.Tiers[0].UsedBytes != 0 {
		t.Errorf("after a request: %+v", p)
	}
}

// TestTexts: a picture has each text with what it has read and made.
func TestTexts(t *testing.T) {
	b := newBench(t, engine.Options{}, Options{})
	var seen []text
	b.loop.crash = func(string) { seen = append(seen, b.loop.texts()...) } // on the loop's goroutine
	if code, answer := b.post("/v1/completions", `{"prompt":"hello there","max_tokens":8,"ignore_eos":true,"kv_policy":"streaming_llm:budget=64"}`); code != http.StatusOK {
		t.Fatal(code, answer)
	}
	made := map[string]int{}
	for _, x := range seen {
		made[x.State] = max(made[x.State], x.Generated)
		if x.Policy != "streaming_llm:budget=64" || x.Prompt == 0 || x.State == "reading" && x.Generated > 0 || x.State == "decoding" && (x.Read < x.Prompt || x.Read > x.Prompt+x.Generated || x.KVBytes == 0) {
			t.Errorf("%+v", x)
		}
	}
	if _, read := made["reading"]; !read || made["decoding"] < 7 {
		t.Errorf("tokens made, by state: %v", made)
	}
}
