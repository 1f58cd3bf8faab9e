package main

import (
	"slices"

	evalrun "terrace/eval/run"
)

// joinPolicies are those of the run that is in a folder, and then those that join it.
func (c *evalCommand) joinPolicies(dir string, policies []string) ([]string, error) {
	if dir == "" {
		return policies, nil
	}
	all, err := evalrun.Policies(dir)
	if err != nil {
		return nil, err
	}
	joins := all != nil
	for _, p := range policies {
		if slices.Contains(all, p) {
			continue
		}
		if joins {
			c.notice("%s: policy %s joins the run", dir, p)
		}
		all = append(all, p)
	}
	return all, nil
}

// narrower gives the suite's settings with a smaller limit.
func (f suiteFlags) narrower(changed func(flag string) bool) evalrun.Narrower {
	return func(limit int) (any, error) {
		f.limit = limit
		s, err := f.open(changed)
		if err != nil {
			return nil, err
		}
		return s.Options(), nil
	}
}
