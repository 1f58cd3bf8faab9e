package lint

import (
	"fmt"
	"regexp"
	"strconv"
)

// tableRow is a row of ARCHITECTURE.md's package table: | layer | `folder` | …
var tableRow = regexp.MustCompile("(?m)^\\| *(\\d+) *\\| *`([^`]+)` *\\|")

// notProduct are families that readers of ARCHITECTURE.md need not know.
var notProduct = map[string]bool{"internal/lint": true, "internal/deps": true, "internal/golden": true}

// Architecture checks that the package table of ARCHITECTURE.md and the layers here say the same: each folder that exists
// has its row, each row its folder and its layer.
func Architecture(r *Repo) (found []Finding) {
	const doc = "ARCHITECTURE.md"
	exists := map[string]bool{}
	for _, f := range r.Files {
		if name, _, ok := family(f.Dir()); ok && f.IsGo() {
			exists[name] = true
		}
	}
	rows := map[string]bool{}
	for _, m := range tableRows(r, doc) {
		layer, err := strconv.Atoi(m[1])
		if err != nil {
			continue
		}
		name := m[2]
		rows[name] = true
		switch want, ok := layers[name]; {
		case !ok || want != layer:
			found = append(found, Finding{doc, fmt.Sprintf("%s has layer %d there and %d in internal/lint/layers.go: make them the same", name, layer, want)})
		case !exists[name]:
			found = append(found, Finding{doc, fmt.Sprintf("a row for %s, which does not exist: remove it", name)})
		}
	}
	for name := range exists {
		if !rows[name] && !notProduct[name] {
			found = append(found, Finding{doc, fmt.Sprintf("no row for %s: add \"| %d | `%s` | what it owns |\" to the package table", name, layers[name], name)})
		}
	}
	return found
}

func tableRows(r *Repo, doc string) [][]string {
	for _, f := range r.Files {
		if f.Path == doc {
			return tableRow.FindAllStringSubmatch(string(f.Source), -1)
		}
	}
	return nil
}
