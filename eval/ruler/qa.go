package ruler

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"terrace/eval"
)

const (
	qaAsk      = "Answer the question based on the given documents. Only give me the answer and do not output any other words."
	qaInput    = qaAsk + "\n\nThe following are given documents.\n\n%s\n\n" + qaAsk + "\n\nQuestion: %s"
	qaPrefix   = " Answer:"
	qaDocument = "Document %d:\n%s"
)

// corpus is a data set of questions about documents.
type corpus struct {
	docs      []string // each once, sorted, as RULER has them
	questions []question
	digest    string // of the file
}

// question is asked about documents of its own; what lies around the answer is drawn.
type question struct {
	query   string
	answers []string // any of them will do
	own     []int    // documents that must be there
	more    []int    // of the same article: drawn before others
}

// qaFiles are what the data sets' files are called where people have them: RULER's own names, the publishers', and LongBench's rows of
// HotpotQA.
var qaFiles = map[string][]string{
	"qa_1": {"squad.json", "dev-v2.0.json", "dev-v1.1.json"},
	"qa_2": {"hotpotqa.json", "hotpot_dev_distractor_v1.json", "hotpotqa.jsonl"},
}

// qaFile finds a task's file in dir or dir/qa; fs.ErrNotExist where there is none.
func qaFile(dir, task string) (string, error) {
	for _, folder := range []string{dir, filepath.Join(dir, "qa")} {
		for _, name := range qaFiles[task] {
			path := filepath.Join(folder, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("ruler: %s needs one of %s in %s: %w: %w", task, strings.Join(qaFiles[task], ", "), dir, eval.ErrData, fs.ErrNotExist)
}

// readCorpus reads a task's file.
func readCorpus(dir, task string) (*corpus, error) {
	path, err := qaFile(dir, task)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("ruler: %w: %w", eval.ErrData, err)
	}
	var items []item
	switch {
	case task == "qa_1":
		items, err = squad(raw)
	case strings.HasSuffix(path, "l"):
		items, err = longbench(raw)
	default:
		items, err = hotpot(raw)
	}
	if err == nil && len(items) == 0 {
		err = errors.New("it has no questions that can be answered")
	}
	if err != nil {
		return nil, fmt.Errorf("ruler: %s: %w: %w", path, eval.ErrData, err)
	}
	sum := sha256.Sum256(raw)
	c := newCorpus(items)
	c.digest = hex.EncodeToString(sum[:12])
	return c, nil
}

// item is a question as it is read, with its documents' texts.
type item struct {
	query     string
	answers   []string
	own, more []string
}

// newCorpus numbers the documents.
func newCorpus(items []item) *corpus {
	c := &corpus{}
	at := map[string]int{}
	for _, x := range items {
		for _, d := range slices.Concat(x.own, x.more) {
			if _, ok := at[d]; !ok {
				at[d] = 0
				c.docs = append(c.docs, d)
			}
		}
	}
	slices.Sort(c.docs)
	for i, d := range c.docs {
		at[d] = i
	}
	number := func(docs []string) (out []int) {
		for _, d := range docs {
			out = append(out, at[d])
		}
		return out
	}
	for _, x := range items {
		c.questions = append(c.questions, question{x.query, x.answers, number(x.own), number(x.more)})
	}
	return c
}

// squad reads SQuAD's JSON, 2.0 or 1.1: a question's paragraph is its document, the article's other paragraphs are near to it.
// Questions without an answer are left out, as RULER does.
func squad(raw []byte) (items []item, err error) {
	var file struct {
		Data []struct {
			Paragraphs []struct {
				Context string
				QAs     []struct {
					Question   string
					Impossible bool `json:"is_impossible"`
					Answers    []struct{ Text string }
				}
			}
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	for _, article := range file.Data {
		for _, p := range article.Paragraphs {
			var more []string
			for _, other := range article.Paragraphs {
				if other.Context != p.Context {
					more = append(more, other.Context)
				}
			}
			for _, q := range p.QAs {
				if q.Impossible {
					continue
				}
				x := item{query: q.Question, own: []string{p.Context}, more: more}
				for _, a := range q.Answers {
					x.answers = append(x.answers, a.Text)
				}
				if items, err = add(items, x); err != nil {
					return nil, err
				}
			}
		}
	}
	return items, nil
}

// hotpot reads HotpotQA's JSON of the distractor setting: ten paragraphs a question, each a title and its sentences.
func hotpot(raw []byte) (items []item, err error) {
	var file []struct {
		Question, Answer string
		Context          [][2]json.RawMessage
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	for i, q := range file {
		x := item{query: q.Question, answers: []string{q.Answer}}
		for _, p := range q.Context {
			var title string
			var sentences []string
			if err := errors.Join(json.Unmarshal(p[0], &title), json.Unmarshal(p[1], &sentences)); err != nil {
				return nil, fmt.Errorf("question %d: want [title, [sentences]]: %w", i+1, err)
			}
			x.own = append(x.own, title+"\n"+strings.Join(sentences, ""))
		}
		if items, err = add(items, x); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// passage begins a document in LongBench's rows.
var passage = regexp.MustCompile(`(?:^|\n)Passage \d+:\n`)

// longbench reads LongBench's hotpotqa.jsonl: the passages of a row are its documents, whole Wikipedia articles where HotpotQA itself
// has their first paragraphs.
func longbench(raw []byte) (items []item, err error) {
	for i, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		var row struct {
			Input, Context string
			Answers        []string
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		x := item{query: row.Input, answers: row.Answers}
		for _, p := range passage.Split(row.Context, -1) {
			if p = strings.TrimSpace(p); p != "" {
				x.own = append(x.own, p)
			}
		}
		if items, err = add(items, x); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// add appends a question that has all that one needs.
func add(items []item, x item) ([]item, error) {
	if x.query == "" || len(x.own) == 0 || len(x.answers) == 0 || slices.Contains(x.answers, "") {
		return nil, fmt.Errorf("question %d, %q: it lacks a text, an answer or its documents", len(items)+1, x.query)
	}
	return append(items, x), nil
}

// build makes the problem of a question with size documents: its own, those near to them, then any others; with all of them, as
// often as it takes. The fewer are the first drawn of the more. Question -1, which sizes are fitted with, is the first.
func (c *corpus) build(rng *rand.Rand, index, size int) problem {
	q := c.questions[max(0, index)]
	var chosen []int
	if size < len(c.docs) {
		chosen = slices.Clone(q.own)
		for _, i := range sample(rng, len(q.more), max(0, size-len(chosen))) {
			chosen = append(chosen, q.more[i])
		}
		if left := size - len(chosen); left > 0 {
			var others []int
			for i := range c.docs {
				if !slices.Contains(q.own, i) && !slices.Contains(q.more, i) {
					others = append(others, i)
				}
			}
			for _, i := range sample(rng, len(others), left) {
				chosen = append(chosen, others[i])
			}
		}
	} else {
		for i := range size {
			chosen = append(chosen, i%len(c.docs))
		}
	}
	rng.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	var b strings.Builder
	for i, d := range chosen {
		if i > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, qaDocument, i+1, c.docs[d])
	}
	return problem{input: fmt.Sprintf(qaInput, b.String(), q.query), prefix: qaPrefix, answers: q.answers}
}
