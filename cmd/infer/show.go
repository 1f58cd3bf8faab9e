package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/internal/kernels/quant"
	"terrace/internal/units"
	"terrace/weights"
	"terrace/weights/safetensors"
)

func init() { register(newShow) }

type showCommand struct {
	*app

	load    loadFlags
	tensors bool
	example bool
	tensor  string
	rows    int
	out     string
	verify  bool
	asJSON  bool
}

func newShow(a *app) *cobra.Command {
	sc := &showCommand{app: a}
	cmd := &cobra.Command{
		Use:     "show [MODEL]",
		Short:   "Show what a model is",
		Long:    "Show a model's architecture, size, quantisation, KV bytes a token and context. --verify scans every weight for NaN and Inf; --tensor with --rows and --out writes dequantised rows as safetensors. --template shows a conversation as the model is given it, tools too where its template knows them.",
		Example: "  infer show smollm2:135m\n  infer show model.gguf --tensors\n  infer show qwen3:0.6b --template\n  infer show model.gguf --tensor token_embd.weight --rows 4 --out rows.safetensors",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErrorf("show takes one model (%d given)", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				sc.load.model = args[0]
			}
			return sc.run()
		},
	}
	p := cmd.Flags()
	p.StringVarP(&sc.load.model, "model", "m", defaultModel, "model: a path or a name")
	p.BoolVar(&sc.tensors, "tensors", false, "list every tensor")
	p.StringVar(&sc.tensor, "tensor", "", "one tensor: show it, or write its first --rows rows to --out")
	p.IntVar(&sc.rows, "rows", 0, "rows of --tensor (0: all)")
	p.StringVar(&sc.out, "out", "", "safetensors file for --tensor")
	p.BoolVar(&sc.example, "template", false, "render an example conversation with the chat template, instead of all else")
	sc.load.addTemplate(cmd)
	p.BoolVar(&sc.verify, "verify", false, "scan every weight for NaN and Inf")
	p.BoolVar(&sc.asJSON, "json", false, "print one JSON object")
	return cmd
}

// modelInfo is what show --json prints.
type modelInfo struct {
	Name             string         `json:"name"`
	Path             string         `json:"path"`
	Format           string         `json:"format"`
	Architecture     string         `json:"architecture"`
	Title            string         `json:"title,omitempty"`
	Parameters       int64          `json:"parameters"`
	SizeBytes        int64          `json:"size_bytes"`
	LayerCount       int            `json:"layer_count"`
	Layers           []layerInfo    `json:"layers"`
	Hidden           int            `json:"hidden"`
	Heads            int            `json:"heads"` // of the layer that has most, as KV heads and width are
	KVHeads          int            `json:"kv_heads"`
	HeadDim          int            `json:"head_dim"`
	Vocab            int            `json:"vocab"`
	Context          int            `json:"context"`
	SlidingWindow    int            `json:"sliding_window,omitempty"`
	Experts          int            `json:"experts,omitempty"`
	KVBytesPerToken  int            `json:"kv_bytes_per_token"`
	StateBytes       int64          `json:"state_bytes,omitempty"` // that a text takes beside keys and values, whatever its length
	KVBytesAtContext int64          `json:"kv_bytes_at_context"`   // of a text of Context tokens, at most: layers with a sliding window keep what later tokens read
	Quantisation     map[string]int `json:"quantisation"`          // tensors of each type
	BitsPerWeight    float64        `json:"bits_per_weight"`
	ChatTemplate     bool           `json:"chat_template"`
	Tensors          []tensorInfo   `json:"tensors,omitempty"`
	Verified         bool           `json:"verified,omitempty"`
}

type tensorInfo struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
}

func (sc *showCommand) run() error {
	l, err := sc.openFile(&sc.load)
	if err != nil {
		return err
	}
	defer l.close()
	if sc.example {
		return sc.showTemplate(l)
	}
	if sc.tensor != "" && sc.out != "" {
		return sc.writeRows(l.file.Weights())
	}
	if l.model, err = l.file.Model(); err != nil {
		return err
	}
	if sc.verify {
		bar := sc.newBar()
		err := l.file.Weights().Verify(sc.ctx, func(done, total int64) { bar.bytes("verify", done, total) })
		bar.done()
		if errors.Is(err, weights.ErrNotFinite) {
			return checkError{err}
		}
		if err != nil {
			return err
		}
	}
	info, err := describe(l)
	if err != nil {
		return err
	}
	info.Verified = sc.verify
	if err := sc.openTokenizer(l, sc.load.templateFile); err == nil {
		info.ChatTemplate = l.tok.HasTemplate()
	} else {
		sc.notice("no tokenizer: %v", err)
	}
	if !sc.tensors && sc.tensor == "" {
		info.Tensors = nil
	}
	if sc.tensor != "" {
		info.Tensors = slices.DeleteFunc(info.Tensors, func(t tensorInfo) bool { return t.Name != sc.tensor })
		if len(info.Tensors) == 0 {
			_, err := l.file.Weights().Tensor(sc.tensor)
			return err
		}
	}
	if sc.asJSON {
		return sc.printJSON(info)
	}
	return sc.printInfo(info)
}

