package replay

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"unicode/utf8"

	"terrace/eval"
)

// maxLineBytes bounds a line of a trace or of contexts.
const maxLineBytes = 64 << 20

// Question is what is asked about a context; answers are those of the data, for people.
type Question struct {
	Question string   `json:"question"`
	Answers  []string `json:"answers,omitempty"`
}

// UnmarshalJSON takes a question as an object or as plain text.
func (q *Question) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &q.Question)
	}
	type plain Question
	return json.Unmarshal(data, (*plain)(q))
}

// Context is a text that many prompts begin with.
type Context struct {
	ID        string     `json:"id"`
	Text      string     `json:"text"`
	Questions []Question `json:"questions"` // for profiling; none: the model makes some
}

// Arrival is one request of a trace.
type Arrival struct {
	AtS      float64 `json:"at_s"`
	Context  string  `json:"context"`
	Question string  `json:"question"`
}

// readLines decodes a JSONL file. Errors wrap eval.ErrData and name file and line.
func readLines[T any](path string, check func(T) error) (out []T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("replay: %w: %w", err, eval.ErrData)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(make([]byte, 0, 1<<16), maxLineBytes)
	line := 0
	for in.Scan() {
		line++
		if len(in.Bytes()) == 0 {
			continue
		}
		var v T
		err := json.Unmarshal(in.Bytes(), &v)
		if err == nil {
			err = check(v)
		}
		if err != nil {
			return nil, fmt.Errorf("replay: %s, line %d: %w: %w", path, line, err, eval.ErrData)
		}
		out = append(out, v)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("replay: %s, line %d: %w: %w", path, line+1, err, eval.ErrData)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("replay: %s holds no line: %w", path, eval.ErrData)
	}
	return out, nil
}

// ReadContexts reads contexts, {"id","text","questions"} a line; other names are left aside. Errors wrap eval.ErrData.
func ReadContexts(path string) ([]Context, error) {
	seen := map[string]bool{}
	return readLines(path, func(c Context) error {
		switch {
		case c.ID == "" || seen[c.ID]:
			return fmt.Errorf("context %q: want an id, and each once", c.ID)
		case c.Text == "" || !utf8.ValidString(c.Text):
			return fmt.Errorf("context %q: want a text in UTF-8", c.ID)
		case slices.ContainsFunc(c.Questions, func(q Question) bool { return q.Question == "" }):
			return fmt.Errorf("context %q: a question is empty", c.ID)
		}
		seen[c.ID] = true
		return nil
	})
}

// ReadTrace reads arrivals in the order of their times, and checks that their contexts are there; limit 0 is all. Errors wrap
// eval.ErrData.
func ReadTrace(path string, limit int, contexts []Context) ([]Arrival, error) {
	known := map[string]bool{}
	for _, c := range contexts {
		known[c.ID] = true
	}
	last := 0.0
	trace, err := readLines(path, func(a Arrival) error {
		switch {
		case !known[a.Context]:
			return fmt.Errorf("context %q is not among the %d contexts", a.Context, len(contexts))
		case a.Question == "":
			return fmt.Errorf("the question is empty")
		case math.IsNaN(a.AtS) || math.IsInf(a.AtS, 0) || a.AtS < last:
			return fmt.Errorf("at_s %g after %g: want times that do not go back", a.AtS, last)
		}
		last = a.AtS
		return nil
	})
	if limit > 0 && len(trace) > limit {
		trace = trace[:limit]
	}
	return trace, err
}
