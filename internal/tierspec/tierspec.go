// Package tierspec reads how a memory that holds KV is named, the same for every flag and option that takes one (--tier, --store, --weights):
//
//	KIND=PLACE,SIZE[,RATE/s][,KEY=VALUE]
//
// It owns the kinds, what each is for, and the texts of errors. It opens nothing. Units: sizes in bytes, rates in bytes a second.
package tierspec

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"terrace/internal/nearest"
	"terrace/internal/units"
)

// ErrSpec marks a tier, or a list of them, that means nothing.
var ErrSpec = errors.New("bad tier")

// Kind names a kind of memory that holds KV.
type Kind string

// The kinds, fastest first.
const (
	Device Kind = "device" // memory of a backend's own device, which keeps copies of what lies below
	Host   Kind = "host"   // DRAM, up to a number of bytes
	SSD    Kind = "ssd"    // files in a folder
	CSD    Kind = "csd"    // a computational storage drive behind a Unix socket, with a capacity of its own
	Valkey Kind = "valkey" // a server of values in memory
	S3     Kind = "s3"     // a bucket of objects
)

// Use is what a tier keeps.
type Use uint8

// The uses. A kind has one or both.
const (
	Running Use = 1 << iota // KV of texts that are being made (--tier)
	Stored                  // KV of prompts, for later runs (--store)
)

// known is a kind that can be named, with its form.
type known struct {
	kind Kind
	form string
	use  Use
}

var kinds = []known{
	{Device, "device=SIZE", Running}, {Host, "host=SIZE", Running | Stored}, {SSD, "ssd=DIR,SIZE", Running | Stored}, {CSD, "csd=unix:SOCKET", Running},
	{Valkey, "valkey=HOST:PORT,SIZE", Stored}, {S3, "s3=URL/BUCKET,SIZE", Stored},
}

// Spec is one tier as a user names it.
type Spec struct {
	Kind          Kind
	Place         string // folder, socket, HOST:PORT or URL/BUCKET; empty for device and host
	CapacityBytes int64  // 0 = a drive's own
	RateBytes     int64  // bytes a second that reads are held to; 0 = as fast as it is
	GapBytes      int    // key gap, of an ssd that holds running texts: bytes between two tokens up to which both are read at once; 0 = as measured
	Buffered      bool   // key direct=no, of an ssd: through the page cache
	XCache        XCache // key xcache, of an ssd that holds running texts: which layers' blocks lie there as the rows that keys and values are projected from
	PromptBytes   int64  // key prompts, of host and ssd: how much of the capacity keeps prompts for later runs ([Split]); 0 = none
	Lent          bool   // key lent=yes, of a host that keeps prompts: its bytes are those of running texts, which take them back as they need them
}

// XCache is a share of the layers; XCacheByRate lets rates choose.
type XCache float64

// XCacheByRate is xcache=auto.
const XCacheByRate XCache = -1

// parseXCache reads auto, no, or a share above 0.
func parseXCache(text string) (XCache, error) {
	switch text {
	case "auto":
		return XCacheByRate, nil
	case "no":
		return 0, nil
	}
	share, err := units.ParseShare(text)
	if err != nil || share.Fraction == 0 {
		return 0, errors.New("want auto, no, or a share of the layers, like 50%")
	}
	return XCache(share.Fraction), nil
}

// String is what parseXCache reads.
func (x XCache) String() string {
	switch x {
	case XCacheByRate:
		return "auto"
	case 0:
		return "no"
	}
	return units.Share{Fraction: float64(x)}.String()
}

// keys are what KEY=VALUE may set, and of which kinds.
var keys = []struct {
	name  string
	kinds []Kind
	set   func(s *Spec, value string) error
}{
	{"direct", []Kind{SSD}, func(s *Spec, value string) error {
		if s.Buffered = value == "no"; !s.Buffered && value != "yes" {
			return fmt.Errorf("want yes or no")
		}
		return nil
	}},
	{"gap", []Kind{SSD}, func(s *Spec, value string) error {
		n, err := size(value)
		if err == nil && n > 1<<20 {
			err = fmt.Errorf("want at most 1MiB")
		}
		s.GapBytes = int(n)
		return err
	}},
	{"lent", []Kind{Host}, func(s *Spec, value string) error {
		if s.Lent = value == "yes"; !s.Lent && value != "no" {
			return fmt.Errorf("want yes or no")
		}
		return nil
	}},
	{"prompts", []Kind{Host, SSD}, func(s *Spec, value string) (err error) {
		s.PromptBytes, err = size(value)
		return err
	}},
	{"xcache", []Kind{SSD}, func(s *Spec, value string) (err error) {
		s.XCache, err = parseXCache(value)
		return err
	}},
}

