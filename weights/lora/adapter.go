package lora

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"terrace/weights/gguf"
	"terrace/weights/safetensors"
	"terrace/weights/strictjson"
)

var (
	// ErrAdapter is wrapped by every error about an adapter that is malformed or does not belong to the model.
	ErrAdapter = fmt.Errorf("bad adapter: %w", gguf.ErrFormat)
	// ErrUnsupported is wrapped by errors about kinds of adapters that are not merged.
	ErrUnsupported = fmt.Errorf("adapter is not supported: %w", gguf.ErrUnsupported)
)

// Adapter is an open adapter; close it when the merged tensors are used no more.
type Adapter struct {
	path  string
	arch  string  // of GGUF files; "" where the adapter does not say
	pairs []pair  // in the order of their names
	alpha float64 // 0 = the scale is 1
	root  bool    // use_rslora
	hf    bool    // rows of q and k are in Hugging Face's order

	closer io.Closer
	check  func() error
}

// pair is what is added to one tensor.
type pair struct {
	target string       // the model's tensor, by its GGUF name
	name   string       // as the adapter has it, for messages
	a, b   *gguf.Tensor // [r, in], [out, r]
}

// Path is the name the adapter was opened by.
func (a *Adapter) Path() string { return a.path }

// Close unmaps the file.
func (a *Adapter) Close() error { return a.closer.Close() }

// CheckUnchanged compares the file with what it was when opened.
func (a *Adapter) CheckUnchanged() error { return a.check() }

// Open opens a PEFT folder, its safetensors file, or a GGUF file. Errors wrap ErrAdapter, ErrUnsupported or those of the system.
func Open(path string) (*Adapter, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	file := path
	if st.IsDir() {
		file = filepath.Join(path, "adapter_model.safetensors")
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("lora: %s: no adapter_model.safetensors there (PEFT's .bin files are not read: save with safe_serialization): %w", path, ErrAdapter)
		}
	}
	a := &Adapter{path: path}
	var tensors []*gguf.Tensor
	if strings.EqualFold(filepath.Ext(file), ".safetensors") {
		tensors, err = a.openPEFT(file)
	} else {
		tensors, err = a.openGGUF(file)
	}
	if err == nil {
		err = a.pairUp(tensors)
	}
	if err != nil {
		if a.closer != nil {
			err = errors.Join(err, a.closer.Close())
		}
		return nil, err
	}
	return a, nil
}

func (a *Adapter) openGGUF(file string) ([]*gguf.Tensor, error) {
	f, err := gguf.Open(file)
	if err != nil {
		return nil, err
	}
	a.closer, a.check = f, f.CheckUnchanged
	kind, err := f.Meta().String("adapter.type")
	if err != nil || kind != "lora" {
		return nil, fmt.Errorf("lora: %s: adapter.type is %q, want lora (a whole model goes to --model): %w", file, kind, ErrAdapter)
	}
	if a.arch, err = f.Meta().String("general.architecture"); err == nil {
		a.alpha, err = f.Meta().Float("adapter.lora.alpha")
	}
	if err == nil && !finite(a.alpha) {
		err = fmt.Errorf("adapter.lora.alpha is %g", a.alpha)
	}
	if err != nil {
		return nil, fmt.Errorf("lora: %s: %w: %w", file, err, ErrAdapter)
	}
	return f.Tensors(), nil
}

func (a *Adapter) openPEFT(file string) ([]*gguf.Tensor, error) {
	config := filepath.Join(filepath.Dir(file), "adapter_config.json")
	if err := a.readConfig(config); err != nil {
		return nil, fmt.Errorf("lora: %s: %w", config, err)
	}
	a.hf = true
	f, err := safetensors.Open(file)
	if err != nil {
		return nil, err
	}
	a.closer, a.check = f, f.CheckUnchanged
	if n := len(f.Entries()); n != len(f.Tensors()) {
		return nil, fmt.Errorf("lora: %s: %d of %d tensors are not F32, F16 or BF16 matrices: %w", file, n-len(f.Tensors()), n, ErrUnsupported)
	}
	return f.Tensors(), nil
}

// maxConfigBytes bounds adapter_config.json.
const maxConfigBytes = 1 << 20

