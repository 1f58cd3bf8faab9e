package vocab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"terrace/tokenizer"
)

// Largest files read: the largest published tokenizer.json has 34 MB.
const (
	maxTokenizerBytes = 256 << 20
	maxConfigBytes    = 16 << 20
)

// folder reads a model folder's files by fixed names.
type folder struct{ dir string }

// read returns a file's bytes, nil when it is not there. Only regular files are
// opened, so that a pipe or a device cannot hold the program.
func (f folder) read(name string, maxBytes int64) ([]byte, error) {
	path := filepath.Join(f.dir, name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("vocab: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("vocab: %s is not a regular file: %w", path, tokenizer.ErrVocab)
	}
	if info.Size() > maxBytes {
		return nil, fmt.Errorf("vocab: %s has %d bytes, at most %d: %w", path, info.Size(), maxBytes, tokenizer.ErrVocab)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("vocab: %w", err)
	}
	defer file.Close()
	data := bytes.NewBuffer(make([]byte, 0, info.Size()+1))
	if _, err := io.Copy(data, io.LimitReader(file, maxBytes)); err != nil {
		return nil, fmt.Errorf("vocab: %s: %w", path, err)
	}
	return data.Bytes(), nil
}

// has reports whether a file is there.
func (f folder) has(name string) bool {
	_, err := os.Stat(filepath.Join(f.dir, name))
	return err == nil
}

// object reads a JSON file of settings; an absent one is an empty object.
func (f folder) object(name string) (object, error) {
	data, err := f.read(name, maxConfigBytes)
	if err != nil || data == nil {
		return object{where: name}, err
	}
	return parseObject(name, data)
}

func fromFolder(dir string) (v tokenizer.Vocab, err error) {
	f := folder{dir}
	s, err := f.settings()
	if err != nil {
		return v, err
	}
	for _, source := range []struct {
		name  string
		parse func(data []byte, s *settings) (tokenizer.Vocab, error)
	}{
		{"tokenizer.json", parseTokenizerJSON},
		{"tokenizer.model", parseSentencePiece},
		{"qwen.tiktoken", parseTiktoken},
	} {
		data, err := f.read(source.name, maxTokenizerBytes)
		if err != nil {
			return v, err
		}
		if data == nil {
			continue
		}
		if v, err = source.parse(data, s); err == nil {
			err = s.apply(&v)
		}
		if err != nil {
			return tokenizer.Vocab{}, fmt.Errorf("vocab: %s: %w", filepath.Join(dir, source.name), err)
		}
		return v, nil
	}
	return f.fromVocabJSON(s)
}

// fromVocabJSON is the last resort: vocab.json with merges.txt.
func (f folder) fromVocabJSON(s *settings) (v tokenizer.Vocab, err error) {
	data, err := f.read("vocab.json", maxTokenizerBytes)
	if err != nil {
		return v, err
	}
	merges, err := f.read("merges.txt", maxTokenizerBytes)
	if err != nil {
		return v, err
	}
	if data == nil || merges == nil {
		return v, fmt.Errorf("vocab: %s: %w: %w", f.dir, errNoTokenizer, tokenizer.ErrVocab)
	}
	if v, err = parseVocabJSON(data, merges, s); err == nil {
		err = s.apply(&v)
	}
	if err != nil {
		return tokenizer.Vocab{}, fmt.Errorf("vocab: %s: %w", filepath.Join(f.dir, "vocab.json"), err)
	}
	return v, nil
}

// settings is what stands beside the vocabulary: which tokens are special, the
// chat template, what ends a generation.
type settings struct {
	config     object // tokenizer_config.json
	added      []addedToken
	names      map[string]string // "bos_token" → "<s>"
	ids        map[string][]int  // "eos_token_id" → ids, of generation_config.json or config.json
	addedJSON  object            // added_tokens.json
	template   string
	addBOS     *bool
	addEOS     *bool
	className  string
	isLlamaish bool
}

var specialNames = []string{"bos_token", "eos_token", "unk_token", "pad_token"}

func (f folder) settings() (*settings, error) {
	s := &settings{names: map[string]string{}, ids: map[string][]int{}}
	var err error
	if s.config, err = f.object("tokenizer_config.json"); err != nil {
		return nil, err
	}
	special, err := f.object("special_tokens_map.json")
	if err != nil {
		return nil, err
	}
	if s.addedJSON, err = f.object("added_tokens.json"); err != nil {
		return nil, err
	}
	for _, o := range []object{special, s.config} {
		for _, name := range specialNames {
			if text, ok, err := o.tokenText(name); err != nil {
				return nil, err
			} else if ok {
				s.names[name] = text
			}
		}
	}
	if err := s.readConfig(); err != nil {
		return nil, err
	}
	for _, file := range []string{"config.json", "generation_config.json"} {
		o, err := f.object(file)
		if err != nil {
			return nil, err
		}
		for _, name := range []string{"bos_token_id", "eos_token_id", "pad_token_id"} {
			ids, err := o.idList(name)
			if err != nil {
				return nil, err
			}
			if ids != nil {
				s.ids[name] = ids
			}
		}
	}
	return s, s.readTemplate(f)
}

func (s *settings) readConfig() (err error) {
	if s.addBOS, err = s.config.flag("add_bos_token"); err != nil {
		return err
	}
	if s.addEOS, err = s.config.flag("add_eos_token"); err != nil {
		return err
	}
	s.className, _ = s.config.values["tokenizer_class"].(string)
	for _, part := range []string{"Llama", "Gemma"} {
		s.isLlamaish = s.isLlamaish || strings.Contains(s.className, part)
	}
	s.added, err = s.config.addedDecoder()
	return err
}

// readTemplate takes chat_template.jinja, else what tokenizer_config.json says:
// one template, or a list of which "default" is used.
func (s *settings) readTemplate(f folder) error {
	data, err := f.read("chat_template.jinja", maxConfigBytes)
	if err != nil {
		return err
	}
	if data != nil {
		if !utf8.Valid(data) {
			return fmt.Errorf("vocab: %s is not valid UTF-8: %w", filepath.Join(f.dir, "chat_template.jinja"), tokenizer.ErrVocab)
		}
		s.template = string(data)
		return nil
	}
	switch t := s.config.values["chat_template"].(type) {
	case nil:
	case string:
		s.template = t
	case []any:
		for _, item := range t {
			named, _ := item.(map[string]any)
			name, _ := named["name"].(string)
			if text, ok := named["template"].(string); ok && (name == "default" || len(t) == 1) {
				s.template = text
			}
		}
	default:
		return fmt.Errorf("vocab: tokenizer_config.json: chat_template is neither a string nor a list: %w", tokenizer.ErrVocab)
	}
	return nil
}

// apply puts the settings into a vocabulary: special ids by the text of the
// tokenizer's own settings first, then by the ids of the model's configuration.
func (s *settings) apply(v *tokenizer.Vocab) error {
	v.ChatTemplate = s.template
	byText := map[string]int{}
	for id, text := range v.Tokens {
		if _, dup := byText[text]; !dup || v.Types[id] == tokenizer.TypeControl {
			byText[text] = id
		}
	}
	set := func(dst *int, name string) error {
		if text, ok := s.names[name]; ok && text != "" {
			id, found := byText[text]
			if !found {
				return fmt.Errorf("%s %q is not a token: %w", name, text, tokenizer.ErrVocab)
			}
			*dst = id
			return nil
		}
		if ids := s.ids[name+"_id"]; *dst < 0 && len(ids) > 0 && ids[0] < len(v.Tokens) {
			*dst = ids[0]
		}
		return nil
	}
	for name, dst := range map[string]*int{"bos_token": &v.BOS, "eos_token": &v.EOS, "unk_token": &v.UNK, "pad_token": &v.PAD} {
		if err := set(dst, name); err != nil {
			return err
		}
	}
	for _, id := range s.ids["eos_token_id"] {
		if id >= len(v.Tokens) {
			continue // the model may have ids that this tokenizer has no text for
		}
		v.EOG = append(v.EOG, id)
	}
	return s.applyAdding(v)
}

// applyAdding settles add_bos_token and add_eos_token. A post-processor's
// template stands unless the class is one that rewrites it from the flags.
func (s *settings) applyAdding(v *tokenizer.Vocab) error {
	hasTemplate := v.Prefix != nil || v.Suffix != nil
	if hasTemplate && !s.isLlamaish {
		return nil
	}
	if s.addBOS != nil {
		v.Prefix = slices.DeleteFunc(v.Prefix, func(id int) bool { return id == v.BOS })
		if v.AddBOS = *s.addBOS; v.AddBOS {
			if v.BOS < 0 {
				return fmt.Errorf("add_bos_token is true and there is no bos_token: %w", tokenizer.ErrVocab)
			}
			if hasTemplate {
				v.Prefix = append([]int{v.BOS}, v.Prefix...)
			}
		}
	}
	if s.addEOS != nil {
		v.Suffix = slices.DeleteFunc(v.Suffix, func(id int) bool { return id == v.EOS })
		if v.AddEOS = *s.addEOS; v.AddEOS {
			if v.EOS < 0 {
				return fmt.Errorf("add_eos_token is true and there is no eos_token: %w", tokenizer.ErrVocab)
			}
			if hasTemplate {
				v.Suffix = append(v.Suffix, v.EOS)
			}
		}
	}
	return nil
}
