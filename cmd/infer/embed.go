package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"terrace"
	"terrace/model/bert"
)

func init() { register(newEmbed) }

// defaultEncoder is what embeds when no model is named.
const defaultEncoder = "minilm:l6"

type embedCommand struct {
	*app

	model                    string
	threads                  int
	file                     string
	truncate, cosine, asJSON bool
}

func newEmbed(a *app) *cobra.Command {
	c := &embedCommand{app: a}
	cmd := &cobra.Command{
		Use:     "embed [TEXT ...]",
		Aliases: []string{"embedding"},
		Short:   "Texts to vectors: the sentence embeddings of an encoder",
		Long: "Computes a vector of length 1 for each text with a BERT encoder (a folder with config.json, vocab.txt or tokenizer.json, and safetensors); the cosine of two texts is the product of their vectors. " +
			"Texts are the arguments, or the lines of a file or of standard input. Each vector is printed as one line of numbers.",
		Example: "  infer embed \"a cat sits on the mat\" \"a kitten on a rug\" --cosine\n  infer embed --file sentences.txt --json",
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run(args) },
	}
	p := cmd.Flags()
	p.StringVarP(&c.model, "model", "m", defaultEncoder, "encoder: a folder or a name")
	p.IntVarP(&c.threads, "threads", "t", 0, "worker threads (default: one a CPU)")
	p.StringVarP(&c.file, "file", "f", "", "a file of texts, one a line; - for standard input")
	p.BoolVar(&c.truncate, "truncate", false, "cut texts that are longer than the encoder takes (an error otherwise)")
	p.BoolVar(&c.cosine, "cosine", false, "print the cosine of every pair instead of the vectors")
	p.BoolVar(&c.asJSON, "json", false, "print one JSON object")
	return cmd
}

// openEncoder opens an encoder by its name or that of a preset; close it.
func (a *app) openEncoder(name string, threads int) (*terrace.Encoder, error) {
	name, o, done, err := a.modelOptions(name)
	if err != nil {
		return nil, err
	}
	o.Threads = threads
	e, err := terrace.OpenEncoder(a.ctx, name, o)
	done()
	return e, openError(err)
}

func (c *embedCommand) run(texts []string) error {
	if c.threads < 0 {
		return usageErrorf("--threads %d: want 1 or more", c.threads)
	}
	if len(texts) > 0 && c.file != "" {
		return usageErrorf("embed: texts are given as arguments and in --file: want one of them")
	}
	if len(texts) == 0 {
		var err error
		if texts, err = c.linesOf(orDefault(c.file, "-")); err != nil {
			return err
		}
	}
	encoder, err := c.openEncoder(c.model, c.threads)
	if err != nil {
		return err
	}
	defer encoder.Close()
	e := encoder.BERT()
	ids := make([][]int32, len(texts))
	for i, text := range texts {
		if !utf8.ValidString(text) {
			return dataErrorf("embed: text %d is not UTF-8", i+1)
		}
		if ids[i] = e.Tokens(text); c.truncate {
			ids[i] = e.Cut(ids[i])
		}
	}
	vectors, err := e.Embed(ids)
	if errors.Is(err, bert.ErrTooLong) {
		return fmt.Errorf("%w (--truncate cuts it)", err)
	}
	if err != nil {
		return err
	}
	return c.printEmbeddings(e, ids, vectors)
}

// linesOf reads the texts of a file; a last line without an end counts.
func (c *embedCommand) linesOf(name string) ([]string, error) {
	text, err := c.readText(name)
	if err != nil {
		return nil, err
	}
	text = strings.TrimSuffix(text, "\n")
	if text == "" {
		return nil, dataErrorf("embed: no text: give texts as arguments, or one a line in --file or on standard input")
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSuffix(l, "\r")
	}
	return lines, nil
}

// embedOutput is what embed prints with --json.
type embedOutput struct {
	Model  string       `json:"model"`
	Dim    int          `json:"dim"`
	Data   []embedEntry `json:"data"`
	Cosine [][]float64  `json:"cosine,omitempty"`
}

type embedEntry struct {
	Index     int       `json:"index"`
	Tokens    int       `json:"tokens"`
	Embedding []float32 `json:"embedding"`
}

func (c *embedCommand) printEmbeddings(e *bert.Encoder, ids [][]int32, vectors [][]float32) error {
	out := embedOutput{Model: c.model, Dim: e.Hidden}
	for i, v := range vectors {
		out.Data = append(out.Data, embedEntry{i, len(ids[i]), v})
	}
	if c.cosine {
		for _, v := range vectors {
			row := make([]float64, len(vectors))
			for j, w := range vectors {
				row[j] = bert.Cosine(v, w)
			}
			out.Cosine = append(out.Cosine, row)
		}
	}
	if c.asJSON {
		return json.NewEncoder(c.stdout).Encode(out)
	}
	w := bufio.NewWriter(c.stdout)
	for _, row := range out.Cosine {
		printRow(w, row, 4)
	}
	for _, v := range vectors {
		if !c.cosine {
			printRow(w, v, -1)
		}
	}
	return w.Flush()
}

// printRow prints numbers on a line, with that many digits behind the point; -1: as many as tell them apart.
func printRow[T float32 | float64](w io.Writer, row []T, digits int) {
	for i, x := range row {
		if i > 0 {
			fmt.Fprint(w, " ")
		}
		format := byte('g')
		if digits >= 0 {
			format = 'f'
		}
		fmt.Fprint(w, strconv.FormatFloat(float64(x), format, digits, 32))
	}
	fmt.Fprintln(w)
}
