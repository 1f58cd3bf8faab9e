package vocab

import (
	"errors"
	"fmt"
	"strings"

	"terrace/tokenizer"
	"terrace/weights/gguf"
)

const prefix = "tokenizer.ggml."

// FromModel returns the vocabulary of a model: of the Hugging Face folder dir
// when it is not "", else of the metadata's tokenizer.ggml.* keys. It checks
// what only the file format can say; tokenizer.New checks the rest.
func FromModel(m *gguf.Meta, dir string) (tokenizer.Vocab, error) {
	if dir != "" {
		return fromFolder(dir)
	}
	return fromMeta(m)
}

// keys reads metadata and keeps the first error, so that the reading of many
// optional keys stays a list.
type keys struct {
	m   *gguf.Meta
	err error
}

func (k *keys) fail(err error) {
	if k.err == nil && err != nil {
		k.err = fmt.Errorf("vocab: %w: %w", err, tokenizer.ErrVocab)
	}
}

func optional[T any](k *keys, key string, get func(string) (T, error), otherwise T) T {
	if k.err != nil || !k.m.Has(key) {
		return otherwise
	}
	v, err := get(key)
	k.fail(err)
	return v
}

// id reads a token id and checks it against the number of tokens.
func (k *keys) id(name string, tokens, otherwise int) int {
	key := prefix + name
	id := optional(k, key, k.m.Int, -1)
	if !k.m.Has(key) {
		if otherwise >= tokens {
			return -1
		}
		return otherwise
	}
	if id == -1 || id == int(^uint32(0)) {
		return -1 // written so for "none" by some converters
	}
	if id < 0 || id >= tokens {
		k.fail(fmt.Errorf("key %q: token id %d is out of range, the vocabulary has %d tokens", key, id, tokens))
		return -1
	}
	return id
}

// ggufModels says which kind each tokenizer.ggml.model is, with the ids and
// flags that llama.cpp assumes when the file does not say.
var ggufModels = map[string]struct {
	kind           string
	bos, eos, unk  int
	addBOS, addEOS bool
	spacePrefix    bool
	pre            string
}{
	"gpt2":   {kind: tokenizer.ModelBPE, bos: 11, eos: 11, unk: -1},
	"llama":  {kind: tokenizer.ModelSPM, bos: 1, eos: 2, unk: 0, addBOS: true, spacePrefix: true},
	"t5":     {kind: tokenizer.ModelUnigram, bos: -1, eos: 1, unk: 2, addEOS: true, spacePrefix: true},
	"gemma4": {kind: tokenizer.ModelBPE, bos: -1, eos: -1, unk: -1, addBOS: true, pre: "gemma4"},
}

func fromMeta(m *gguf.Meta) (v tokenizer.Vocab, err error) {
	k := &keys{m: m}
	name, err := m.String(prefix + "model")
	if err != nil {
		return v, fmt.Errorf("vocab: the model has no tokenizer: %w: %w", err, tokenizer.ErrVocab)
	}
	model, ok := ggufModels[name]
	if !ok {
		return v, fmt.Errorf("vocab: key %q: tokenizer model %q is unknown; known are gpt2, llama, t5 and gemma4: %w", prefix+"model", name, tokenizer.ErrUnsupported)
	}
	v.Model, v.ControlByText = model.kind, true
	v.Tokens, err = m.Strings(prefix + "tokens")
	k.fail(err)
	n := len(v.Tokens)
	v.Types = optional(k, prefix+"token_type", m.Int32s, nil)
	v.Scores = widen(optional(k, prefix+"scores", m.Floats, nil))
	k.length("token_type", len(v.Types), n)
	k.length("scores", len(v.Scores), n)
	if v.Model == tokenizer.ModelBPE {
		v.Merges, err = m.Strings(prefix + "merges")
		k.fail(err)
		if v.Pre = model.pre; v.Pre == "" {
			v.Pre = optional(k, prefix+"pre", m.String, "") // none: New warns
		}
	}
	v.BOS = k.id("bos_token_id", n, model.bos)
	v.EOS = k.id("eos_token_id", n, model.eos)
	v.UNK = k.id("unknown_token_id", n, model.unk)
	v.PAD = k.id("padding_token_id", n, -1)
	for _, end := range []string{"eot_token_id", "eom_token_id"} {
		if id := k.id(end, n, -1); id >= 0 {
			v.EOG = append(v.EOG, id)
		}
	}
	k.flags(&v, model.addBOS, model.addEOS, model.spacePrefix)
	v.ChatTemplate = optional(k, "tokenizer.chat_template", m.String, "")
	if k.err != nil {
		return tokenizer.Vocab{}, k.err
	}
	stripAfterSpecial(m, &v)
	return v, nil
}

// widen returns scores as the tokenizer adds them up.
func widen(scores []float32) []float64 {
	if scores == nil {
		return nil
	}
	wide := make([]float64, len(scores))
	for i, s := range scores {
		wide[i] = float64(s)
	}
	return wide
}

func (k *keys) length(name string, have, want int) {
	if k.m.Has(prefix+name) && have != want {
		k.fail(fmt.Errorf("key %q: %d items for %d tokens", prefix+name, have, want))
	}
}

func (k *keys) flags(v *tokenizer.Vocab, addBOS, addEOS, spacePrefix bool) {
	addBOS = addBOS || v.Model == tokenizer.ModelBPE && tokenizer.PreAddsBOS(v.Pre)
	v.AddBOS = optional(k, prefix+"add_bos_token", k.m.Bool, addBOS && v.BOS >= 0)
	v.AddEOS = optional(k, prefix+"add_eos_token", k.m.Bool, addEOS && v.EOS >= 0)
	v.AddSpacePrefix = optional(k, prefix+"add_space_prefix", k.m.Bool, spacePrefix) && v.Model != tokenizer.ModelBPE
	v.RemoveExtraSpaces = optional(k, prefix+"remove_extra_whitespaces", k.m.Bool, false)
	if key := prefix + "precompiled_charsmap"; v.Model == tokenizer.ModelUnigram && k.m.Has(key) {
		items := optional(k, key, k.m.Ints, nil)
		v.Charsmap = make([]byte, len(items))
		for i, b := range items {
			v.Charsmap[i] = byte(b)
		}
	}
	for name, bad := range map[string]bool{"add_bos_token": v.AddBOS && v.BOS < 0, "add_eos_token": v.AddEOS && v.EOS < 0} {
		if bad {
			k.fail(fmt.Errorf("key %q is true, but the token it adds is not given", prefix+name))
		}
	}
}

// stripAfterSpecial is llama.cpp's rule for Phi-3 files, which do not say that
// their special tokens take the white space after them along.
func stripAfterSpecial(m *gguf.Meta, v *tokenizer.Vocab) {
	name, err := m.String("general.name")
	if name = strings.ToLower(name); err != nil || v.Types == nil || !strings.Contains(name, "phi-3") && !strings.Contains(name, "phi3") {
		return
	}
	v.Match = map[int]tokenizer.Match{}
	for id, kind := range v.Types {
		switch text := v.Tokens[id]; {
		case text == "<unk>" || text == "<s>" || text == "<|endoftext|>":
		case text == "</s>", kind == tokenizer.TypeControl, kind == tokenizer.TypeUnknown, kind == tokenizer.TypeUserDefined:
			v.Match[id] = tokenizer.Match{RStrip: true}
		}
	}
}

// errNoTokenizer is what a folder without any tokenizer file ends in.
var errNoTokenizer = errors.New("no tokenizer: want tokenizer.json, tokenizer.model, qwen.tiktoken, or vocab.json with merges.txt")
