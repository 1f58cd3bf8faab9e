package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// rowAnswer is a line of --jsonl's output, as far as tests look.
type rowAnswer struct {
	CachedTokens int    `json:"cached_tokens"`
	Row          int    `json:"row"`
	ID           any    `json:"id"`
	Meta         any    `json:"meta"`
	Text         string `json:"text"`
	TokenIDs     []int  `json:"token_ids"`
	Error        string `json:"error"`
	Seed         uint64 `json:"seed"`
	Logprobs     []struct {
		ID      int     `json:"id"`
		Logprob float64 `json:"logprob"`
		Top     []struct {
			ID      int     `json:"id"`
			Logprob float64 `json:"logprob"`
		} `json:"top"`
	} `json:"logprobs"`
}

func rowAnswers(t *testing.T, text string) map[int]rowAnswer {
	t.Helper()
	out := map[int]rowAnswer{}
	for line := range strings.Lines(text) {
		var a rowAnswer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if _, twice := out[a.Row]; twice {
			t.Fatalf("row %d is there twice", a.Row)
		}
		out[a.Row] = a
	}
	return out
}

// Rows of a file have the answers that each has alone, with its own options and policy; what is wrong with a row stands in its line.
func TestGenerateRows(t *testing.T) {
	model, dir := synthModel(t), t.TempDir()
	in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
	rows := `{"id":"a","prompt":"abc","max_tokens":6,"seed":5}
{"id":[1],"meta":{"x":1},"prompt":"bcd","temperature":0,"logprobs":2}

{"prompt":"abcabcabcabcabc","policy":"streaming_llm:sinks=1,budget=8","seed":9}
{"id":7,"meta":"m","prompt":"a","temprature":1}
nonsense
{"prompt":"a","messages":[]}
{"messages":[{"role":"user","content":"a"}]}
{"prompt":"a","policy":"nope"}
`
	if err := os.WriteFile(in, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"generate", "-m", model, "--raw", "--ignore-eos", "-n", "8", "--jsonl", in, "--out", out, "--batch", "3"}
	if code, stdout, errs := runCommand(args...); code != exitFailed || stdout != "" || !strings.Contains(errs, "5 of 8 rows have errors") {
		t.Fatalf("exit %d: %q %q", code, stdout, errs)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	got := rowAnswers(t, string(raw))
	alone := func(args ...string) (a rowAnswer) {
		t.Helper()
		code, stdout, errs := runCommand(append([]string{"generate", "-m", model, "--raw", "--ignore-eos", "--json", "-n", "8"}, args...)...)
		if err := json.Unmarshal([]byte(stdout), &a); code != exitDone || err != nil {
			t.Fatalf("exit %d: %v %s", code, err, errs)
		}
		return a
	}
	for row, want := range map[int]rowAnswer{1: alone("-n", "6", "--seed", "5", "abc"), 2: alone("--temp", "0", "--logprobs", "2", "bcd"),
		4: alone("--seed", "9", "--policy", "streaming_llm:sinks=1,budget=8", "abcabcabcabcabc")} {
		g := got[row]
		if g.Text != want.Text || fmt.Sprint(g.TokenIDs) != fmt.Sprint(want.TokenIDs) || len(g.TokenIDs) < 6 || fmt.Sprint(g.Logprobs) != fmt.Sprint(want.Logprobs) {
			t.Errorf("row %d: %+v\nalone: %+v", row, g, want)
		}
	}
	if got[1].ID != "a" || fmt.Sprint(got[2].ID, got[2].Meta) != "[1] map[x:1]" || fmt.Sprint(got[5].ID, got[5].Meta) != "7m" || got[6].ID != nil {
		t.Errorf("ids and meta: %+v %+v, of wrong rows %+v %+v", got[1], got[2], got[5], got[6])
	}
	for i, p := range got[2].Logprobs { // greedy: the token is the likeliest
		if p.ID != got[2].TokenIDs[i] || len(p.Top) != 2 || p.Top[0].ID != p.ID || p.Top[0].Logprob != p.Logprob || p.Top[1].Logprob > p.Logprob || math.Exp(p.Logprob) > 1 {
			t.Errorf("logprob %d: %+v", i, p)
		}
	}
	for row, want := range map[int]string{5: `"temprature" is not known`, 6: "not valid JSON", 7: `want "prompt" or "messages"`, 8: "chat template", 9: "unknown policy"} {
		if !strings.Contains(got[row].Error, want) || got[row].TokenIDs != nil {
			t.Errorf("row %d: %+v, want %s", row, got[row], want)
		}
	}

	// A torn line is cut off and its row computed again; other settings, and other rows, are refused.
	lines := bytes.SplitAfter(raw, []byte("\n"))
	if err := os.WriteFile(out, bytes.Join([][]byte{lines[0], lines[1], lines[2][:5]}, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, line := range lines[:2] {
		if !bytes.Contains(line, []byte(`"error"`)) {
			kept++
		}
	}
	if code, _, errs := runCommand(args...); code != exitFailed || kept > 0 && !strings.Contains(errs, fmt.Sprint(kept, " rows are there")) {
		t.Fatalf("exit %d: %s", code, errs)
	}
	again, err := os.ReadFile(out)
	if err != nil || len(rowAnswers(t, string(again))) != 8 || bytes.Count(again, []byte("\n")) != 8 {
		t.Errorf("%v: %s", err, again)
	}
	if code, _, errs := runCommand(append(args, "--top-k", "3")...); code != exitUsage || !strings.Contains(errs, "another file") {
		t.Errorf("other settings: exit %d: %s", code, errs)
	}
	if err := os.WriteFile(in, []byte(strings.Replace(rows, "abc", "cba", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runCommand(args...); code != exitUsage || !strings.Contains(errs, "row 1") {
		t.Errorf("other rows: exit %d: %s", code, errs)
	}
}

// TestGenerateRowsOfAPIs: lines of OpenAI's batch files are answered by the routes they name, rows have schemas of their own, rows that
// share a beginning read it once, and what failed is tried again and counted by the exit code.
func TestGenerateRowsOfAPIs(t *testing.T) {
	model, dir := synthModel(t), t.TempDir()
	in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
	shared := strings.Repeat("abcd ", 60)
	rows := []string{`{"custom_id":"r1","method":"POST","url":"/v1/completions","body":{"model":"gpt-4o","prompt":"abc","max_tokens":3,"temperature":0}}`,
		`{"custom_id":"r2","url":"/v1/completions","body":{"prompt":"abc","nonsense":1}}`, `{"custom_id":"r3","url":"/v1/files","body":{}}`,
		`{"prompt":"a","json_schema":{"enum":["ab","cd"]}}`, `{"prompt":"a","grammar":"root ::= \"xyz\""}`, `{"prompt":"a","json_schema":{"type":5}}`}
	for i := range 4 {
		rows = append(rows, fmt.Sprintf(`{"prompt":"%s %d"}`, shared, i))
	}
	if err := os.WriteFile(in, []byte(strings.Join(rows, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"generate", "-m", model, "--raw", "-n", "12", "--jsonl", in, "--out", out, "--batch", "8"}
	if code, _, errs := runCommand(args...); code != exitFailed || !strings.Contains(errs, "3 of 10 rows have errors") {
		t.Fatalf("exit %d: %s", code, errs)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	text, cached := string(raw), 0
	for _, want := range []string{`"custom_id":"r1","response":{"status_code":200,"body":{"id":`, `"custom_id":"r2","response":{"status_code":400,`, `"url\", one of`, `"text":"\"ab\""`, `"text":"xyz"`} {
		if !strings.Contains(text, want) && !strings.Contains(text, strings.Replace(want, "ab", "cd", 1)) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	for _, a := range rowAnswers(t, text) {
		if a.CachedTokens >= 192 {
			cached++
		}
	}
	if cached != 3 {
		t.Errorf("%d of 4 rows have found what they share, want 3: %s", cached, text)
	}
	rows[1], rows[5] = strings.Replace(rows[1], `"nonsense":1`, `"max_tokens":1`, 1), strings.Replace(rows[5], "5", `"string"`, 1)
	if err := os.WriteFile(in, []byte(strings.Join(slices.Delete(rows, 2, 3), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runCommand(args...); code != exitUsage {
		t.Errorf("rows that moved: exit %d: %s", code, errs)
	}
}

func TestGenerateRowsFlags(t *testing.T) {
	for _, args := range [][]string{{"--out", "x"}, {"--jsonl", "x", "prompt"}, {"--jsonl", "x", "--batch", "0"}, {"--jsonl", "x", "--speculate", "ngram"},
		{"--jsonl", "x", "--on-overflow", "shift"}, {"--logprobs", "2", "hi"}, {"--json", "--logprobs", "21", "hi"}} {
		if code, _, errs := runCommand(append([]string{"generate"}, args...)...); code != exitUsage || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d %q", args, code, errs)
		}
	}
	if code, _, _ := runCommand("generate", "--jsonl", filepath.Join(t.TempDir(), "none")); code != exitData {
		t.Errorf("no such file: exit %d", code)
	}
}

// A process killed with SIGKILL leaves every row that it had finished, and the same command finishes the others with the answers
// of an unbroken run.
func TestGenerateRowsKilled(t *testing.T) {
	const rows = 60
	model, dir := synthModel(t), t.TempDir()
	in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
	var text strings.Builder
	for i := range rows {
		fmt.Fprintf(&text, `{"prompt":"abc%d","seed":%d}`+"\n", i, i)
	}
	if err := os.WriteFile(in, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"generate", "-m", model, "--raw", "--ignore-eos", "-n", "40", "-t", "1", "--jsonl", in}
	code, whole, errs := runCommand(args...)
	if code != exitDone {
		t.Fatal(errs)
	}
	args = append(args, "--out", out)
	written := func() []byte {
		raw, err := os.ReadFile(out)
		if err != nil {
			return nil
		}
		return raw[:bytes.LastIndexByte(raw, '\n')+1]
	}
	kept := []byte(nil)
	for range 2 {
		cmd, errs := inferProcess(t, args...)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for running := true; running && bytes.Count(written(), []byte("\n")) < bytes.Count(kept, []byte("\n"))+5; {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatalf("it ended by itself: %v: %s", err, errs)
				}
				ended <- nil
				running = false
			case <-time.After(time.Millisecond):
			}
		}
		before := written()
		_ = cmd.Process.Kill()
		<-ended
		if !bytes.HasPrefix(written(), before) || !bytes.HasPrefix(before, kept) {
			t.Fatal("a finished row was lost")
		}
		kept = written()
	}
	if code, _, errs := runCommand(args...); code != exitDone {
		t.Fatal(errs)
	}
	got, want := rowAnswers(t, string(written())), rowAnswers(t, whole)
	if len(got) != rows || !bytes.HasPrefix(written(), kept) {
		t.Errorf("%d rows", len(got))
	}
	for n, a := range want {
		if got[n].Text != a.Text || fmt.Sprint(got[n].TokenIDs) != fmt.Sprint(a.TokenIDs) {
			t.Errorf("row %d: %q, unbroken %q", n, got[n].Text, a.Text)
		}
	}
}

// TestBatchFileTakesFlags: what a line of a batch file leaves out is as the flags say; what no body can say is an error of the line.
func TestBatchFileTakesFlags(t *testing.T) {
	model, in := synthModel(t), filepath.Join(t.TempDir(), "in.jsonl")
	rows := []string{`{"custom_id":"a","url":"/v1/completions","body":{"prompt":"abc"}}`, `{"custom_id":"b","url":"/v1/completions","body":{"prompt":"abc","max_tokens":2}}`,
		`{"custom_id":"c","url":"/v1/responses","body":{"input":"abc"}}`, `{"prompt":"abc"}`}
	if err := os.WriteFile(in, []byte(strings.Join(rows, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	template := in + ".jinja"
	if err := os.WriteFile(template, []byte("{{ messages[0].content }}"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"generate", "-m", model, "--raw", "-n", "7", "--temperature", "0", "--ignore-eos", "--chat-template", template, "--jsonl", in, "--batch", "4"}
	code, first, errs := runCommand(args...)
	if code != exitDone {
		t.Fatalf("exit %d: %s, %s", code, errs, first)
	}
	for _, want := range []string{`"completion_tokens":7`, `"completion_tokens":2`, `"output_tokens":7`} {
		if !strings.Contains(first, want) {
			t.Errorf("no %s in %s", want, first)
		}
	}
	if n := strings.Count(first, `"text":"`+rowAnswers(t, first)[4].Text+`"`); n != 2 {
		t.Errorf("lines of both kinds have other texts under one temperature: %s", first)
	}
	code, out, _ := runCommand(append(args, "--grammar", `root ::= "x"`)...)
	if code != exitFailed || strings.Count(out, "say it in their body") != 3 {
		t.Errorf("exit %d: %s", code, out)
	}
}
