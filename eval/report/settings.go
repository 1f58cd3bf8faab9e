package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// measuresOnly are settings of suites that change what is measured beside the score, not the prompts or the score.
var measuresOnly = []string{"kl"}

// group finds or adds the group of the run's suite, settings and seed.
func (c *Comparison) group(r *Run) *Group {
	o := r.Results.Options
	key := fmt.Sprintf("%s\x00%s\x00%d", o.Suite, settingsOf(o.Settings), o.Seed)
	for _, g := range c.Groups {
		if g.key == key {
			return g
		}
	}
	g := &Group{Suite: o.Suite, Settings: o.Settings, Seed: o.Seed, key: key}
	c.Groups = append(c.Groups, g)
	return g
}

// settingsOf are a suite's settings in canonical JSON, by key.
func settingsOf(settings any) map[string]string {
	raw, err := json.Marshal(settings)
	if err != nil {
		return map[string]string{"settings": fmt.Sprint(settings)}
	}
	var byKey map[string]any
	if err := json.Unmarshal(raw, &byKey); err != nil {
		return map[string]string{"settings": string(raw)}
	}
	out := map[string]string{}
	for k, v := range byKey {
		if !slices.Contains(measuresOnly, k) {
			raw, _ := json.Marshal(v) // it came from JSON
			out[k] = string(raw)
		}
	}
	return out
}

// nameApart says in which settings the groups of one suite differ.
func (c *Comparison) nameApart() {
	for _, g := range c.Groups {
		differ := map[string]bool{}
		own := settingsOf(g.Settings)
		own["seed"] = fmt.Sprint(g.Seed)
		for _, other := range c.Groups {
			if other == g || other.Suite != g.Suite {
				continue
			}
			theirs := settingsOf(other.Settings)
			theirs["seed"] = fmt.Sprint(other.Seed)
			for _, m := range []map[string]string{own, theirs} {
				for k := range m {
					differ[k] = differ[k] || own[k] != theirs[k]
				}
			}
		}
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(differ)) {
			if differ[k] {
				parts = append(parts, k+"="+shortened(own[k]))
			}
		}
		g.Apart = strings.Join(parts, " ")
	}
}

// shortened keeps a setting's value to what a heading holds.
func shortened(v string) string {
	if v == "" {
		return "none"
	}
	if r := []rune(v); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return v
}

// heading names the group: the suite, and its settings where other groups of the suite have others.
func (g *Group) heading() string {
	if g.Apart == "" {
		return g.Suite
	}
	return g.Suite + " (" + g.Apart + ")"
}

// apartNotice says that groups of one suite are not compared with each other; "" where there is nothing to say.
func (c *Comparison) apartNotice() string {
	var suites []string
	for _, g := range c.Groups {
		if g.Apart != "" && !slices.Contains(suites, g.Suite) {
			suites = append(suites, g.Suite)
		}
	}
	if suites == nil {
		return ""
	}
	return fmt.Sprintf("runs of %s have different settings: shown apart, not compared with each other", strings.Join(suites, ", "))
}

// nameModels tells models of one name and different weights apart.
func (g *Group) nameModels() {
	prints := map[string]map[string]bool{}
	for _, s := range g.Series {
		if prints[s.Model] == nil {
			prints[s.Model] = map[string]bool{}
		}
		prints[s.Model][s.fingerprint] = true
	}
	for _, s := range g.Series {
		if len(prints[s.Model]) > 1 {
			s.Model += "@" + shortPrint(s.fingerprint)
		}
	}
}

func shortPrint(fingerprint string) string {
	if fingerprint == "" {
		return "unknown"
	}
	return fingerprint[:min(8, len(fingerprint))]
}
