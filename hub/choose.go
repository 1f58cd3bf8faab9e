package hub

import (
	"crypto/sha1" // git's own blob ids
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// splitPattern matches the parts of a split GGUF file: NAME-00001-of-00003.gguf.
var splitPattern = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// choose picks from a repository's files what to fetch: the file asked for (by path, base name or quantisation, with all
// parts of a split one), else as llama.cpp does the GGUF file in Q4_K_M, else the first GGUF file, else the safetensors
// model at the top with its configuration and tokenizer. main is the file to open, "." for the folder.
func choose(files []remoteFile, want string) (main string, chosen []remoteFile, err error) {
	slices.SortFunc(files, func(a, b remoteFile) int { return strings.Compare(a.Path, b.Path) })
	if want != "" {
		return chooseNamed(files, want)
	}
	var ggufs []remoteFile
	for _, f := range files {
		base := strings.ToLower(path.Base(f.Path))
		if strings.HasSuffix(base, ".gguf") && !strings.Contains(base, "mmproj") && !strings.Contains(base, "imatrix") {
			ggufs = append(ggufs, f)
		}
	}
	if len(ggufs) > 0 {
		i := max(0, slices.IndexFunc(ggufs, func(f remoteFile) bool { return hasQuant(f.Path, "q4_k_m") }))
		return withParts(files, ggufs[i])
	}
	if chosen = safetensorsSet(files); len(chosen) > 0 {
		return ".", chosen, nil
	}
	return "", nil, fmt.Errorf("neither GGUF files nor a safetensors model with config.json among its %d files: %w", len(files), ErrNotFound)
}

func chooseNamed(files []remoteFile, want string) (string, []remoteFile, error) {
	for _, match := range []func(p string) bool{
		func(p string) bool { return p == want },
		func(p string) bool { return path.Base(p) == want },
		func(p string) bool { return hasQuant(p, strings.ToLower(want)) },
	} {
		if i := slices.IndexFunc(files, func(f remoteFile) bool { return match(f.Path) }); i >= 0 {
			return withParts(files, files[i])
		}
	}
	var names []string
	for _, f := range files {
		if strings.HasSuffix(strings.ToLower(f.Path), ".gguf") && len(names) < 12 {
			names = append(names, f.Path)
		}
	}
	return "", nil, fmt.Errorf("no file %q; there are %s: %w", want, strings.Join(names, ", "), ErrNotFound)
}

// hasQuant reports whether a GGUF file name ends in a quantisation, such as model.Q4_K_M.gguf or model-q4_k_m-00001-of-2.
func hasQuant(p, quant string) bool {
	base := strings.ToLower(path.Base(p))
	if m := splitPattern.FindStringSubmatch(base); m != nil {
		base = m[1] + ".gguf"
	}
	stem, ok := strings.CutSuffix(base, ".gguf")
	if !ok || !strings.HasSuffix(stem, quant) {
		return false
	}
	stem = strings.TrimSuffix(stem, quant)
	return stem == "" || strings.ContainsAny(stem[len(stem)-1:], ".-_")
}

// withParts adds the other parts of a split file; the first part is the one to open.
func withParts(files []remoteFile, f remoteFile) (string, []remoteFile, error) {
	m := splitPattern.FindStringSubmatch(f.Path)
	if m == nil {
		return f.Path, []remoteFile{f}, nil
	}
	var parts []remoteFile
	for _, g := range files {
		if n := splitPattern.FindStringSubmatch(g.Path); n != nil && n[1] == m[1] && n[3] == m[3] {
			parts = append(parts, g)
		}
	}
	if fmt.Sprintf("%05d", len(parts)) != m[3] {
		return "", nil, fmt.Errorf("%s: %d of %s parts are there: %w", f.Path, len(parts), m[3], ErrNotFound)
	}
	return parts[0].Path, parts, nil
}

// sideFiles are what a safetensors model is described by. Code (auto_map) and pickles are never fetched.
var sideFiles = []string{
	"config.json", "generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
	"special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json",
	"qwen.tiktoken", "model.safetensors.index.json",
	"vocab.txt", "modules.json", "sentence_bert_config.json", "1_Pooling/config.json", // encoders, as sentence-transformers has them
}

// safetensorsSet picks a safetensors model at the top of a repository: sharded files where there is an index, otherwise
// model.safetensors, otherwise whatever single file there is.
func safetensorsSet(files []remoteFile) []remoteFile {
	var chosen, shards []remoteFile
	var single *remoteFile
	hasConfig, hasIndex := false, false
	for i, f := range files {
		switch {
		case slices.Contains(sideFiles, f.Path):
			hasConfig = hasConfig || f.Path == "config.json"
			hasIndex = hasIndex || f.Path == "model.safetensors.index.json"
			chosen = append(chosen, f)
		case strings.Contains(f.Path, "/") || !strings.HasSuffix(f.Path, ".safetensors"):
		case strings.HasPrefix(f.Path, "model-"):
			shards = append(shards, f)
		case single == nil || f.Path == "model.safetensors":
			single = &files[i]
		}
	}
	switch {
	case !hasConfig:
		return nil
	case hasIndex && len(shards) > 0:
		return append(chosen, shards...)
	case single != nil:
		return append(chosen, *single)
	case len(shards) > 0:
		return append(chosen, shards...)
	}
	return nil
}

// checkGitBlob verifies a small file outside LFS, whose listing has only git's blob id: SHA-1 of "blob SIZE\x00" + bytes.
func checkGitBlob(dest string, f remoteFile) error {
	if f.sha256 != "" || len(f.OID) != sha1.Size*2 {
		return nil
	}
	file, err := os.Open(dest)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	sum := sha1.New()
	fmt.Fprintf(sum, "blob %d\x00", info.Size())
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.OID {
		_ = os.Remove(dest)
		return fmt.Errorf("%s: git blob id %s, want %s: %w", f.Path, got, f.OID, ErrChecksum)
	}
	return nil
}
