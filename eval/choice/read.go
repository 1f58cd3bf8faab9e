package choice

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"terrace/eval"
)

// record is one row of a dataset, by field name.
type record = map[string]any

// maxLineBytes bounds a JSONL row.
const maxLineBytes = 16 << 20

// find returns a task's file for one of the splits, in order: DIR/TASK.jsonl or .parquet, DIR/TASK/…/SPLIT*, DIR/SPLIT*.
func find(dir, task string, splits []string) (string, error) {
	for _, ext := range []string{".jsonl", ".parquet"} {
		if path := filepath.Join(dir, task+ext); isFile(path) {
			return path, nil
		}
	}
	var files []string
	root := filepath.Join(dir, task)
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		root = dir
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && (strings.HasSuffix(path, ".jsonl") || strings.HasSuffix(path, ".parquet")) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("choice: %w: %w", eval.ErrData, err)
	}
	for _, split := range splits {
		for _, f := range files {
			if strings.HasPrefix(filepath.Base(f), split) {
				return f, nil
			}
		}
	}
	return "", fmt.Errorf("choice: no %s.jsonl, %s.parquet or %s file of %s in %s: %w", task, task, strings.Join(splits, " or "), task, dir, eval.ErrData)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// read returns a file's rows.
func read(path string) ([]record, error) {
	var rows []record
	var err error
	if strings.HasSuffix(path, ".parquet") {
		rows, err = readParquet(path)
	} else {
		rows, err = readJSONL(path)
	}
	if err != nil {
		return nil, fmt.Errorf("choice: %s: %w: %w", path, eval.ErrData, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("choice: %s has no rows: %w", path, eval.ErrData)
	}
	return rows, addLabels(path, rows)
}

func readJSONL(path string) ([]record, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	in := bufio.NewScanner(bytes.NewReader(raw))
	in.Buffer(nil, maxLineBytes)
	var rows []record
	for line := 1; in.Scan(); line++ {
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		var r record
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		rows = append(rows, r)
	}
	return rows, in.Err()
}

// addLabels fills in the labels that PIQA publishes in a file of their own (valid.jsonl, valid-labels.lst).
func addLabels(path string, rows []record) error {
	if _, ok := rows[0]["label"]; ok {
		return nil
	}
	raw, err := os.ReadFile(strings.TrimSuffix(path, filepath.Ext(path)) + "-labels.lst")
	if err != nil {
		return nil // not that kind of dataset; a label that is missing is reported by the task
	}
	labels := strings.Fields(string(raw))
	if len(labels) != len(rows) {
		return fmt.Errorf("choice: %s has %d rows, its labels file %d: %w", path, len(rows), len(labels), eval.ErrData)
	}
	for i := range rows {
		rows[i]["label"] = labels[i]
	}
	return nil
}

// text is a field as a string.
func text(r record, names ...string) (string, error) {
	for _, n := range names {
		switch v := r[n].(type) {
		case string:
			return v, nil
		case []byte:
			return string(v), nil
		}
	}
	return "", fmt.Errorf("no text field %s: %w", strings.Join(names, " or "), eval.ErrData)
}

// number is a label: a number, its text, or one of the names given (whose index it is).
func number(r record, name string, names ...string) (int, error) {
	v := r[name]
	switch v := v.(type) {
	case float64:
		return int(v), nil
	case int64:
		return int(v), nil
	case int32:
		return int(v), nil
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	}
	if s, err := text(r, name); err == nil {
		if i := slices.Index(names, s); i >= 0 {
			return i, nil
		}
		var n int
		if _, err := fmt.Sscanf(s, "%d", &n); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("field %s is %v, want a label: %w", name, v, eval.ErrData)
}
