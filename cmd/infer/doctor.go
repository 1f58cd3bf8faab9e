package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/cpuid/v2"
	"github.com/spf13/cobra"

	"terrace"
	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
	"terrace/internal/memlimit"
	"terrace/internal/units"
	"terrace/model"
	"terrace/offload"
	"terrace/weights/convert"
)

func init() { register(newDoctor) }

type doctorCommand struct {
	*app

	asJSON, disk bool
}

func newDoctor(a *app) *cobra.Command {
	c := &doctorCommand{app: a}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "What this machine offers, and whether it computes right",
		Long: "Show what decides how models run here (kernels, memory and its limits, the folder of models, its disk, backends, the server's port), and generate ten tokens of a small model made " +
			"on the spot, which every kernel path must give alike. The table belongs into a bug report. Exit code 5 where something is wrong.",
		Example: "  infer doctor\n  infer doctor --json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return c.run() },
	}
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&c.disk, "disk", true, "measure how fast the folder of models is read (a second)")
	return cmd
}

// finding is a row of the table.
type finding struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Wrong string `json:"wrong,omitempty"` // what is to be done; "" = it is right
}

func (c *doctorCommand) run() error {
	list := []finding{{Name: "version", Value: buildLine()},
		{Name: "machine", Value: fmt.Sprintf("%s, %d threads, %s/%s", strings.TrimSpace(cpuid.CPU.BrandName), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)},
		{Name: "kernels", Value: fmt.Sprintf("%s (there are: %s; --cpu)", kernels.Path(), strings.Join(kernels.Available(), ", "))}}
	for _, l := range memlimit.All() {
		list = append(list, finding{Name: "memory", Value: fmt.Sprintf("%s: %s, %s of it free", l.What, units.FormatBytes(l.Bytes), units.FormatBytes(max(l.Free, 0)))})
	}
	list = append(list, c.homeFinding(), finding{Name: "backends", Value: strings.Join(model.Backends(), ", ")}, portFinding("127.0.0.1:8080"))
	for _, path := range kernels.Available() {
		list = append(list, c.selfTest(path))
	}
	if err := c.printFindings(list); err != nil {
		return err
	}
	if n := len(slices.DeleteFunc(slices.Clone(list), func(f finding) bool { return f.Wrong == "" })); n > 0 {
		return checkError{fmt.Errorf("doctor: %d of %d findings need care", n, len(list))}
	}
	return nil
}

func (c *doctorCommand) printFindings(list []finding) error {
	if c.asJSON {
		return c.printJSON(map[string]any{"findings": list})
	}
	w := c.newTable()
	for _, f := range list {
		mark := "ok"
		if f.Wrong != "" {
			mark = "WRONG: " + f.Wrong
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Name, f.Value, mark)
	}
	return w.Flush()
}

// homeFinding looks whether models can be kept, and how fast they are read.
func (c *doctorCommand) homeFinding() finding {
	f := finding{Name: "models", Value: c.home()}
	if err := os.MkdirAll(c.home(), 0o755); err != nil {
		f.Wrong = oneLine(err) + ": give another --home"
		return f
	}
	dir, err := os.MkdirTemp(c.home(), "doctor-")
	if err != nil {
		f.Wrong = oneLine(err) + ": give another --home"
		return f
	}
	defer os.RemoveAll(dir)
	if !c.disk {
		return f
	}
	rates, err := offload.MeasureStorage(c.ctx, dir, offload.MeasureOptions{SizeBytes: 32 << 20, Each: 50 * time.Millisecond, Rounds: 1, NoStore: true})
	if err != nil {
		f.Wrong = oneLine(err)
		return f
	}
	f.Value += fmt.Sprintf(", read at %s/s", units.FormatBytes(int64(rates.StreamRead)))
	return f
}

// portFinding looks whether a server could listen.
func portFinding(addr string) finding {
	f := finding{Name: "port", Value: addr + " is free"}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		f.Value = addr + " is in use (infer serve --addr takes another)" // by a server perhaps: nothing is wrong
		return f
	}
	l.Close()
	return f
}

// selfTokens are the ten tokens that the self-test's model gives, by every path (computed by purego, without assembly).
var selfTokens = []int{73, 26, 26, 41, 87, 74, 48, 185, 159, 69}

// selfTest generates ten tokens by a kernel path.
func (c *doctorCommand) selfTest(path string) (f finding) {
	f = finding{Name: "self-test", Value: path}
	got, err := c.selfGenerate(path)
	switch {
	case err != nil:
		f.Wrong = oneLine(err)
	case !slices.Equal(got, selfTokens):
		f.Wrong = fmt.Sprintf("tokens %v, want %v: do not trust this path's texts (--cpu chooses another), and report it", got, selfTokens)
	default:
		f.Value += ": ten tokens, as they should be"
	}
	return f
}

func (c *doctorCommand) selfGenerate(path string) (ids []int, err error) {
	before := kernels.Path()
	if err := kernels.Select(path); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, kernels.Select(before)) }()
	dir, err := os.MkdirTemp("", "doctor-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	spec := convert.Spec{Arch: "llama", Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, FFN: 128, Vocab: 300, Context: 256, Seed: 1}
	spec.SetDefaults()
	kind, err := quant.ParseType("Q8_0")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "self.gguf")
	if err := convert.Synthesize(c.ctx, file, spec, convert.Options{Type: kind}); err != nil {
		return nil, err
	}
	m, err := terrace.Open(c.ctx, file, terrace.Options{Exact: true, Threads: 1})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	for piece, err := range m.Generate(c.ctx, "Terrace", terrace.Settings{MaxTokens: 10, Greedy: true, IgnoreEnd: true}) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, piece.Tokens...)
	}
	return ids, nil
}
