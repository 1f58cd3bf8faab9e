package terrace

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/cpuid/v2"

	"terrace/engine"
	"terrace/engine/filters"
	"terrace/engine/fit"
	"terrace/engine/texts"
	"terrace/engine/tier"
	"terrace/hub"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/internal/memlimit"
	"terrace/internal/tierspec"
	"terrace/internal/units"
	"terrace/model"
	"terrace/offload"
	"terrace/policy"
	"terrace/tokenizer"
)

// Engine opens what runs the model, for programs that drive its sessions themselves: infer's commands do. Of the options those of
// the server (Queue, Keys, Hosts, Names, Log) and Adapters do not count; Batch says how many texts share the tiers' memory, 0 = 1. Close the engine before the File; several may be
// open on one File.
//
// The engine has what policies need beside a prompt: a sample text, whose queries or keys infinigen and kvswap decompose once a model
// (the result is kept in Hub.Home), the words of kvzip, and where a drive is among the tiers the rates of this host, as infer profile measured them, else
// measured in less than a second and kept in Hub.Home too.
// Where a drive is, let the runtime have two processors more than Threads, so that questions leave while threads compute.
//
// ErrMemory says before any work that the buffers and an empty cache do not fit what bounds this process. Other errors are
// ErrModel, ErrPolicy, ErrOption, those of the backend and of the tiers. ctx is looked at before the engine is opened, not while.
func (f *File) Engine(ctx context.Context, o Options) (*engine.Engine, error) {
	eo, err := o.engine()
	if err != nil {
		return nil, err
	}
	m, err := f.Model()
	if err != nil {
		return nil, err
	}
	tok, err := f.Tokenizer(o.Template)
	if err != nil {
		return nil, err
	}
	if err := o.addTexts(&eo, tok); err != nil {
		return nil, err
	}
	if eo.Host, eo.Tiers, eo.TierRate, err = o.measured(m, eo); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := f.checkMemory(m, eo); err != nil {
		return nil, err
	}
	if err := f.bound(m, &o, &eo); err != nil {
		return nil, err
	}
	e, err := engine.Open(m, eo)
	if err != nil {
		return nil, err
	}
	if n := e.TierUse().Notice; n != "" {
		o.notice("%s", n)
	}
	if n, why, some := e.DeviceLayers(); some && n < m.Layers {
		if why != "" {
			why = ": " + why
		}
		o.notice("%s computes %d of %d layers, the others are computed on the CPU%s", eo.Backend, n, m.Layers, why)
	}
	if c := e.Options().Context; c > m.Context {
		o.notice("the context of %d tokens is longer than the %d the model was trained for: expect worse text beyond", c, m.Context)
	}
	return e, nil
}

// What opening a tokenizer makes a process larger by, and each of its tokens: measured on vocabularies of 49,000 and 262,000.
const tokenizerBytes, tokenBytes = 12 << 20, 100

// Fit computes from the model's shape what it needs for Options.Context tokens without a policy, and the longest context that fits
// so many bytes of memory, this process with the tokenizer included where it was opened; 0 = what can be used here without swapping,
// where the system tells. Errors are ErrModel and ErrOption.
func (f *File) Fit(o Options, memory int64) (r fit.Report, err error) {
	eo, err := o.engine()
	if err != nil {
		return r, err
	}
	m, err := f.Model()
	if err != nil {
		return r, err
	}
	if err := eo.Validate(m); err != nil {
		return r, err
	}
	if memory == 0 {
		memory = memlimit.Available()
	}
	program := memlimit.Resident()
	if f.tok == nil {
		program += tokenizerBytes + int64(m.Vocab)*tokenBytes
	}
	return fit.Of(m, eo, memory, program), nil
}

// Longest is how many tokens of each of Options.Batch texts at a time fit under Options.Policy, prompt and answer: in Options.Tiers, of
// which nothing is made, or, where those name no host memory, in so many bytes. Errors are ErrModel, ErrPolicy and ErrOption; under a
// policy that decomposes the model's queries or keys first, and for a drive, there is no answer (ErrOption).
func (f *File) Longest(o Options, roomBytes int64) (int, error) {
	return f.LongestText(o, roomBytes, 0)
}

