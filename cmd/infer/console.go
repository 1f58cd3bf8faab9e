package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// console is where a command reads and writes.
type console struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer

	quiet     bool // --quiet: no notices and no progress bars
	lineEnded bool // an interrupted command has ended its line already
}

// notice prints one line about something the user should know, on stderr.
func (c *console) notice(format string, args ...any) {
	if !c.quiet {
		fmt.Fprintf(c.stderr, "infer: %s\n", visible(fmt.Sprintf(format, args...), "\n\t"))
	}
}

// isTTY reports whether w is a terminal (progress bars and colours are for terminals only).
func (c *console) isTTY(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// printJSON writes one value on one line.
func (c *console) printJSON(v any) error {
	enc := json.NewEncoder(c.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// stdinIsPiped reports whether standard input may hold text: it is open, and no terminal or other device.
func (c *console) stdinIsPiped() bool {
	f, ok := c.stdin.(*os.File)
	if !ok {
		return c.stdin != nil
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0 && !info.IsDir()
}

func (c *console) stdinIsTerminal() bool {
	f, ok := c.stdin.(*os.File)
	return ok && c.isTTY(f)
}

// readText reads a file, or standard input for "-".
func (c *console) readText(path string) (string, error) {
	if path == "-" {
		return readBounded(c.stdin, "standard input")
	}
	file, err := os.Open(path)
	if err != nil {
		return "", dataErrorf("%v", err)
	}
	defer file.Close()
	return readBounded(file, path)
}

// modelText writes what a model says: lines and tabs as they are, nothing that steers a terminal.
func (c *console) modelText(piece string) error {
	if c.isTTY(c.stdout) {
		piece = visible(piece, "\n\t")
	}
	_, err := io.WriteString(c.stdout, piece)
	return err
}
