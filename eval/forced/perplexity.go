package forced

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"terrace/eval"
)

// PerplexityOptions of the suite.
type PerplexityOptions struct {
	Data  string   // folder with wikitext-2/ and pg19/, or one of them, or a text file
	Tasks []string // wikitext-2, pg19, text; empty = those whose data are there
	Chunk int      // tokens a sample: the first half is the prompt, the second is scored; 0 = 1024
	Limit int      // samples a task; 0 = all
	KL    bool     // also compare with full
}

// Perplexity is the suite.
type Perplexity struct {
	o      PerplexityOptions
	tasks  []string
	texts  map[string][]string // by task: documents
	digest string
}

var perplexityTasks = []string{"wikitext-2", "pg19", "text"}

// NewPerplexity reads the texts.
func NewPerplexity(o PerplexityOptions) (*Perplexity, error) {
	if o.Chunk == 0 {
		o.Chunk = 1024
	}
	if o.Chunk < 8 {
		return nil, fmt.Errorf("forced: chunks of %d tokens, want 8 or more: %w", o.Chunk, eval.ErrOption)
	}
	asked, err := eval.CheckTasks("perplexity", perplexityTasks, o.Tasks)
	if err != nil {
		return nil, err
	}
	s := &Perplexity{o: o, texts: map[string][]string{}}
	h := sha256.New()
	for _, task := range asked {
		files := textFiles(o.Data, task)
		if len(files) == 0 {
			if len(o.Tasks) > 0 {
				return nil, fmt.Errorf("forced: no text of %s in %s: %w", task, o.Data, eval.ErrData)
			}
			continue
		}
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil {
				return nil, fmt.Errorf("forced: %w: %w", eval.ErrData, err)
			}
			h.Write(raw)
			s.texts[task] = append(s.texts[task], strings.ToValidUTF8(string(raw), "\uFFFD"))
		}
		s.tasks = append(s.tasks, task)
	}
	if len(s.tasks) == 0 {
		return nil, fmt.Errorf("forced: %s has no texts: %w", o.Data, eval.ErrData)
	}
	s.digest = hex.EncodeToString(h.Sum(nil)[:12])
	return s, nil
}

// textFiles finds a task's documents: wikitext-2's test text, PG-19's books, or the one file that data names.
func textFiles(data, task string) []string {
	info, err := os.Stat(data)
	switch {
	case err != nil:
		return nil
	case !info.IsDir():
		if task == "text" {
			return []string{data}
		}
		return nil
	case task == "text":
		return nil
	}
	dir := filepath.Join(data, task)
	if filepath.Base(filepath.Clean(data)) == task {
		dir = data
	}
	pattern := "*.txt"
	if task == "wikitext-2" {
		pattern = "*test*"
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return nil
	}
	slices.Sort(files)
	return files
}

// Name is perplexity.
func (s *Perplexity) Name() string { return "perplexity" }

// Options identify settings and data.
func (s *Perplexity) Options() any {
	return map[string]any{"tasks": s.tasks, "chunk": s.o.Chunk, "limit": s.o.Limit, "kl": s.o.KL, "data_sha256": s.digest}
}

// Metric is perplexity.
func (s *Perplexity) Metric(string) eval.Metric {
	return eval.Metric{Name: "ppl", Kind: eval.Perplexity}
}

// Samples cuts each document into chunks that do not overlap; the first token of a chunk is BOS where the model adds one,
// as llama-perplexity does.
func (s *Perplexity) Samples(_ context.Context, r eval.Runner) ([]eval.Sample, error) {
	if c := r.Model().Context; c > 0 && s.o.Chunk > c {
		return nil, fmt.Errorf("forced: chunks of %d tokens, the context holds %d: %w", s.o.Chunk, c, eval.ErrOption)
	}
	var out []eval.Sample
	for _, task := range s.tasks {
		n := 0
		for doc, text := range s.texts[task] {
			ids, err := r.Encode(text)
			if err != nil {
				return nil, err
			}
			for at := 0; at+s.o.Chunk <= len(ids) && (s.o.Limit <= 0 || n < s.o.Limit); at += s.o.Chunk {
				chunk := slices.Clone(ids[at : at+s.o.Chunk])
				if bos, ok := r.BOS(); ok {
					chunk[0] = bos
				}
				out = append(out, eval.Sample{Task: task, ID: fmt.Sprintf("%d-%d", doc, at/s.o.Chunk), Data: chunk})
				n++
			}
		}
		if n == 0 {
			return nil, fmt.Errorf("forced: the texts of %s are shorter than one chunk of %d tokens: %w", task, s.o.Chunk, eval.ErrData)
		}
	}
	return out, nil
}

// Evaluate scores the second half of a chunk under each policy.
func (s *Perplexity) Evaluate(ctx context.Context, r eval.Runner, x eval.Sample, policies []string, emit func(eval.Outcome) error) error {
	chunk := x.Data.([]int)
	half := len(chunk)/2 + 1
	prompt, rest := chunk[:half], chunk[half:]
	all, extra := policies, false
	if s.o.KL {
		all, extra = withFull(policies)
	}
	full, hash := newBase(r.Model().Vocab), eval.HashPrompt(prompt, rest)
	return r.Prompt(ctx, prompt, all, func(i int, session eval.Session, err error) error {
		o := eval.Outcome{Task: x.Task, ID: x.ID, Policy: all[i], PromptHash: hash, Prompt: len(prompt), Weight: float64(len(rest))}
		if err == nil {
			err = s.score(ctx, session, rest, all[i], full, &o)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case i == 0 && extra:
			return err // full was only needed to compare with
		case err != nil:
			o = eval.Failed(x, all[i], err)
			o.PromptHash = hash
		}
		return emit(o)
	})
}

// score forces the rest of a chunk and fills the outcome.
func (s *Perplexity) score(ctx context.Context, session eval.Session, rest []int, policy string, full *base, o *eval.Outcome) error {
	var lp []float64
	nll := 0.0
	c := comparison{base: full}
	at := func(i int, logits []float32) error {
		if i >= len(rest) {
			return nil
		}
		if lp == nil {
			lp = make([]float64, len(logits))
		}
		logProbs(lp, logits)
		if id := rest[i]; id < 0 || id >= len(lp) {
			return fmt.Errorf("forced: token id %d, the model has %d: %w", id, len(lp), eval.ErrData)
		}
		nll -= lp[rest[i]]
		if s.o.KL && policy == "full" {
			full.add(lp)
		}
		if s.o.KL {
			c.add(i, lp)
		}
		return nil
	}
	if err := at(0, session.Logits()); err != nil {
		return err
	}
	err := session.Force(ctx, rest[:len(rest)-1], func(i int, logits []float32) error { return at(i+1, logits) })
	if err != nil {
		return err
	}
	mean := nll / float64(len(rest))
	o.Score, o.Values = &mean, c.values()
	o.Took(0, session.Cost(), nil)
	return nil
}
