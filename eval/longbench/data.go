package longbench

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"terrace/eval"
)

//go:embed data/dataset2prompt.json
var defaultPrompts []byte

//go:embed data/dataset2maxlen.json
var defaultMaxLens []byte

// Row is one sample as LongBench publishes it.
type Row struct {
	Input   string   `json:"input"`
	Context string   `json:"context"`
	Answers []string `json:"answers"`
	Length  int      `json:"length"`
	Dataset string   `json:"dataset"`
	Classes []string `json:"all_classes"`
	ID      string   `json:"_id"`
}

// maxLineBytes bounds one row: LongBench's longest is about 1 MB.
const maxLineBytes = 64 << 20

// source is a data folder with the official configuration files, its own or the embedded ones.
type source struct {
	dir     string
	prompts map[string]string
	maxLens map[string]int
	sum     hash.Hash
}

// openSource finds the folder: dir itself or dir/longbench.
func openSource(dir string) (*source, error) {
	s := &source{dir: dir, sum: sha256.New()}
	if sub := filepath.Join(dir, "longbench"); isDir(sub) {
		s.dir = sub
	}
	if !isDir(s.dir) {
		return nil, fmt.Errorf("longbench: data folder %s: not there: %w", dir, eval.ErrData)
	}
	if err := s.config("dataset2prompt.json", defaultPrompts, &s.prompts); err != nil {
		return nil, err
	}
	return s, s.config("dataset2maxlen.json", defaultMaxLens, &s.maxLens)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// config reads a file of the data folder, or the embedded copy if there is none, into v.
func (s *source) config(name string, embedded []byte, v any) error {
	raw, err := os.ReadFile(filepath.Join(s.dir, name))
	if os.IsNotExist(err) {
		raw, err = embedded, nil
	}
	if err != nil {
		return fmt.Errorf("longbench: %w: %w", eval.ErrData, err)
	}
	s.sum.Write(raw)
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("longbench: %s: %w: %w", filepath.Join(s.dir, name), eval.ErrData, err)
	}
	return nil
}

// rows reads a task's file, the first limit rows (0: all); what was read goes into the data's hash.
func (s *source) rows(task string, limit int) ([]Row, error) {
	path := filepath.Join(s.dir, task+".jsonl")
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("longbench: %w: %w", eval.ErrData, err)
	}
	defer f.Close()
	in := bufio.NewScanner(io.TeeReader(f, s.sum))
	in.Buffer(make([]byte, 0, 1<<20), maxLineBytes)
	var rows []Row
	for line := 1; in.Scan() && (limit <= 0 || len(rows) < limit); line++ {
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		var r Row
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("longbench: %s, line %d: %w: %w", path, line, eval.ErrData, err)
		}
		if len(r.Answers) == 0 {
			return nil, fmt.Errorf("longbench: %s, line %d: no answers: %w", path, line, eval.ErrData)
		}
		rows = append(rows, r)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("longbench: %s: %w: %w", path, eval.ErrData, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("longbench: %s has no rows: %w", path, eval.ErrData)
	}
	return rows, nil
}

// digest identifies everything read so far.
func (s *source) digest() string { return hex.EncodeToString(s.sum.Sum(nil)[:12]) }

// fill is str.format for the fields of a row: {name} is replaced, {{ and }} are braces.
func fill(template string, r *Row) (string, error) {
	var out strings.Builder
	for i := 0; i < len(template); {
		c := template[i]
		switch {
		case (c == '{' || c == '}') && i+1 < len(template) && template[i+1] == c:
			out.WriteByte(c)
			i += 2
		case c == '{':
			name, _, ok := strings.Cut(template[i+1:], "}")
			value, known := r.field(name)
			if !ok || !known {
				return "", fmt.Errorf("longbench: template field {%s}: rows have context, input, length, dataset and _id: %w", name, eval.ErrData)
			}
			out.WriteString(value)
			i += len(name) + 2
		default:
			out.WriteByte(c)
			i++
		}
	}
	return out.String(), nil
}

func (r *Row) field(name string) (string, bool) {
	switch name {
	case "context":
		return r.Context, true
	case "input":
		return r.Input, true
	case "length":
		return strconv.Itoa(r.Length), true
	case "dataset":
		return r.Dataset, true
	case "_id":
		return r.ID, true
	}
	return "", false
}
