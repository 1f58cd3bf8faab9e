package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"terrace/tokenizer"
)

func init() { register(newTokenize) }

// maxLineBytes bounds a line of JSON on standard input.
const maxLineBytes = 64 << 20

type tokenizeCommand struct {
	*app

	load                     loadFlags
	ids, jsonl, count        bool
	file                     string
	addSpecial, parseSpecial bool
}

func newTokenize(a *app) *cobra.Command {
	c := &tokenizeCommand{app: a}
	cmd := &cobra.Command{
		Use:   "tokenize [TEXT]",
		Short: "Text to token ids, and back",
		Long: "Prints the token ids that the model has for a text, as a JSON array; with --ids the text of such an array. Either is the argument, a file (-f), or all of standard input; with --count the number of tokens. " +
			"With --jsonl each line is one case: {\"text\", \"add_special\", \"parse_special\"} gives {\"ids\": [...]}, and {\"ids\": [...]} gives {\"text\"}; " +
			"bytes that are not UTF-8 travel as \"text_hex\". A case that does not say follows --add-special and --parse-special.",
		Example: "  infer tokenize 'Hello world'\n  infer tokenize --count -f page.txt\n  echo '[19556, 905]' | infer tokenize --ids\n  infer tokenize --jsonl < cases.jsonl",
		Args:    cobra.ArbitraryArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run(args) },
	}
	c.load.add(cmd)
	p := cmd.Flags()
	p.BoolVar(&c.ids, "ids", false, "from ids to text")
	p.BoolVar(&c.count, "count", false, "print how many tokens a text has, not which")
	p.StringVarP(&c.file, "file", "f", "", "read the text from this file, - for standard input")
	p.BoolVar(&c.jsonl, "jsonl", false, "one JSON case a line")
	p.BoolVar(&c.addSpecial, "add-special", true, "add what the model puts around a text (BOS, EOS)")
	p.BoolVar(&c.parseSpecial, "parse-special", true, "recognise control tokens written in the text")
	return cmd
}

func (c *tokenizeCommand) run(args []string) error {
	if len(args) > 1 {
		return usageErrorf("tokenize takes one text, got %d: put it in quotes", len(args))
	}
	if c.jsonl && len(args) > 0 {
		return usageErrorf("tokenize: --jsonl reads its cases on standard input and takes no text (%q given)", args[0])
	}
	if c.ids && c.jsonl {
		return usageErrorf("tokenize: --ids and --jsonl exclude each other: a --jsonl case with ids is decoded")
	}
	if c.count && (c.ids || c.jsonl) {
		return usageErrorf("tokenize: --count is of a text, without --ids and --jsonl")
	}
	if c.file != "" && (c.jsonl || len(args) > 0) {
		return usageErrorf("tokenize: --file %s beside %s", c.file, map[bool]string{true: "--jsonl, which reads standard input", false: "a text"}[c.jsonl])
	}
	l, err := c.openFile(&c.load)
	if err != nil {
		return err
	}
	defer l.close()
	if err := c.openTokenizer(l, ""); err != nil {
		return err
	}
	t := tokenizing{l.tok, c, bufio.NewWriter(c.stdout)}
	if c.jsonl {
		return t.lines(bufio.NewReader(c.stdin))
	}
	from, text := "the argument", strings.Join(args, "")
	switch {
	case c.file != "" && c.file != "-":
		from = c.file
		text, err = c.readText(c.file)
	case len(args) == 0:
		from = "standard input"
		text, err = readBounded(c.stdin, from)
	}
	if err != nil {
		return err
	}
	if err := t.whole(from, text); err != nil {
		return err
	}
	return t.out.Flush()
}

// tokenizing is one run of the command.
type tokenizing struct {
	tok *tokenizer.Tokenizer
	f   *tokenizeCommand
	out *bufio.Writer
}

// whole converts all that came from somewhere as one text or one array.
func (t tokenizing) whole(from, text string) error {
	if t.f.ids {
		var ids tokenIDs
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			return dataErrorf("%s: want token ids as a JSON array such as [1, 2, 3]: %v", from, err)
		}
		text, err := t.decode(ids)
		if err != nil {
			return dataErrorf("%s: %v", from, err)
		}
		_, err = t.out.WriteString(text)
		return err
	}
	ids, err := t.tok.Encode(text, t.f.addSpecial, t.f.parseSpecial)
	if err != nil {
		return err
	}
	if t.f.count {
		_, err := fmt.Fprintln(t.out, len(ids))
		return err
	}
	return t.write(ids)
}

// tokenizeCase is a line of --jsonl; what it does not name it does not look at.
type tokenizeCase struct {
	Text         *string  `json:"text"`
	TextHex      *string  `json:"text_hex"`
	IDs          tokenIDs `json:"ids"`
	AddSpecial   *bool    `json:"add_special"`
	ParseSpecial *bool    `json:"parse_special"`
}

// lines converts case by case; each answer is out before the next line is read.
func (t tokenizing) lines(in *bufio.Reader) error {
	for n := 1; ; n++ {
		line, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("standard input, line %d: %w", n, err)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			if err := t.line(line); err != nil {
				return dataErrorf("standard input, line %d: %w", n, err)
			}
			if err := t.out.Flush(); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

// readLine reads a line of bounded length.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLineBytes {
			return nil, dataErrorf("more than %d bytes", maxLineBytes)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

func (t tokenizing) line(line []byte) error {
	if !utf8.Valid(line) {
		return errors.New("not valid UTF-8; give bytes as text_hex")
	}
	var c tokenizeCase
	if err := json.Unmarshal(line, &c); err != nil {
		return fmt.Errorf("want {\"text\": ...} or {\"ids\": [...]}: %w", err)
	}
	var text string
	switch {
	case c.Text != nil:
		text = *c.Text
	case c.TextHex != nil:
		raw, err := hex.DecodeString(*c.TextHex)
		if err != nil {
			return fmt.Errorf("text_hex: %w", err)
		}
		text = string(raw)
	case c.IDs != nil:
		return t.answerText(c.IDs)
	default:
		return errors.New("neither text nor ids")
	}
	ids, err := t.tok.Encode(text, or(c.AddSpecial, t.f.addSpecial), or(c.ParseSpecial, t.f.parseSpecial))
	if err != nil {
		return err
	}
	return t.write(struct {
		IDs []int `json:"ids"`
	}{ids})
}

func or(given *bool, otherwise bool) bool {
	if given != nil {
		return *given
	}
	return otherwise
}

func (t tokenizing) answerText(ids []int) error {
	text, err := t.decode(ids)
	if err != nil {
		return err
	}
	if !utf8.ValidString(text) {
		return t.write(struct {
			TextHex string `json:"text_hex"`
		}{hex.EncodeToString([]byte(text))})
	}
	return t.write(struct {
		Text string `json:"text"`
	}{text})
}

// decode writes every id as text, control tokens by their names; an id that the model does not have is an error.
func (t tokenizing) decode(ids []int) (string, error) {
	for i, id := range ids {
		if id < 0 || id >= t.tok.Size() {
			return "", fmt.Errorf("id %d at position %d is out of range: the model has %d tokens", id, i, t.tok.Size())
		}
	}
	return t.tok.Decode(ids, true), nil
}

func (t tokenizing) write(v any) error {
	enc := json.NewEncoder(t.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
