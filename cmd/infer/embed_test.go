package main

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func runEmbed(stdin string, args ...string) (int, string, string) {
	var out, errs bytes.Buffer
	code := run(append([]string{"embed", "-m", "../../model/bert/testdata/tiny", "-t", "1"}, args...), strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// TestEmbed: texts from arguments, standard input, with cosines and as JSON.
func TestEmbed(t *testing.T) {
	code, out, errs := runEmbed("", "hello world", "the fox", "--json", "--cosine")
	var got embedOutput
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("%d %s %v", code, errs, err)
	}
	if got.Dim != 32 || len(got.Data) != 2 || got.Data[0].Tokens != 4 || math.Abs(got.Cosine[0][0]-1) > 1e-6 || got.Cosine[0][1] != got.Cosine[1][0] {
		t.Errorf("got %+v", got)
	}
	code, lines, errs := runEmbed("hello world\nthe fox\n", "--file", "-")
	if fields := strings.Fields(lines); code != 0 || strings.Count(lines, "\n") != 2 || len(fields) != 64 {
		t.Errorf("%d: %d lines, %s", code, strings.Count(lines, "\n"), errs)
	}
	if code, out, _ := runEmbed("", strings.Repeat("dog ", 200), "--truncate", "--cosine"); code != 0 || out != "1.0000\n" {
		t.Errorf("%d %q", code, out)
	}
}

func TestEmbedRefuses(t *testing.T) {
	for _, c := range []struct {
		stdin string
		args  []string
		code  int
		says  string
	}{
		{"", nil, exitData, "no text"},
		{"", []string{"a\xff"}, exitData, "UTF-8"},
		{"", []string{strings.Repeat("dog ", 200)}, exitMemory, "--truncate"},
		{"", []string{"a", "--file", "-"}, exitUsage, "one of them"},
		{"", []string{"a", "-t", "-1"}, exitUsage, "--threads"},
		{"", []string{"a", "-m", "/no/such/folder"}, exitData, "/no/such/folder"},
	} {
		code, out, errs := runEmbed(c.stdin, c.args...)
		if code != c.code || out != "" || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%.30q: %d %q %q", c.args, code, out, errs)
		}
	}
}

// TestEncoderDoesNotGenerate: a command that generates says what the model is for.
func TestEncoderDoesNotGenerate(t *testing.T) {
	var out, errs bytes.Buffer
	code := run([]string{"generate", "-m", "../../model/bert/testdata/tiny", "x"}, strings.NewReader(""), &out, &errs)
	if code != exitData || !strings.Contains(errs.String(), "infer embed") {
		t.Errorf("%d %s", code, errs.String())
	}
}
