package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"terrace/grammar"
	"terrace/internal/golden"
	"terrace/tokenizer"
	"terrace/weights/gguf"
	"terrace/weights/vocab"
)

// BenchmarkMaskBench reads the documents of JSONSchemaBench (its folder maskbench/data, as ../shared/data/maskbench) token by
// token under their schemas, with SmolLM2's 49,152 tokens: CPU time of compiling and of each mask, and how many schemas are
// wholly right. MASKBENCH_STEP takes every n-th file (7), MASKBENCH_SHOW tells of each schema that is not right, or slow.
func BenchmarkMaskBench(b *testing.B) {
	files, err := filepath.Glob(filepath.Join(golden.Shared(b, "data", "maskbench"), "*.json"))
	if err != nil || len(files) == 0 {
		b.Fatal("no files", err)
	}
	f, err := gguf.Open(golden.Model(b, "smollm2:135m"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	v, err := vocab.FromModel(f.Meta(), "")
	if err != nil {
		b.Fatal(err)
	}
	tok, err := tokenizer.New(v)
	if err != nil {
		b.Fatal(err)
	}
	r := &maskBench{tok: tok, words: grammar.NewVocabulary(tok.Pieces(nil)), count: map[string]int{}}
	step := 7
	if s := os.Getenv("MASKBENCH_STEP"); s != "" {
		if _, err := fmt.Sscan(s, &step); err != nil {
			b.Fatal(err)
		}
	}
	r.show = os.Getenv("MASKBENCH_SHOW") != ""
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		for i := 0; i < len(files); i += step {
			r.file(b, files[i])
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(r.count)) {
		b.ReportMetric(float64(r.count[kind]), kind)
	}
	if n := r.count["wrong_accepts"]; n > 0 {
		b.Errorf("%d documents taken that their schema forbids", n)
	}
	for name, times := range map[string][]time.Duration{"compile": r.compile, "mask": r.mask, "first": r.first} {
		slices.Sort(times)
		var sum time.Duration
		for _, t := range times {
			sum += t
		}
		b.ReportMetric(float64(sum.Microseconds())/float64(len(times)), name+"_mean_us")
		for at, p := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1} {
			b.ReportMetric(float64(times[int(p*float64(len(times)-1))].Nanoseconds())/1e3, name+"_"+at+"_us")
		}
	}
}

type maskBench struct {
	tok                  *tokenizer.Tokenizer
	words                *grammar.Vocabulary
	count                map[string]int
	compile, mask, first []time.Duration
	show                 bool
}

// cpu is the time of this thread.
func cpu() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

func (r *maskBench) file(b *testing.B, name string) {
	text, err := os.ReadFile(name)
	if err != nil {
		b.Fatal(err)
	}
	var file struct {
		Schema json.RawMessage `json:"schema"`
		Tests  []struct {
			Valid bool            `json:"valid"`
			Data  json.RawMessage `json:"data"`
		} `json:"tests"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		b.Fatal(name, err)
	}
	r.count["schemas"]++
	name = filepath.Base(name)
	at := cpu()
	g, err := Compile(file.Schema)
	took := cpu() - at
	if err != nil {
		kind := "refused"
		if !errors.Is(err, grammar.ErrUnsupported) && !errors.Is(err, grammar.ErrTooLarge) {
			kind = "refused_bad"
		}
		r.count[kind]++
		r.say("%s: %s: %v", kind, name, err)
		return
	}
	r.compile = append(r.compile, took)
	if took > 20*time.Millisecond {
		r.say("slow compile: %s: %v", name, took)
	}
	m, right := machineOf(b, g, r.words), true
	for i, test := range file.Tests {
		switch got := r.document(b, m, name, spaced(b, test.Data)); {
		case got && !test.Valid:
			r.count["wrong_accepts"]++
			r.say("WRONG ACCEPT: %s: test %d: %s", name, i, test.Data)
			right = false
		case !got && test.Valid:
			r.count["wrong_rejects"]++
			r.say("rejected: %s: test %d", name, i)
			right = false
		}
	}
	if right {
		r.count["right"]++
	}
}

func (r *maskBench) say(format string, args ...any) {
	if r.show {
		fmt.Printf(format+"\n", args...)
	}
}

// document says whether a text is taken, a mask a token.
func (r *maskBench) document(b *testing.B, m *grammar.Machine, name, text string) bool {
	ids, err := r.tok.Encode(text, false, false)
	if err != nil {
		b.Fatal(err)
	}
	s, done := m.Start(), 0
	for i, id := range ids {
		at := cpu()
		mask, err := s.Mask()
		if err != nil {
			b.Fatal(err)
		}
		took := cpu() - at
		if i == 0 {
			r.first = append(r.first, took)
		}
		r.mask = append(r.mask, took)
		if took > 2*time.Millisecond {
			r.say("slow mask: %s: %v: after %s", name, took, text[max(0, done-60):done])
		}
		allowed := mask[id>>6]>>(id&63)&1 != 0
		if (s.Accept(id) == nil) != allowed {
			b.Fatalf("%s: token %d: mask %v", name, id, allowed)
		}
		if !allowed {
			r.say("at %s", text[max(0, done-60):min(len(text), done+30)])
			return false
		}
		done = min(len(text), done+len(r.tok.Decode([]int{id}, false)))
	}
	return s.CanEnd()
}

// spaced is a document as Python writes it: a blank after each colon and comma.
func spaced(b *testing.B, doc []byte) string {
	var flat bytes.Buffer
	if err := json.Compact(&flat, doc); err != nil {
		b.Fatal(err)
	}
	var out strings.Builder
	inside := false
	for text := flat.Bytes(); len(text) > 0; text = text[1:] {
		c := text[0]
		out.WriteByte(c)
		switch {
		case inside && c == '\\':
			out.WriteByte(text[1])
			text = text[1:]
		case c == '"':
			inside = !inside
		case !inside && (c == ':' || c == ','):
			out.WriteByte(' ')
		}
	}
	return out.String()
}
