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
// has its row, each row its layer.
func Architecture(r *Repo) (found []Finding) {
	const doc = "ARCHITECTURE.md"
	rows := map[string]int{}
	for _, f := range r.Files {
		if f.Path != doc {
			continue
		}
		for _, m := range tableRow.FindAllStringSubmatch(string(f.Source), -1) {
			layer, err := strconv.Atoi(m[1])
			if err != nil {
				continue
			}
			rows[m[2]] = layer
			if want, ok := layers[m[2]]; !ok || want != layer {
				found = append(found, Finding{doc, fmt.Sprintf("%s has layer %d there and %d in internal/lint/layers.go: make them the same", m[2], layer, want)})
			}
		}
	}
	seen := map[string]bool{}
	for _, f := range r.Files {
		name, layer, ok := family(f.Dir())
		if !ok || !f.IsGo() || seen[name] || notProduct[name] {
			continue
		}
		seen[name] = true
		if _, ok := rows[name]; !ok {
			found = append(found, Finding{doc, fmt.Sprintf("no row for %s: add \"| %d | `%s` | what it owns |\" to the package table", name, layer, name)})
		}
	}
	return found
}
