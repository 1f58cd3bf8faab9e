package run

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"terrace/eval"
)

// Options are a run's identity: two runs with equal options give equal answers.
type Options struct {
	Format   int            `json:"format"`
	Version  string         `json:"version"` // of Terrace, with the commit
	Suite    string         `json:"suite"`
	Settings any            `json:"settings"` // the suite's own, with a hash of its data
	Policies []string       `json:"policies"`
	Model    eval.Model     `json:"model"`
	Engine   map[string]any `json:"engine"` // what changes results or times: backend, threads, exact, kv_type, context
	Seed     uint64         `json:"seed"`
	Batch    int            `json:"batch,omitempty"` // samples that decode together; 0 = one at a time. Changes times, not answers
}

// formatVersion is that of samples.jsonl and results.json.
const formatVersion = 1

// Machine is where a run was made: recorded, not compared.
type Machine struct {
	Host    string   `json:"host,omitempty"`
	CPU     string   `json:"cpu"`
	Kernels string   `json:"kernels,omitempty"` // the CPU path in use
	Cores   int      `json:"cores"`
	OS      string   `json:"os"`
	Go      string   `json:"go"`
	Command []string `json:"command,omitempty"`
	Started string   `json:"started,omitempty"` // RFC 3339
}

// Encode is the canonical form of options: options.json.
func (o Options) Encode() ([]byte, error) {
	o.Format = formatVersion
	raw, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("run: options: %w", err)
	}
	return append(raw, '\n'), nil
}

// Compare names the first field in which two encoded option sets differ (ErrChanged).
func Compare(have, want []byte) error {
	if bytes.Equal(have, want) {
		return nil
	}
	var a, b any
	if err := json.Unmarshal(have, &a); err != nil {
		return fmt.Errorf("run: options.json: %w: %w", ErrFolder, err)
	}
	if err := json.Unmarshal(want, &b); err != nil {
		return fmt.Errorf("run: options: %w", err)
	}
	if field, x, y := difference("", a, b); field != "" {
		return fmt.Errorf("run: %s is %s there, %s here: %w", field, short(x), short(y), ErrChanged)
	}
	return nil
}

// difference is the path of the first field or list element that differs, with both values.
func difference(path string, a, b any) (field string, x, y any) {
	if reflect.DeepEqual(a, b) {
		return "", nil, nil
	}
	m, ok := a.(map[string]any)
	n, ok2 := b.(map[string]any)
	if p, isList := a.([]any); isList {
		if q, isList := b.([]any); isList {
			return listDifference(path, p, q)
		}
	}
	if !ok || !ok2 {
		return path, a, b
	}
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	for k := range n {
		if _, both := m[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { // a hash differs because of something else: it is named last
		return cmp.Or(cmp.Compare(hashLike(a), hashLike(b)), cmp.Compare(a, b))
	})
	for _, k := range keys {
		sub := k
		if path != "" {
			sub = path + "." + k
		}
		if f, x, y := difference(sub, m[k], n[k]); f != "" {
			return f, x, y
		}
	}
	return "", nil, nil
}

// listDifference names the first element that differs; one that only the other list has is absent.
func listDifference(path string, a, b []any) (field string, x, y any) {
	for i := range max(len(a), len(b)) {
		var x, y any
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if f, x, y := difference(fmt.Sprintf("%s[%d]", path, i), x, y); f != "" {
			return f, x, y
		}
	}
	return "", nil, nil
}

func hashLike(key string) int {
	if strings.HasSuffix(key, "sha256") {
		return 1
	}
	return 0
}

func short(v any) string {
	raw, err := json.Marshal(v)
	if err != nil || v == nil {
		return "absent"
	}
	if len(raw) > 200 {
		return string(raw[:200]) + "…"
	}
	return string(raw)
}
