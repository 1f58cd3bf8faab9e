package lint

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// layers is the table of ARCHITECTURE.md: a folder and all below it form one family. A family imports only families of a
// lower layer, and itself; families of one layer (siblings) never import each other. A folder may have its layer here before
// it exists; its row in ARCHITECTURE.md comes with it.
var layers = map[string]int{
	"internal/trace": 0, "internal/guard": 0, "internal/clock": 0, "internal/units": 0, "internal/jinja": 0, "internal/nearest": 0, "internal/vfs": 0, "internal/replace": 0,
	"internal/memlimit": 0, "internal/cputime": 0, "internal/vulkan": 0, "internal/cacheshape": 0,
	"internal/kernels": 1, "internal/kvpage": 1, "internal/tierspec": 1, "internal/settings": 1, "tokenizer": 1,
	"internal/storage": 2, "weights": 2, "hub": 2, "policy": 2, "csdshim": 2, "grammar": 2,
	"attention": 3, "offload": 3, "serve/answer": 3,
	"model": 4, "kvmanager": 4, "csdshim/attend": 4,
	"model/xla": 5, "model/vulkan": 5, "model/gorgonia": 5, "retrieval": 5,
	"engine": 6,
	"bench":  7,
	"eval":   8, "serve": 8, "simulate": 8,
	".":         9, // the root package
	"cmd/infer": 10,
	// Not part of the product: the linter, the list of pinned dependencies, what tests share.
	"internal/lint": 0, "internal/deps": 0, "internal/golden": 0,
}

// testOnly are folders that only tests import; they may read the environment.
var testOnly = []string{"internal/golden", "engine/fakes", "eval/fakes", "kvmanager/fakes"}

// unknown is what a family must not know although its layer is lower, or although it is in the standard library.
var unknown = []struct{ family, imported, why string }{
	{"retrieval", "model", "what a step reads is decided without a model"},
	{"engine", "csdshim", "the engine sees a drive through retrieval only"},
	{"retrieval", "engine", "what a step reads is decided without a model"},
	{"policy", "os", "a policy does no I/O"},
	{"policy", "net", "a policy does no I/O"},
	{"policy", "time", "a policy has no clock"},
	{"tokenizer", "os", "a tokenizer is made from a vocabulary value, not from files"},
	{"internal/kvpage", "os", "a page's layout does not know who stores it"},
}

// family is the longest folder of the table that a package is in.
func family(pkg string) (name string, layer int, ok bool) {
	for dir := pkg; dir != "."; dir = path.Dir(dir) {
		if layer, ok := layers[dir]; ok {
			return dir, layer, true
		}
	}
	if layer, ok := layers[pkg]; ok {
		return pkg, layer, true
	}
	return "", 0, false
}

func isTestOnly(folder string) bool {
	return slices.ContainsFunc(testOnly, func(dir string) bool { return inDir(folder, dir) })
}

// Layers checks the import rule. Test files may import whatever the compiler lets them.
func Layers(r *Repo) (found []Finding) {
	for _, f := range r.Files {
		if f.Syntax == nil || f.IsTest() {
			continue
		}
		from, layer, ok := family(f.Dir())
		if !ok {
			found = append(found, Finding{f.Path, fmt.Sprintf("folder %s is in no layer: move it, or add it to ARCHITECTURE.md and to internal/lint/layers.go", f.Dir())})
			continue
		}
		for _, spec := range f.Syntax.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue
			}
			if what := badImport(r.Module, from, layer, imported); what != "" {
				found = append(found, Finding{r.at(f, spec.Pos()), what})
			}
		}
	}
	return found
}

func badImport(module, from string, layer int, imported string) string {
	local, isLocal := strings.CutPrefix(imported, module+"/")
	if isLocal && isTestOnly(local) && !isTestOnly(from) {
		return fmt.Sprintf("%s is for tests only: import it from _test.go files", imported)
	}
	for _, u := range unknown {
		if u.family == from && (isLocal && inDir(local, u.imported) || imported == u.imported) {
			return fmt.Sprintf("%s must not import %s (%s): hand it in from above", from, imported, u.why)
		}
	}
	if !isLocal {
		return ""
	}
	to, below, ok := family(local)
	switch {
	case !ok:
		return fmt.Sprintf("import of %s, which is in no layer: add it to ARCHITECTURE.md and to internal/lint/layers.go", imported)
	case to == from || below < layer:
		return ""
	case below == layer:
		return fmt.Sprintf("%s imports its sibling %s (both layer %d): declare an interface here and let a higher layer connect them", from, to, layer)
	}
	return fmt.Sprintf("%s (layer %d) imports %s (layer %d): imports point to a lower layer only; declare an interface here that %s fills in", from, layer, to, below, to)
}
