package published

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"terrace/eval"
)

// record is one row of a file.
type record map[string]json.RawMessage

// text is a field that must be there, as a text.
func (r record) text(name string) (string, error) {
	var s string
	if raw, ok := r[name]; !ok {
		return "", fmt.Errorf("no field %s: %w", name, eval.ErrData)
	} else if json.Unmarshal(raw, &s) != nil || string(raw) == "null" {
		return "", fmt.Errorf("%s is no text: %w", name, eval.ErrData)
	}
	return s, nil
}

// any is the first of the fields that is there, as a text; numbers as they are written.
func (r record) any(names ...string) (string, error) {
	for _, name := range names {
		var s string
		var n json.Number
		switch raw := r[name]; {
		case raw == nil || string(raw) == "null":
		case json.Unmarshal(raw, &s) == nil:
			return s, nil
		case json.Unmarshal(raw, &n) == nil:
			return n.String(), nil
		}
	}
	return "", fmt.Errorf("none of the fields %s is a text: %w", strings.Join(names, ", "), eval.ErrData)
}

// texts are a field's, a list.
func (r record) texts(name string) ([]string, error) {
	var out []string
	if err := json.Unmarshal(r[name], &out); err != nil || len(out) == 0 {
		return nil, fmt.Errorf("%s is no list of texts: %w", name, eval.ErrData)
	}
	return out, nil
}

// find gives the file of each task that has one: data itself, or the tasks' in that folder. asked are those that must be there.
func (b *benchmark) find(data string, asked []string) (map[string]string, error) {
	info, err := os.Stat(data)
	if err != nil {
		return nil, fmt.Errorf("published: %w: %w", eval.ErrData, err)
	}
	wanted := func(t *task) bool { return len(asked) == 0 || slices.Contains(asked, t.name) }
	out := map[string]string{}
	if !info.IsDir() {
		stem := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(data), ".jsonl"), ".json")
		for i := range b.tasks {
			t := &b.tasks[i]
			if wanted(t) && (len(b.tasks) == 1 || len(asked) == 1 || slices.Contains(t.files, stem)) {
				out[t.name] = data
			}
		}
		if len(out) == 0 {
			return nil, fmt.Errorf("published: %s is the file of no task of %s by its name: name one of %s with --tasks: %w", data, b.name, strings.Join(Tasks(b.name), ", "), eval.ErrData)
		}
		return out, nil
	}
	for i := range b.tasks {
		t := &b.tasks[i]
		if !wanted(t) {
			continue
		}
		var tried []string
		for _, name := range t.files {
			tried = append(tried, name+".jsonl", name+".json")
		}
		at := slices.IndexFunc(tried, func(name string) bool {
			info, err := os.Stat(filepath.Join(data, name))
			return err == nil && info.Mode().IsRegular()
		})
		switch {
		case at >= 0:
			out[t.name] = filepath.Join(data, tried[at])
		case len(asked) > 0:
			return nil, fmt.Errorf("published: %s: no %s there, of task %s: %w", data, strings.Join(tried, ", no "), t.name, eval.ErrData)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("published: %s has no file of %s, such as %s.jsonl: %w", data, b.name, b.tasks[0].files[0], eval.ErrData)
	}
	return out, nil
}

// digest identifies what was read.
type digest struct{ sum hash.Hash }

func (d *digest) String() string { return hex.EncodeToString(d.sum.Sum(nil)[:12]) }

// maxRowBytes bounds a row: the longest books are some MB.
const maxRowBytes = 64 << 20

// read gives the questions of a file, limit at most (0: all), to each. It is JSON Lines, or one list.
func (d *digest) read(path string, limit int, t *task, each func(id string, q question)) error {
	if d.sum == nil {
		d.sum = sha256.New()
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("published: %w: %w", eval.ErrData, err)
	}
	defer f.Close()
	in := bufio.NewReaderSize(io.TeeReader(f, d.sum), 1<<20)
	next, err := rows(in)
	if err != nil {
		return fmt.Errorf("published: %s: %w: %w", path, eval.ErrData, err)
	}
	n := 0
	for row := 1; limit <= 0 || n < limit; row++ {
		var r record
		if err := next(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("published: %s, row %d: %w: %w", path, row, eval.ErrData, err)
		}
		questions, err := t.questions(r)
		if err != nil {
			return fmt.Errorf("published: %s, row %d: %w", path, row, err)
		}
		for i, q := range questions {
			if limit > 0 && n == limit {
				break
			}
			n++
			id := strconv.Itoa(row - 1)
			if len(questions) > 1 {
				id += "." + strconv.Itoa(i)
			}
			each(id, q)
		}
	}
	if n == 0 {
		return fmt.Errorf("published: %s has no rows: %w", path, eval.ErrData)
	}
	return nil
}

// rows reads one row after the other; io.EOF after the last.
func rows(in *bufio.Reader) (func(*record) error, error) {
	for {
		c, err := in.ReadByte()
		if err != nil {
			return func(*record) error { return io.EOF }, nil
		}
		if c == '[' {
			return list(in), nil
		}
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			if err := in.UnreadByte(); err != nil {
				return nil, err
			}
			break
		}
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 1<<20), maxRowBytes)
	return func(r *record) error {
		for lines.Scan() {
			if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
				return object(line, r)
			}
		}
		if err := lines.Err(); err != nil {
			return err
		}
		return io.EOF
	}, nil
}

// list reads the rows of a list whose bracket was taken.
func list(in io.Reader) func(*record) error {
	dec := json.NewDecoder(io.MultiReader(strings.NewReader("["), in))
	_, opened := dec.Token()
	return func(r *record) error {
		if opened != nil {
			return opened
		}
		if !dec.More() {
			if _, err := dec.Token(); err != nil && !errors.Is(err, io.EOF) {
				return err
			} else if err != nil {
				return io.ErrUnexpectedEOF
			}
			return io.EOF
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		return object(raw, r)
	}
}

// object reads a row, which is a JSON object.
func object(raw []byte, r *record) error {
	*r = nil
	if err := json.Unmarshal(raw, r); err != nil {
		return err
	}
	if *r == nil {
		return errors.New("null, want an object")
	}
	return nil
}

// marshal is JSON without escapes for HTML; nil stays nil.
func marshal(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