// Forms lists how tiers of a use are given.
func Forms(use Use) string {
	var out []string
	for _, k := range kinds {
		if k.use&use != 0 {
			out = append(out, k.form)
		}
	}
	return strings.Join(out[:len(out)-1], ", ") + " or " + out[len(out)-1]
}

// Name is the tier's name in messages and accounts: its kind, and its place where it has one.
func (s Spec) Name() string {
	switch {
	case s.Place == "":
		return string(s.Kind)
	case s.Kind == CSD:
		return "csd=unix:" + s.Place
	}
	return string(s.Kind) + "=" + s.Place
}

// String is what Parse reads the tier from.
func (s Spec) String() string {
	text := s.Name()
	if s.Kind == CSD {
		return text
	}
	if text += ","; s.Place == "" {
		text = string(s.Kind) + "="
	}
	text += strconv.FormatInt(s.CapacityBytes, 10)
	if s.RateBytes > 0 {
		text += fmt.Sprintf(",%d/s", s.RateBytes)
	}
	if s.GapBytes > 0 {
		text += fmt.Sprintf(",gap=%d", s.GapBytes)
	}
	if s.Buffered {
		text += ",direct=no"
	}
	if s.XCache != 0 {
		text += ",xcache=" + s.XCache.String()
	}
	if s.Lent {
		text += ",lent=yes"
	}
	if s.PromptBytes > 0 {
		text += fmt.Sprintf(",prompts=%d", s.PromptBytes)
	}
	return text
}

// Parse reads one tier. Errors wrap ErrSpec.
func Parse(text string) (Spec, error) {
	kind, rest, found := strings.Cut(text, "=")
	s := Spec{Kind: Kind(kind)}
	at := slices.IndexFunc(kinds, func(k known) bool { return k.kind == s.Kind })
	switch {
	case !found || rest == "":
		return s, fmt.Errorf("tier %q: want %s: %w", text, Forms(Running|Stored), ErrSpec)
	case at < 0:
		return s, fmt.Errorf("tier %q: kind %q is not known%s, want %s: %w", text, kind, hint(kind), Forms(Running|Stored), ErrSpec)
	}
	if err := s.parse(rest); err != nil {
		return s, fmt.Errorf("tier %q: %w, as in %s: %w", text, err, kinds[at].form, ErrSpec)
	}
	return s, nil
}

func hint(kind string) string {
	var names []string
	for _, k := range kinds {
		names = append(names, string(k.kind))
	}
	return strings.TrimSuffix(nearest.Hint(kind, names), "?")
}

// parse reads what stands behind a kind.
func (s *Spec) parse(rest string) (err error) {
	if s.Kind == CSD { // all of it is the socket
		var ok bool
		if s.Place, ok = strings.CutPrefix(rest, "unix:"); !ok || s.Place == "" {
			return errors.New("want a socket")
		}
		return nil
	}
	parts := strings.Split(rest, ",")
	if parts, err = s.parseEnd(parts); err != nil {
		return err
	}
	last := len(parts) - 1
	s.Place = strings.Join(parts[:last], ",") // a folder's name may have a comma
	if alone := s.Kind == Host || s.Kind == Device; alone != (s.Place == "") {
		if alone {
			return fmt.Errorf("%q: it has no place", s.Place)
		}
		return errors.New("want a place and a size")
	}
	s.CapacityBytes, err = size(parts[last])
	switch {
	case err != nil:
		return err
	case s.PromptBytes > s.CapacityBytes:
		return fmt.Errorf("prompts of %d bytes do not fit %d", s.PromptBytes, s.CapacityBytes)
	case s.PromptBytes == s.CapacityBytes && s.Kind == SSD:
		return fmt.Errorf("prompts of %d bytes leave nothing of %d for running texts", s.PromptBytes, s.CapacityBytes)
	}
	return nil
}

// parseEnd takes the rate and the keys off the end.
func (s *Spec) parseEnd(parts []string) ([]string, error) {
	given := map[string]bool{}
	for len(parts) > 1 {
		last := parts[len(parts)-1]
		name, value, isKey := strings.Cut(last, "=")
		rate, isRate := strings.CutSuffix(last, "/s")
		if isRate && !isKey {
			name = "rate"
		} else if !isKey {
			break
		}
		if given[name] {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		given[name] = true
		if name == "rate" && !isKey {
			n, err := units.ParseBytes(rate)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("rate %q: want bytes a second, like 80MiB/s", last)
			}
			s.RateBytes = n
		} else if err := s.setKey(name, value); err != nil {
			return nil, err
		}
		parts = parts[:len(parts)-1]
	}
	return parts, nil
}

