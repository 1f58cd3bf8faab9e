package main

import (
	"bufio"
	"strings"
	"testing"
)

// TestLongMessage: chat reads no more of a line than a message may have.
func TestLongMessage(t *testing.T) {
	endless := &plainInput{in: bufio.NewReader(zeros{})}
	if _, err := endless.message(t.Context()); exitCode(err) != exitData || !strings.Contains(err.Error(), "8MiB") {
		t.Errorf("an endless line: %v", err)
	}
	many := &plainInput{in: bufio.NewReader(strings.NewReader(manyLines + strings.Repeat(strings.Repeat("x", 1000)+"\n", 9000)))}
	if _, err := many.message(t.Context()); exitCode(err) != exitData {
		t.Errorf("an endless message: %v", err)
	}
	short := &plainInput{in: bufio.NewReader(strings.NewReader("hello\r\n"))}
	if text, err := short.message(t.Context()); text != "hello" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
