// Package settings reads and writes YAML files of flags' values: the configuration file and presets.
//
// It owns their form: every key is a flag's name with a plain value or a list of them, and nothing is nested, so that a file of a stranger
// takes neither memory nor time. A preset is such a file in a folder of presets, which names a model beside the values of the flags that it
// is run with. What a flag means, and what comes before what, is the command line's.
//
// Concurrency: files are written whole; whoever reads sees the old one or the new one.
package settings

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// ErrFile marks a file that is no list of flags' values.
var ErrFile = errors.New("bad settings")

// fault is an ErrFile whose text says it all.
type fault struct{ text string }

func (f fault) Error() string        { return f.text }
func (f fault) Is(target error) bool { return target == ErrFile }

func faultf(format string, args ...any) error { return fault{fmt.Sprintf(format, args...)} }

// Bounds of a file, whose reader takes memory by its nesting.
const (
	maxBytes = 256 << 10
	maxDepth = 4
)

// Read gives the values by flag, _ in names read as -; a list gives a repeatable flag several. Errors are ErrFile, in one line.
func Read(path string) (map[string][]string, error) {
	b, err := readFlat(path)
	if err != nil {
		return nil, err
	}
	var raw map[string]any
	if err := yaml.Unmarshal(b, &raw); err != nil {
		return nil, faultf("config file %s: %s", path, strings.SplitN(err.Error(), "\n", 2)[0])
	}
	out := map[string][]string{}
	for _, spelled := range slices.Sorted(maps.Keys(raw)) {
		k := strings.ReplaceAll(spelled, "_", "-")
		if out[k] != nil {
			return nil, faultf("config file %s: %q is given twice, with - and with _", path, k)
		}
		list, ok := raw[spelled].([]any)
		if !ok {
			list = []any{raw[spelled]}
		}
		out[k] = []string{}
		for _, v := range list {
			switch v.(type) {
			case nil:
				return nil, faultf("config file %s: %q has no value: leave it out, or write \"\" for an empty text", path, k)
			case map[string]any, []any:
				return nil, faultf("config file %s: %q is a map or has a list in a list; every key is a flag with a plain value or a list", path, k)
			}
			out[k] = append(out[k], fmt.Sprint(v))
		}
	}
	return out, nil
}

// readFlat reads a file and refuses what a list of flags has no use for, before it is parsed.
func readFlat(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, faultf("config file: %v", err)
	case info.Mode().IsRegular() && info.Size() > maxBytes:
		return nil, faultf("config file %s: %d bytes, want at most %d", path, info.Size(), maxBytes)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, faultf("config file: %v", err)
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	switch {
	case err != nil:
		return nil, faultf("config file: %v", err)
	case len(b) > maxBytes:
		return nil, faultf("config file %s: more than %d bytes", path, maxBytes)
	}
	flow, line, block := 0, 0, 0
	for _, t := range lexer.Tokenize(string(b)) {
		if t.Position.Line != line {
			line, block = t.Position.Line, 0
		}
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return nil, faultf("config file %s, line %d: anchors and aliases (& and *) are not taken: write the value", path, line)
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType:
			block++
		}
		if flow > maxDepth || block > maxDepth || t.Position.IndentNum > 16*maxDepth {
			return nil, faultf("config file %s, line %d: lists and maps in one another: every key is a flag with a plain value or a list", path, line)
		}
	}
	return b, nil
}