// describe sums up an opened model.
func describe(l *loaded) (modelInfo, error) {
	m := l.model
	info := modelInfo{Name: l.name, Path: l.path, Format: l.file.Weights().Format(), Architecture: m.Arch, Title: m.Name, SizeBytes: l.file.Weights().SizeBytes(),
		LayerCount: m.Layers, Layers: layersOf(m), Hidden: m.Hidden, StateBytes: m.Cache().StateBytes(), Vocab: m.Vocab, Context: m.Context,
		Experts: m.Experts, KVBytesPerToken: 2 * m.Cache().Numbers(), Quantisation: map[string]int{}}
	o := engine.Options{WindowOnly: true}
	if err := o.Validate(m); err != nil {
		return info, err
	}
	for _, x := range info.Layers {
		info.Heads, info.KVHeads, info.HeadDim = max(info.Heads, x.Heads), max(info.KVHeads, x.KVHeads), max(info.HeadDim, x.KeyWidth)
	}
	info.KVBytesAtContext = engine.KVBytes(m, o, m.Context)
	for _, c := range m.Layer {
		info.SlidingWindow = max(info.SlidingWindow, c.Window)
	}
	var bytes int64
	for _, t := range l.file.Weights().Tensors() {
		n := int64(1)
		for _, d := range t.Shape {
			n *= int64(d)
		}
		info.Parameters += n
		bytes += n / int64(t.Type.BlockLen()) * int64(t.Type.BlockBytes())
		info.Quantisation[t.Type.String()]++
		info.Tensors = append(info.Tensors, tensorInfo{t.Name, t.Type.String(), t.Shape})
	}
	if info.Parameters > 0 {
		info.BitsPerWeight = 8 * float64(bytes) / float64(info.Parameters)
	}
	return info, nil
}

func (sc *showCommand) printInfo(i modelInfo) error {
	w := sc.newTable()
	row := func(name, format string, args ...any) {
		for i := range args {
			if text, ok := args[i].(string); ok {
				args[i] = visible(text, "") // a file's own texts make no rows
			}
		}
		fmt.Fprintf(w, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	row("model", "%s", i.Name)
	if i.Title != "" {
		row("title", "%s", i.Title)
	}
	row("path", "%s", i.Path)
	row("format", "%s, %s, %.2f bits a weight", i.Format, units.FormatBytes(i.SizeBytes), i.BitsPerWeight)
	row("quantisation", "%s", quantMix(i.Quantisation))
	row("architecture", "%s", i.Architecture)
	row("parameters", "%.1f M", float64(i.Parameters)/1e6)
	if kinds := layerKinds(i.Layers); len(kinds) == 1 {
		row("layers", "%d of hidden %d, %s", i.LayerCount, i.Hidden, kinds[0].text)
	} else {
		row("layers", "%d of hidden %d", i.LayerCount, i.Hidden)
		for _, k := range kinds {
			row("", "%d × %s", k.count, k.text)
		}
	}
	if i.Experts > 0 {
		row("experts", "%d", i.Experts)
	}
	row("vocabulary", "%d", i.Vocab)
	if i.SlidingWindow > 0 {
		row("sliding window", "%d tokens in some layers", i.SlidingWindow)
	}
	row("context", "%d tokens", i.Context)
	if i.StateBytes > 0 {
		row("state", "%s a text, whatever its length", units.FormatBytes(i.StateBytes))
	}
	row("KV cache", "%s a token in f16, %s for the whole context", units.FormatBytes(int64(i.KVBytesPerToken)), units.FormatBytes(i.KVBytesAtContext))
	row("chat template", "%v", i.ChatTemplate)
	if i.Verified {
		row("weights", "all finite")
	}
	for _, t := range i.Tensors {
		row("tensor", "%s\t%s\t%v", t.Name, t.Type, t.Shape)
	}
	return w.Flush()
}

// quantMix prints the types by how many tensors have them.
func quantMix(types map[string]int) string {
	names := make([]string, 0, len(types))
	for n := range types {
		names = append(names, n)
	}
	slices.SortFunc(names, func(x, y string) int { return cmp.Or(types[y]-types[x], strings.Compare(x, y)) })
	for i, n := range names {
		names[i] = fmt.Sprintf("%s ×%d", n, types[n])
	}
	return strings.Join(names, ", ")
}

// writeRows writes the first rows of a tensor as float32 safetensors.
func (sc *showCommand) writeRows(file *weights.Model) error {
	t, err := file.Tensor(sc.tensor)
	if err != nil {
		return err
	}
	data, err := t.Bytes()
	if err != nil {
		return err
	}
	cols, total := t.Shape[len(t.Shape)-1], 1
	for _, d := range t.Shape[:len(t.Shape)-1] {
		total *= d
	}
	rows := sc.rows
	if rows <= 0 {
		rows = total
	}
	if rows > total {
		return usageErrorf("--rows %d: tensor %s has %d", rows, t.Name, total)
	}
	w, err := safetensors.Create(sc.out, []safetensors.Entry{{Name: t.Name, DType: "F32", Shape: []int{rows, cols}}})
	if err != nil {
		return err
	}
	defer w.Abort()
	row := make([]float32, cols)
	for r := range rows {
		quant.Dequantize(t.Type, row, data[r*t.Type.RowBytes(cols):(r+1)*t.Type.RowBytes(cols)])
		if err := w.WriteFloat32s(row); err != nil {
			return err
		}
	}
	return w.Close()
}
