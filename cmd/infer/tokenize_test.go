package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// tinyGGUF is a golden model of 320 tokens beside the repository, or a skip.
func tinyGGUF(t *testing.T) string {
	t.Helper()
	shared := os.Getenv("TERRACE_SHARED")
	if shared == "" {
		shared = filepath.Join("..", "..", "..", "shared")
	}
	path := filepath.Join(shared, "data", "golden", "tiny_gguf", "tiny-F32.gguf")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no shared golden data (TERRACE_SHARED): %v", err)
	}
	return path
}

func runTokenize(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(append([]string{"tokenize"}, args...), strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestTokenizeCommand(t *testing.T) {
	model := tinyGGUF(t)
	data, err := os.ReadFile(filepath.Join(filepath.Dir(model), "tokens.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Text string `json:"text"`
		IDs  []int  `json:"ids"`
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		code, out, errs := runTokenize(r.Text, "--model", model)
		var ids []int
		if err := json.Unmarshal([]byte(out), &ids); code != 0 || err != nil || !reflect.DeepEqual(ids, r.IDs) {
			t.Errorf("%q: exit %d, %v, %q %q", r.Text, code, err, out, errs)
		}
		if code, given, errs := runTokenize("", "--model", model, "--", r.Text); code != 0 || given != out {
			t.Errorf("%q as an argument: exit %d, %q %q", r.Text, code, given, errs)
		}
		if code, back, errs := runTokenize(out, "--model", model, "--ids"); code != 0 || back != r.Text {
			t.Errorf("back: exit %d, %q %q", code, back, errs)
		}
	}
	in := `{"text": "the", "add_special": true, "parse_special": true}` + "\n\n" + `{"ids": [53, 73, 70], "name": "ignored"}` + "\n" + `{"text_hex": "746865"}` + "\n" + `{"ids": [129]}` + "\n" + `{"ids": []}` + "\n" + `{"text": ""}`
	code, out, errs := runTokenize(in, "--model", model, "--jsonl")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != 6 || lines[4] != `{"text":""}` || lines[5] != `{"ids":[]}` || lines[0] != lines[2] || lines[1] != `{"text":"The"}` || !strings.HasPrefix(lines[3], `{"text_hex":`) {
		t.Errorf("exit %d: %q %q", code, out, errs)
	}
}

func TestTokenizeErrors(t *testing.T) {
	model := tinyGGUF(t)
	for _, c := range []struct {
		stdin string
		args  []string
		code  int
		want  string
	}{
		{"", []string{"--ids", "--jsonl"}, exitUsage, "exclude each other"},
		{"", []string{"two", "texts"}, exitUsage, "in quotes"},
		{"", []string{"--jsonl", "a text"}, exitUsage, "takes no text"},
		{"", []string{"--ids", "--model", model, "nonsense"}, exitData, "the argument"},
		{"nonsense", []string{"--ids", "--model", model}, exitData, "JSON array"},
		{"[320]", []string{"--ids", "--model", model}, exitData, "out of range"},
		{"[-1]", []string{"--ids", "--model", model}, exitData, "out of range"},
		{"{\"text\": \"a\"}\n{}", []string{"--jsonl", "--model", model}, exitData, "line 2"},
		{"{\"ids\": null}", []string{"--jsonl", "--model", model}, exitData, "neither text nor ids"},
		{"{\"text\": 5}", []string{"--jsonl", "--model", model}, exitData, "line 1"},
		{"{\"text\": \"\xff\"}", []string{"--jsonl", "--model", model}, exitData, "text_hex"},
		{"{\"text_hex\": \"xx\"}", []string{"--jsonl", "--model", model}, exitData, "text_hex"},
	} {
		code, _, errs := runTokenize(c.stdin, c.args...)
		if code != c.code || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q %v: exit %d, %q; want exit %d with %q", c.stdin, c.args, code, errs, c.code, c.want)
		}
	}
}