func (s *Spec) setKey(name, value string) error {
	var names []string
	for _, k := range keys {
		if names = append(names, k.name); k.name != name {
			continue
		}
		if !slices.Contains(k.kinds, s.Kind) {
			return fmt.Errorf("key %s is not of %s tiers", name, s.Kind)
		}
		if err := k.set(s, value); err != nil {
			return fmt.Errorf("key %s: %w", name, err)
		}
		return nil
	}
	return fmt.Errorf("key %q is not known%s, want %s", name, strings.TrimSuffix(nearest.Hint(name, names), "?"), strings.Join(names, " or "))
}

func size(text string) (int64, error) {
	n, err := units.ParseBytes(text)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("size %q: want a number of bytes above 0, like 256MiB", text)
	}
	return n, nil
}

// Of reports whether the kind can be used so.
func (s Spec) Of(use Use) bool {
	for _, k := range kinds {
		if k.kind == s.Kind {
			return k.use&use != 0
		}
	}
	return false
}

// promptFolder is where the prompts of an ssd that holds running texts lie in its folder.
const promptFolder = "prompts"

// Split divides tiers that hold running texts and prompts: what key prompts names of a tier, and servers, keep prompts. A host's bytes
// are all those of running texts, which lend prompts what they leave; of an ssd running texts have the rest. Together they take
// each tier's capacity and no more.
func Split(specs []Spec) (running, stored []Spec) {
	for _, s := range specs {
		if !s.Of(Running) {
			stored = append(stored, s)
			continue
		}
		if kept := s.PromptBytes; kept > 0 {
			s.PromptBytes = 0
			part := Spec{Kind: s.Kind, CapacityBytes: kept, Buffered: s.Buffered, Lent: s.Kind == Host}
			if s.Kind == SSD {
				s.CapacityBytes -= kept
				part.Place = filepath.Join(s.Place, promptFolder)
			}
			stored = append(stored, part)
		}
		running = append(running, s)
	}
	return running, stored
}

// Check refuses a list of tiers for a use: kinds and settings that it has no place for, and what is given twice. Drives share a text, and a
// store may have several folders and servers. Errors wrap ErrSpec.
func Check(specs []Spec, use Use) error {
	seen := map[string]bool{}
	for _, s := range specs {
		name, key := s.Name(), s.Name()
		if use == Running && s.Kind != CSD && s.Kind != SSD {
			key = string(s.Kind)
		}
		switch {
		case !s.Of(use) && use == Stored:
			return fmt.Errorf("tier %s holds KV of running texts, not of prompts for later runs: give it to --tier, or keep prompts in %s: %w", name, Forms(Stored), ErrSpec)
		case !s.Of(use):
			return fmt.Errorf("tier %s holds KV of prompts for later runs, not of running texts: give it to a command with --store, or hold texts in %s: %w", name, Forms(Running), ErrSpec)
		case use == Running && s.RateBytes > 0:
			return fmt.Errorf("tier %s: a rate holds back what is read of stored prompts, not of running texts: leave it out, or give the tier to --store: %w", name, ErrSpec)
		case s.PromptBytes > 0 && use == Running:
			return fmt.Errorf("tier %s: prompts=: prompts are not kept here: leave it out: %w", name, ErrSpec)
		case s.Lent && use == Running:
			return fmt.Errorf("tier %s: lent=: running texts have bytes of their own: leave it out: %w", name, ErrSpec)
		case s.PromptBytes > 0:
			return fmt.Errorf("tier %s: prompts=: a store keeps nothing else: leave it out, or give the tier to --tier: %w", name, ErrSpec)
		case use == Stored && s.GapBytes > 0:
			return fmt.Errorf("tier %s: gap is between single tokens of running texts, prompts are read whole: leave it out, or give the tier to --tier: %w", name, ErrSpec)
		case use == Stored && s.XCache != 0:
			return fmt.Errorf("tier %s: xcache is of running texts, prompts are kept as keys and values: leave it out, or give the tier to --tier: %w", name, ErrSpec)
		case seen[key] && s.Kind != CSD:
			return fmt.Errorf("tier %s is given twice: %w", name, ErrSpec)
		}
		seen[key] = true
	}
	return nil
}
