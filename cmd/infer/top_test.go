package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTop: a picture has texts and tiers as the server tells them, and rates since the one before.
func TestTop(t *testing.T) {
	const picture = `{"at_ms":%d,"tiers":[{"name":"host","used_bytes":1048576,"peak_bytes":2097152,"capacity_bytes":0}],"moved":[{"from":"host","to":"ssd","bytes":%d}],` +
		`"hit_rate":0.25,"tokens":%d,"running":1,"waiting":2,"sequences":[{"id":7,"state":"reading","policy":"quest\u001b[31m","prompt_tokens":900,"read_tokens":512,"generated_tokens":0,"kv_bytes":3145728,"ms":1500}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/terrace/tiers" || r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: "+picture+"\n\n", 1000, 0, 100)
		fmt.Fprintf(w, "data: "+picture+"\n\n", 3000, 4<<20, 150)
	}))
	defer server.Close()
	addr, key := strings.TrimPrefix(server.URL, "http://"), filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("\ufeffsecret\nother\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := inferCommand(t, "top", "--addr", server.URL+"/", "--api-key-file", key)
	for _, want := range []string{"1 running, 2 waiting, 25.0 tokens/s, 25.0 % of what", "host to ssd: 4MiB, 2MiB/s", `quest\x1b[31m`} {
		if code != exitDone || !strings.Contains(out, want) {
			t.Errorf("exit %d, no %q in %q, %s", code, want, out, errs)
		}
	}
	for _, row := range []string{"host 1MiB 2MiB -", "7 reading 900 512 0 3MiB 1.5"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), row) {
			t.Errorf("no row %q in %q", row, out)
		}
	}
	var p served
	if code, out, errs = inferCommand(t, "top", "--addr", addr, "--api-key-file", key, "--once", "--json"); code != exitDone || json.Unmarshal([]byte(out), &p) != nil || p.AtMS != 1000 {
		t.Errorf("exit %d, %q, %s", code, out, errs)
	}
	if code, _, errs = inferCommand(t, "top", "--addr", addr); code != exitFailed || !strings.Contains(errs, "--api-key-file FILE") {
		t.Errorf("without the key: exit %d, %s", code, errs)
	}
	if code, _, errs = inferCommand(t, "top", "--addr", addr, "--api-key-file", key, "--json"); code != exitFailed || !strings.Contains(errs, "has ended the stream") {
		t.Errorf("after the stream's end: exit %d, %s", code, errs)
	}
}

// TestTopFits: a picture is cut to the terminal, so that the next one lies over it line by line; elsewhere it is whole.
func TestTopFits(t *testing.T) {
	const picture = "123456789\nab\nc\nd\n"
	for want, s := range map[string]pane{
		"123456789\nab\nc\nd\n":          {end: "\n"},
		"<12345…|ab|c|d|>":               {home: "<", end: "|", rest: ">", width: 6, height: 5},
		"<123456789|ab|… 2 lines more|>": {home: "<", end: "|", rest: ">", width: 20, height: 4},
		"<123456789|ab|c|d|>":            {home: "<", end: "|", rest: ">", width: 9},
	} {
		if got := s.fit(picture); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}
