package serve

import (
	"net/http"
	"strings"
	"testing"

	"terrace/engine"
)

// TestOrigins: pages of others are refused, also where their forms send no JSON; those of the server, of localhost and those named are
// served and told so; programs send no Origin.
func TestOrigins(t *testing.T) {
	b := newBench(t, engine.Options{Context: 64}, Options{Queue: 4, Origins: []string{"https://chat.example"}})
	ask := func(method string, headers ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequest(method, b.http.URL+"/v1/completions", strings.NewReader(`{"prompt": "a", "max_tokens": 1}`))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		return a
	}
	for _, c := range []struct {
		status  int
		headers []string
	}{
		{200, nil},
		{200, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{200, []string{"Sec-Fetch-Site", "same-origin"}},
		{200, []string{"Origin", b.http.URL}},
		{200, []string{"Origin", "http://localhost:3000", "Sec-Fetch-Site", "cross-site"}},
		{200, []string{"Origin", "https://chat.example"}},
		{403, []string{"Origin", "http://chat.example"}},
		{403, []string{"Origin", "https://chat.example.evil"}},
		{403, []string{"Origin", "http://evil.example", "Content-Type", "text/plain"}},
		{403, []string{"Origin", "http://localhost.evil.example"}},
		{403, []string{"Origin", "null"}},
		{403, []string{"Origin", "file://localhost"}},
		{403, []string{"Sec-Fetch-Site", "cross-site"}},
	} {
		a := ask(http.MethodPost, c.headers...)
		if a.StatusCode != c.status {
			t.Errorf("%q: %d, want %d", c.headers, a.StatusCode, c.status)
		}
		if allowed := a.Header.Get("Access-Control-Allow-Origin"); (allowed != "") != (c.status == 200 && len(c.headers) > 0 && c.headers[0] == "Origin") {
			t.Errorf("%q: allowed is %q", c.headers, allowed)
		}
	}
	a := ask(http.MethodOptions, "Origin", "https://chat.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization")
	if a.StatusCode != 204 || a.Header.Get("Access-Control-Allow-Headers") != "authorization" || a.Header.Get("Access-Control-Allow-Origin") != "https://chat.example" {
		t.Errorf("a preflight: %d %v", a.StatusCode, a.Header)
	}
	if a := ask(http.MethodOptions, "Origin", "http://evil.example", "Access-Control-Request-Method", "POST"); a.StatusCode != 403 || a.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a preflight of another: %d %v", a.StatusCode, a.Header)
	}
}

// TestMetricsKeys: what scrapes opens /metrics with a key of its own, or without one where that is chosen, and nothing else.
func TestMetricsKeys(t *testing.T) {
	for _, c := range []struct {
		o    Options
		key  string
		want [2]int // of /metrics and /v1/models
	}{
		{Options{Keys: []string{"sk-1"}}, "", [2]int{401, 401}},
		{Options{Keys: []string{"sk-1"}}, "sk-1", [2]int{200, 200}},
		{Options{Keys: []string{"sk-1"}, MetricsKeys: []string{"scrape"}}, "scrape", [2]int{200, 401}},
		{Options{Keys: []string{"sk-1"}, MetricsKeys: []string{"scrape"}}, "other", [2]int{401, 401}},
		{Options{Keys: []string{"sk-1"}, OpenMetrics: true}, "", [2]int{200, 401}},
	} {
		b := newBench(t, engine.Options{}, c.o)
		for i, path := range []string{"/metrics", "/v1/models"} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", b.http.URL+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if c.key != "" {
				r.Header.Set("Authorization", "Bearer "+c.key)
			}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != c.want[i] {
				t.Errorf("%s with key %q of %+v: %d, want %d", path, c.key, c.o.MetricsKeys, res.StatusCode, c.want[i])
			}
		}
	}
}