// readConfig reads what PEFT's configuration says about the sum, and refuses what would make it another one.
func (a *Adapter) readConfig(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrAdapter)
	}
	if st.Size() > maxConfigBytes {
		return fmt.Errorf("%d bytes, want at most %d: %w", st.Size(), maxConfigBytes, ErrAdapter)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	c, err := strictjson.Object(text)
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrAdapter)
	}
	if kind, _ := c["peft_type"].(string); kind != "LORA" {
		return fmt.Errorf("peft_type is %v, want LORA: %w", c["peft_type"], ErrUnsupported)
	}
	for _, key := range []string{"use_dora", "use_qalora", "alora_invocation_tokens", "alpha_pattern", "modules_to_save", "target_parameters", "layer_replication", "trainable_token_indices"} {
		if !nothing(c[key]) {
			return fmt.Errorf("%s is set, which is not merged: %w", key, ErrUnsupported)
		}
	}
	if bias, given := c["bias"].(string); given && bias != "none" || c["bias"] != nil && !given || c["lora_bias"] == true {
		return fmt.Errorf("bias is %v, want none: %w", c["bias"], ErrUnsupported)
	}
	a.root = c["use_rslora"] == true
	alpha, ok := c["lora_alpha"].(json.Number)
	if !ok {
		return fmt.Errorf("lora_alpha is %v, want a number: %w", c["lora_alpha"], ErrAdapter)
	}
	if a.alpha, err = alpha.Float64(); err != nil || !finite(a.alpha) || a.alpha == 0 {
		return fmt.Errorf("lora_alpha is %v, want a number that is not 0: %w", alpha, ErrAdapter)
	}
	return nil
}

// nothing reports whether a JSON value sets nothing.
func nothing(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

var (
	peftName  = regexp.MustCompile(`^(.+)\.lora_(A|B)(?:\.default)?\.weight$`)
	ggufName  = regexp.MustCompile(`^(.+)\.lora_(a|b)$`)
	layerName = regexp.MustCompile(`(?:^|\.)(?:layers|h)\.(\d+)\.(.+)$`)
)

// parts are Hugging Face's names of a layer's matrices, by what model they are of all the same, and GGUF's.
var parts = map[string]string{
	"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.out_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv",
	"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
	"fc1": "ffn_up", "fc2": "ffn_down",
	"attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}

// target is the GGUF name of the tensor that a module of a PEFT adapter belongs to, "" where it is none that is known.
func target(module string) string {
	if m := layerName.FindStringSubmatch(module); m != nil {
		if part := parts[m[2]]; part != "" {
			return "blk." + m[1] + "." + part + ".weight"
		}
		return ""
	}
	if module == "lm_head" || strings.HasSuffix(module, ".lm_head") {
		return "output.weight"
	}
	return ""
}

// pairUp finds A and B of each tensor.
func (a *Adapter) pairUp(tensors []*gguf.Tensor) error {
	found := map[string]*pair{}
	for _, t := range tensors {
		pattern := ggufName
		if a.hf {
			pattern = peftName
		}
		m := pattern.FindStringSubmatch(t.Name)
		if m == nil {
			return fmt.Errorf("lora: %s: tensor %q is neither A nor B of a matrix: %w", a.path, t.Name, ErrUnsupported)
		}
		to := m[1]
		if a.hf {
			to = target(m[1])
		}
		if to == "" || strings.HasPrefix(to, "token_embd") {
			return fmt.Errorf("lora: %s: module %q is none that is merged (attention, feed-forward and output matrices are): %w", a.path, m[1], ErrUnsupported)
		}
		if len(t.Shape) != 2 || t.Shape[0] < 1 || t.Shape[1] < 1 {
			return fmt.Errorf("lora: %s: tensor %q has shape %v, want a matrix: %w", a.path, t.Name, t.Shape, ErrAdapter)
		}
		p := found[to]
		if p == nil {
			p = &pair{target: to, name: m[1]}
			found[to] = p
		}
		side := &p.a
		if strings.EqualFold(m[2], "b") {
			side = &p.b
		}
		if *side != nil || p.name != m[1] {
			return fmt.Errorf("lora: %s: tensors %q and %q are of one matrix: %w", a.path, p.name, t.Name, ErrAdapter)
		}
		*side = t
	}
	for _, p := range found {
		if p.a == nil || p.b == nil {
			return fmt.Errorf("lora: %s: %q has no A or no B: %w", a.path, p.name, ErrAdapter)
		}
		if p.a.Shape[0] != p.b.Shape[1] {
			return fmt.Errorf("lora: %s: %q has rank %d in A and %d in B: %w", a.path, p.name, p.a.Shape[0], p.b.Shape[1], ErrAdapter)
		}
		a.pairs = append(a.pairs, *p)
	}
	if len(a.pairs) == 0 {
		return fmt.Errorf("lora: %s: no tensors: %w", a.path, ErrAdapter)
	}
	slices.SortFunc(a.pairs, func(x, y pair) int { return strings.Compare(x.target, y.target) })
	return nil
}

// scale is what B·A of a rank is multiplied with.
func (a *Adapter) scale(rank int) float64 {
	switch {
	case a.alpha == 0:
		return 1
	case a.root:
		return a.alpha / math.Sqrt(float64(rank))
	}
	return a.alpha / float64(rank)
}
