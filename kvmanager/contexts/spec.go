package contexts

import (
	"fmt"
	"strings"

	"terrace/internal/units"
)

// Spec is one tier of a store as a user names it: KIND=PLACE,SIZE[,RATE/s].
type Spec struct {
	Kind          string // host, ssd, valkey, s3
	Place         string // folder, HOST:PORT, URL/BUCKET; empty for host
	CapacityBytes int64
	RateBytes     int64 // bytes a second that reads are held to; 0 = as fast as it is
}

// kinds are the tiers that can be named, fastest first, and what follows the name.
var kinds = []struct{ name, form string }{{"host", "host=SIZE"}, {"ssd", "ssd=DIR,SIZE"}, {"valkey", "valkey=HOST:PORT,SIZE"}, {"s3", "s3=URL/BUCKET,SIZE"}}

// Forms lists how tiers are given.
func Forms() string {
	var out []string
	for _, k := range kinds {
		out = append(out, k.form)
	}
	return strings.Join(out, ", ")
}

// ParseSpec reads one --store flag. Errors wrap ErrSpec.
func ParseSpec(text string) (Spec, error) {
	bad := func(format string, args ...any) (Spec, error) {
		return Spec{}, fmt.Errorf("contexts: store %q: %s: %w", text, fmt.Sprintf(format, args...), ErrSpec)
	}
	kind, rest, found := strings.Cut(text, "=")
	form := ""
	for _, k := range kinds {
		if k.name == kind {
			form = k.form
		}
	}
	if !found || form == "" {
		return bad("want one of %s", Forms())
	}
	parts := strings.Split(rest, ",")
	s := Spec{Kind: kind}
	if last := parts[len(parts)-1]; strings.HasSuffix(last, "/s") {
		rate, err := units.ParseBytes(strings.TrimSuffix(last, "/s"))
		if err != nil || rate < 1 {
			return bad("rate %q: want bytes a second, as 80MiB/s", last)
		}
		s.RateBytes, parts = rate, parts[:len(parts)-1]
	}
	if kind != "host" {
		if len(parts) < 2 {
			return bad("want %s", form)
		}
		s.Place = strings.Join(parts[:len(parts)-1], ",") // a folder's name may have a comma
		if s.Place == "" {
			return bad("want %s", form)
		}
		parts = parts[len(parts)-1:]
	}
	if len(parts) != 1 {
		return bad("want %s", form)
	}
	size, err := units.ParseBytes(parts[0])
	if err != nil {
		return bad("size: %v", err)
	}
	if size < 1 {
		return bad("size %q: want more than 0", parts[0])
	}
	s.CapacityBytes = size
	return s, nil
}

// CheckSpecs refuses tiers that are named twice. Errors wrap ErrSpec.
func CheckSpecs(specs []Spec) error {
	seen := map[string]bool{}
	for _, s := range specs {
		name := s.Kind + "=" + s.Place
		if seen[name] {
			return fmt.Errorf("contexts: store %s is given twice: %w", name, ErrSpec)
		}
		seen[name] = true
	}
	return nil
}
