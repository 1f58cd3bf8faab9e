package metrics

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
)

func TestQuirks(t *testing.T) {
	f, err := os.Open("testdata/quirks.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	n := 0
	for s.Scan() {
		var r struct {
			goldenRow
			Task string
		}
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		got, err := LongBench(r.Task, r.Row)
		if err != nil || math.Abs(got-r.Score) > 1e-9 {
			t.Errorf("line %d %s: %v, want %v (%v)", n+1, r.Task, got, r.Score, err)
		}
		n++
	}
	if n < 100 {
		t.Fatalf("only %d rows", n)
	}
}

// The class after a removed one is skipped: "Other" is part of the answer and removed, so "location" stays in the list.
func TestClassificationRemovesWhileIterating(t *testing.T) {
	classes := []string{"Other", "location", "Other location"}
	if got := classificationScore("Other location", "Other location", classes); got != 0.5 {
		t.Errorf("got %v, want 1/2", got)
	}
	if got := classificationScore("location", "Other location", classes); got != 0 {
		t.Errorf("got %v, want 0", got)
	}
}

// From 200 characters on, frequent characters start no match: the same text reversed in roles scores otherwise.
func TestFuzzRatioJunk(t *testing.T) {
	a, b := strings.Repeat("ab", 100), strings.Repeat("ba", 100)
	if got := fuzzRatio(a, b); got != 0 {
		t.Errorf("200 characters: %d, want 0 (all characters are popular)", got)
	}
	if got := fuzzRatio(a[:198], b[:198]); got != 99 {
		t.Errorf("198 characters: %d, want 99", got)
	}
	if fuzzRatio("", "") != 100 || fuzzRatio("a", "") != 0 {
		t.Error("empty texts")
	}
}

// rouge's walk of one Python frame a word: at 991 words it raises, and the official score is 0.
func TestRougeRecursionLimit(t *testing.T) {
	long := func(words int) string { return "c " + strings.Repeat("w ", words-1) }
	if rougeScore(long(990), "c") == 0 || rougeScore(long(991), "c") != 0 {
		t.Errorf("990 words: %v, 991: %v", rougeScore(long(990), "c"), rougeScore(long(991), "c"))
	}
	if rougeScore(" . ", "a") != 0 || rougeScore("", "a") != 0 || rougeScore("...", "a") != 0 {
		t.Error("empty predictions")
	}
}