// LongestText is Longest of texts whose last so many tokens are generated, and the others the prompt.
func (f *File) LongestText(o Options, roomBytes int64, answer int) (int, error) {
	eo, err := o.engine()
	if err != nil {
		return 0, err
	}
	m, err := f.Model()
	if err != nil {
		return 0, err
	}
	if f.tok != nil {
		if err := o.addTexts(&eo, f.tok); err != nil {
			return 0, err
		}
	}
	spec, err := policy.Parse(eo.Policy)
	if err != nil {
		return 0, err
	}
	if len(spec.Needs().OfModel) > 0 {
		return 0, fmt.Errorf("terrace: %s decomposes the model first: what it keeps is not known from the shape: %w", spec, ErrOption)
	}
	texts := int64(max(o.Batch, 1))
	for i := range eo.Tiers {
		eo.Tiers[i].CapacityBytes /= texts
	}
	if tier.HostBytes(eo.Tiers) == 0 {
		eo.KVBudgetBytes = max(roomBytes/texts, 1)
	}
	return engine.Longest(m, eo, answer)
}

// notice tells the caller.
func (o *Options) notice(format string, args ...any) {
	if o.Notice != nil {
		o.Notice(fmt.Sprintf(format, args...))
	}
}

// engine gives the options that are the engine's, but for what files and the model's tokenizer give.
func (o *Options) engine() (engine.Options, error) {
	eo := engine.Options{Policy: o.Policy, Context: o.Context, Threads: o.Threads, Exact: o.Exact, Backend: o.Backend,
		KVWindow: max(o.KVWindow, 0), KVWindowSet: o.KVWindow != 0, WindowOnly: o.WindowOnly, ChunkTokens: o.Chunk, PageTokens: o.Page, Machine: o.Machine,
		Trace: o.Timeline.recorder(), Batch: o.Batch}
	_, err := parseWeights(o.Weights)
	if err == nil {
		_, err = parseMemory(o.Memory)
	}
	if err != nil {
		return eo, err
	}
	if o.DType != "" {
		if eo.DType, err = model.ParseDType(o.DType); err != nil {
			return eo, fmt.Errorf("terrace: DType: %w", marked{err, ErrOption})
		}
	}
	if o.DeviceLayers != "" {
		if eo.DeviceLayers, err = model.ParsePlacement(o.DeviceLayers); err != nil {
			return eo, fmt.Errorf("terrace: DeviceLayers: %w", marked{err, ErrOption})
		}
	}
	if o.KVRotate != "" {
		if eo.Rotate, err = engine.ParseRotation(o.KVRotate); err != nil {
			return eo, fmt.Errorf("terrace: KVRotate: %w", marked{err, ErrOption})
		}
	}
	if o.KVType != "" {
		types, err := kvpage.ParseTypes(o.KVType)
		if err != nil {
			return eo, fmt.Errorf("terrace: KVType %s: %w", o.KVType, marked{err, ErrOption})
		}
		eo.KType, eo.VType, eo.KVOwn, eo.KVTypeSet = types.K, types.V, types.Own, true
	}
	if eo.Tiers, _, err = tiersOf(o); err != nil {
		return eo, err
	}
	return eo, nil
}

// tiersOf divides Options.Tiers into those of running texts and those of prompts.
func tiersOf(o *Options) (running, stored []tier.Tier, err error) {
	specs := make([]tierspec.Spec, len(o.Tiers))
	for i, text := range o.Tiers {
		if specs[i], err = tierspec.Parse(text); err != nil {
			return nil, nil, fmt.Errorf("terrace: %w", marked{err, ErrOption})
		}
	}
	running, stored = tierspec.Split(specs)
	return running, stored, nil
}

// addTexts gives the engine the texts that its own policy and those of single sessions have the model read, and a place to keep
// what is made of the sample. A template that cannot ask for a prompt again is an error where the engine's own policy needs that;
// elsewhere a session's policy that does is refused.
func (o *Options) addTexts(eo *engine.Options, tok *tokenizer.Tokenizer) error {
	spec, err := policy.Parse(eo.Policy)
	if err != nil {
		return err
	}
	if eo.Repeat, err = texts.Repeat(tok); err != nil && spec.Rereads() {
		return err
	}
	if err = o.addFilters(eo, spec); err != nil {
		return err
	}
	eo.CacheDir = filepath.Join(o.home(), "decompositions")
	eo.Calibration, err = texts.Calibration(tok)
	return err
}

