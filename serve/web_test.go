package serve

import (
	"bufio"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

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

// TestMapsLive: who asks sees where the tokens of each text that decodes lie, under its own policy; who does not ask sees none.
func TestMapsLive(t *testing.T) {
	b := newBench(t, engine.Options{Batch: 2}, Options{})
	watch := func(query string) (next func() picture) {
		r, err := http.Get(b.http.URL + "/v1/terrace/tiers" + query)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Body.Close() })
		lines := bufio.NewScanner(r.Body)
		lines.Buffer(nil, 1<<20)
		return func() (p picture) {
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
	}
	mapped, plain := watch("?cache=1"), watch("")
	mapped()
	gate, reached := make(chan struct{}), make(chan struct{})
	var once sync.Once
	asked := func() int {
		b.loop.mu.Lock()
		defer b.loop.mu.Unlock()
		return b.loop.jobs
	}
	both := false
	b.loop.crash = func(string) { // before a step: both texts are running when it is held
		for !both { // the first does not end before the second comes
			if both = asked() == 2; !both {
				<-b.loop.wake
			}
		}
		b.loop.signal()
		if len(b.loop.running) == 2 && b.loop.running[0].gen != nil && b.loop.running[1].gen != nil && b.loop.running[0].gen.Tokens() > 2 && b.loop.running[1].gen.Tokens() > 2 {
			once.Do(func() {
				w := &b.loop.watch
				w.mu.Lock()
				w.mapped, w.now.taken = time.Time{}, time.Time{} // the next picture is due
				w.mu.Unlock()
				w.look(b.loop, false) // on the loop's own goroutine
				close(reached)
				<-gate
			})
		}
	}
	done := make(chan int, 2)
	for _, policy := range []string{"full", "streaming_llm:budget=40"} {
		go func() {
			code, _ := b.post("/v1/completions", `{"prompt":"`+strings.Repeat("a b c d ", 20)+`","max_tokens":200,"ignore_eos":true,"kv_policy":"`+policy+`"}`)
			done <- code
		}()
	}
	<-reached
	var p picture
	for len(p.Sequences) < 2 || p.Sequences[0].Cache == nil || p.Sequences[1].Cache == nil {
		p = mapped()
	}
	for _, q := range p.Sequences {
		m, e := q.Cache, b.loop.e
		if len(m.Rows) != len(e.Cache()) || len(m.Layers) != len(m.Rows) || len(m.Rows[0]) != 2*((q.Read+m.Cell-1)/m.Cell) || len(m.Rows[0]) > 2*mapCells {
			t.Fatalf("%s: %d rows of %d letters, cells of %d for %d tokens", q.Policy, len(m.Rows), len(m.Rows[0]), m.Cell, q.Read)
		}
		for _, row := range m.Rows {
			if gone := strings.Contains(row, "aa"); gone != (q.Policy != "full") || row[0] == 'a' || row[1] != 'a' {
				t.Errorf("%s: %s", q.Policy, row)
			}
		}
	}
	for p = plain(); len(p.Sequences) < 2; p = plain() {
	}
	for _, q := range p.Sequences {
		if q.Cache != nil {
			t.Error("a map that was not asked for")
		}
	}
	close(gate)
	for range 2 {
		if code := <-done; code != http.StatusOK {
			t.Error(code)
		}
	}
}
