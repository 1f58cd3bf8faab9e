package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"terrace/internal/replace"
)

const (
	historyMax       = 1000     // messages kept
	historyBytesMax  = 64 << 10 // of one message; longer ones are not kept
	historyFileSlack = 2        // the file is cut to historyMax when it holds so many times as many
)

// history is the messages of this and earlier chats, oldest first: a JSON string a line, appended to by every chat.
type history struct {
	path  string
	lines []string
}

// openHistory reads the file and makes its folder; lines that are no JSON string are passed over.
func openHistory(path string) (*history, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	h := &history{path: path}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 8*historyBytesMax)
	for in.Scan() {
		var text string
		if json.Unmarshal(in.Bytes(), &text) == nil && text != "" {
			h.lines = append(h.lines, text)
		}
	}
	if n := len(h.lines); n > historyMax {
		h.lines = h.lines[n-historyMax:]
		if n >= historyFileSlack*historyMax {
			return h, h.rewrite()
		}
	}
	return h, in.Err()
}

// rewrite replaces the file by what is kept.
func (h *history) rewrite() error {
	var b strings.Builder
	for _, text := range h.lines {
		raw, err := json.Marshal(text)
		if err != nil {
			return err
		}
		b.Write(append(raw, '\n'))
	}
	return replace.WriteFile(h.path, []byte(b.String()), 0o600)
}

// Write implements readline.History: it adds a message.
func (h *history) Write(text string) (int, error) {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > historyBytesMax {
		return len(h.lines), nil
	}
	h.lines = append(h.lines, text)
	raw, err := json.Marshal(text)
	if err != nil {
		return len(h.lines), err
	}
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return len(h.lines), err
	}
	_, err = f.Write(append(raw, '\n'))
	return len(h.lines), errors.Join(err, f.Close())
}

// GetLine implements readline.History.
func (h *history) GetLine(i int) (string, error) {
	if i < 0 || i >= len(h.lines) {
		return "", fmt.Errorf("history has %d messages, no number %d", len(h.lines), i)
	}
	return h.lines[i], nil
}

// Len implements readline.History.
func (h *history) Len() int { return len(h.lines) }

// Dump implements readline.History.
func (h *history) Dump() any { return h.lines }