// addFilters reads the files of filters that policies may name. What a request names is not among them unless the options do: whoever
// asks a server chooses no file of its machine.
func (o *Options) addFilters(eo *engine.Options, spec *policy.Spec) (err error) {
	eo.Filters = map[string]*policy.Filters{}
	for _, path := range append([]string{spec.Needs().Filters}, o.Filters...) {
		if path == "" {
			continue
		}
		if eo.Filters[path], err = filters.Read(path); err != nil {
			return err
		}
	}
	return nil
}

// home is where models and measurements are kept.
func (o *Options) home() string {
	if o.Hub.Home == "" {
		return hub.DefaultHome()
	}
	return o.Hub.Home
}

// measured is what is known of this host's rates: the host's, where a drive's work is balanced with the host's, tiers with what their
// storage reads (offload.StorageRates.GapBytes), and how many bytes a second that of an ssd reads. What infer profile found, else the host is measured briefly, which is kept for the next time.
func (o *Options) measured(m *model.Model, eo engine.Options) (host offload.HostRates, own []tier.Tier, reads float64, err error) {
	of := func(kind tierspec.Kind) bool {
		return slices.ContainsFunc(eo.Tiers, func(t tier.Tier) bool { return t.Kind == kind })
	}
	drive := of(tier.CSD) && o.Machine.Host == nil
	if !drive && !of(tier.SSD) {
		return host, eo.Tiers, 0, nil
	}
	path := offload.ProfileFile(o.home())
	p, err := offload.LoadProfile(path)
	if errors.Is(err, offload.ErrMissing) || errors.Is(err, offload.ErrShape) {
		if drive {
			host = o.measure(m, eo.Threads, path)
		}
		return host, eo.Tiers, 0, nil
	}
	own = slices.Clone(eo.Tiers)
	for i := range own {
		rates := p.StorageOf(own[i].Place)
		if rates == nil || own[i].Kind != tier.SSD {
			continue
		}
		if reads = rates.StreamRead; own[i].GapBytes == 0 {
			own[i].GapBytes = rates.GapBytes()
		}
	}
	if drive {
		host = p.Host
	}
	return host, own, reads, err
}

// measure measures the host for a model, and keeps the rates in a file. The rates of a model without keys of its own are not needed.
func (o *Options) measure(m *model.Model, threads int, path string) (host offload.HostRates) {
	layers := m.Cache()
	first := layers.Next(-1)
	if first < 0 {
		return host
	}
	start := time.Now()
	kv := layers[first].KV
	host = offload.MeasureHostBriefly(threads, kv.Heads, kv.KeyDim)
	took := time.Since(start).Seconds()
	err := offload.SaveProfile(path, offload.Profile{Time: start.UTC().Format(time.RFC3339), CPU: cpuid.CPU.BrandName, Kernels: kernels.Path(), Host: host})
	if err != nil {
		o.notice("this host's rates were measured in %.1f s and could not be kept: %v", took, err)
		return host
	}
	o.notice("this host's rates were measured in %.1f s and are kept in %s; 'infer profile' measures longer", took, path)
	return host
}

// heapGrowth is the address space that the Go runtime grows by when the heap does.
const heapGrowth = 64 << 20

// checkMemory refuses a model before any work where what it needs at least, an empty cache included, does not fit what bounds
// this process. The weights are mapped already: they count where a limit counts mapped files, and are counted as used there.
func (f *File) checkMemory(m *model.Model, eo engine.Options) error {
	if err := eo.Validate(m); err != nil {
		return nil // engine.Open says so
	}
	need := fit.Of(m, eo, 0, 0).BuffersBytes + engine.KVBytes(m, eo, 1)
	for _, l := range memlimit.All() {
		want := need
		if l.Mapped {
			want += heapGrowth
		}
		if l.Process && l.Free < want {
			err := fmt.Errorf("%s needs %s beside its weights before the first token, %s of %s has %s left: raise it, or take a smaller model or --chunk-tokens: %w",
				f.name, units.FormatBytes(want), l.What, units.FormatBytes(l.Bytes), units.FormatBytes(max(l.Free, 0)), engine.ErrMemory)
			return marked{err, ErrMemory}
		}
	}
	return nil
}
