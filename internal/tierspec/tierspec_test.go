package tierspec

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Spec{
		"device=8GiB":                          {Kind: Device, CapacityBytes: 8 << 30},
		"host=1GiB":                            {Kind: Host, CapacityBytes: 1 << 30},
		"host=64MiB,800MiB/s":                  {Kind: Host, CapacityBytes: 64 << 20, RateBytes: 800 << 20},
		"ssd=/a,b,2MiB":                        {Kind: SSD, Place: "/a,b", CapacityBytes: 2 << 20},
		"ssd=/a,b=c,2MiB":                      {Kind: SSD, Place: "/a,b=c", CapacityBytes: 2 << 20},
		"ssd=/a,x/s,2MiB":                      {Kind: SSD, Place: "/a,x/s", CapacityBytes: 2 << 20},
		"ssd=/a,2MiB,80MiB/s":                  {Kind: SSD, Place: "/a", CapacityBytes: 2 << 20, RateBytes: 80 << 20},
		"ssd=/a,2MiB,gap=16KiB":                {Kind: SSD, Place: "/a", CapacityBytes: 2 << 20, GapBytes: 16 << 10},
		"ssd=/a,2MiB,direct=no,1MiB/s":         {Kind: SSD, Place: "/a", CapacityBytes: 2 << 20, RateBytes: 1 << 20, Buffered: true},
		"ssd=/a,2MiB,xcache=auto":              {Kind: SSD, Place: "/a", CapacityBytes: 2 << 20, XCache: XCacheByRate},
		"ssd=/a,2MiB,xcache=50%,gap=1KiB":      {Kind: SSD, Place: "/a", CapacityBytes: 2 << 20, GapBytes: 1 << 10, XCache: 0.5},
		"ssd=/a,2MiB,xcache=100%":              {Kind: SSD, Place: "/a", CapacityBytes: 2 << 20, XCache: 1},
		"ssd=/a,2MiB,xcache=no":                {Kind: SSD, Place: "/a", CapacityBytes: 2 << 20},
		"ssd=/a,2MiB,direct=yes":               {Kind: SSD, Place: "/a", CapacityBytes: 2 << 20},
		"host=3MiB,prompts=3MiB":               {Kind: Host, CapacityBytes: 3 << 20, PromptBytes: 3 << 20},
		"host=3MiB,lent=yes":                   {Kind: Host, CapacityBytes: 3 << 20, Lent: true},
		"ssd=/a,3MiB,prompts=1MiB,direct=no":   {Kind: SSD, Place: "/a", CapacityBytes: 3 << 20, PromptBytes: 1 << 20, Buffered: true},
		"csd=unix:/tmp/a,b/s":                  {Kind: CSD, Place: "/tmp/a,b/s"},
		"valkey=127.0.0.1:6379,1GiB":           {Kind: Valkey, Place: "127.0.0.1:6379", CapacityBytes: 1 << 30},
		"s3=http://127.0.0.1:9000/bucket,1KiB": {Kind: S3, Place: "http://127.0.0.1:9000/bucket", CapacityBytes: 1 << 10},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again, err := Parse(got.String()); err != nil || again != want {
			t.Errorf("%s: printed as %s: %+v, %v", text, got, again, err)
		}
	}
}

// TestParseRefuses: what is wrong, in one line that says what to write.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"": "want device=SIZE", "ssd": "want device=SIZE", "host=": "want device=SIZE", "sdd=/x,1GiB": `did you mean "ssd"`, "floppy=/x,1GiB": "not known",
		"ssd=/x": "ssd=DIR,SIZE", "ssd=1GiB": "a place and a size", "ssd=,1GiB": "a place and a size", "ssd=/x,": "size", "host=lots": "above 0", "host=0": "above 0", "host=-1MiB": "above 0",
		"host=/x,1GiB": "no place", "ssd=/x,1GiB,fast/s": "rate", "ssd=/x,1GiB,0/s": "rate", "ssd=/x,1GiB,1/s,2/s": "rate is given twice",
		"ssd=/x,1GiB,gap=1KiB,gap=2KiB": "gap is given twice", "ssd=/x,1GiB,gap=2MiB": "at most 1MiB", "ssd=/x,1GiB,gpa=1KiB": `did you mean "gap"`, "ssd=/x,1GiB,direct=": "yes or no",
		"ssd=/a,2MiB,xcache=3": "auto, no, or a share", "ssd=/a,2MiB,xcache=": "auto, no, or a share", "host=1GiB,xcache=auto": "not of host tiers",
		"host=1GiB,direct=no": "not of host tiers", "host=1MiB,prompts=2MiB": "do not fit", "ssd=/a,1MiB,prompts=1MiB": "leave nothing", "host=1MiB,lent=maybe": "yes or no", "ssd=/a,1MiB,lent=yes": "not of ssd tiers", "host=1MiB,prompts=0": "above 0", "valkey=x:1,2MiB,prompts=1MiB": "not of valkey tiers", "csd=/x": "csd=unix:SOCKET", "csd=unix:": "csd=unix:SOCKET",
	} {
		_, err := Parse(text)
		if !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestCheck: what a flag has no place for is refused by name, with what to do.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		use   Use
		specs string
		want  string // "" = good
	}{
		{Running, "device=1MiB host=1MiB ssd=/a,1MiB,gap=4KiB", ""},
		{Running, "csd=unix:/a csd=unix:/b", ""},
		{Running, "host=1MiB s3=http://x/b,1MiB", "with --store"},
		{Running, "host=1MiB,1MiB/s", "a rate"},
		{Running, "ssd=/a,1MiB ssd=/b,2MiB", ""},
		{Running, "ssd=/a,1MiB ssd=/a,2MiB", "given twice"},
		{Running, "host=1MiB host=2MiB", "given twice"},
		{Stored, "host=1MiB ssd=/a,1MiB,1MiB/s ssd=/b,1MiB valkey=x:1,1MiB s3=http://x/b,1MiB", ""},
		{Stored, "ssd=/a,1MiB ssd=/a,2MiB", "given twice"},
		{Stored, "device=1MiB", "give it to --tier"},
		{Stored, "csd=unix:/a", "give it to --tier"},
		{Stored, "ssd=/a,1MiB,gap=4KiB", "read whole"},
		{Stored, "ssd=/a,1MiB,xcache=auto", "xcache is of running texts"},
		{Stored, "ssd=/a,2MiB,prompts=1MiB", "keeps nothing else"},
		{Running, "host=2MiB,prompts=1MiB", "not kept here"},
		{Running, "host=2MiB,lent=yes", "bytes of their own"},
	} {
		var specs []Spec
		for _, text := range strings.Fields(c.specs) {
			s, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			specs = append(specs, s)
		}
		switch err := Check(specs, c.use); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.specs, err)
		case c.want != "" && (!errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.specs, err, c.want)
		}
	}
}

// TestSplit: an ssd's capacity is divided between running texts and prompts, a host's is lent to prompts; the parts are valid tiers of their use.
func TestSplit(t *testing.T) {
	var specs []Spec
	for _, text := range []string{"device=1MiB", "host=8MiB,prompts=3MiB", "ssd=/a,9MiB,gap=4KiB,direct=no,prompts=5MiB", "s3=http://x/b,7MiB,1MiB/s", "valkey=x:1,2MiB"} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, s)
	}
	running, stored := Split(specs)
	for i, part := range [][]Spec{running, stored} {
		if err := Check(part, []Use{Running, Stored}[i]); err != nil {
			t.Error(err)
		}
	}
	if got, want := fmt.Sprint(running), "[device=1048576 host=8388608 ssd=/a,4194304,gap=4096,direct=no]"; got != want {
		t.Errorf("running texts: %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(stored), "[host=3145728,lent=yes ssd=/a/prompts,5242880,direct=no s3=http://x/b,7340032,1048576/s valkey=x:1,2097152]"; got != want {
		t.Errorf("prompts: %s, want %s", got, want)
	}
}

// FuzzParse: whatever is read prints as what reads the same.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"host=1GiB", "ssd=/a,b,2MiB,80MiB/s,gap=4KiB,direct=no", "csd=unix:/s", "s3=http://x/b,1KiB", "valkey=x:1,1GiB,1/s", "device=1B", "ssd=/a,2MiB,=,", "ssd=,/s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrSpec) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if again, err := Parse(s.String()); err != nil || again != s {
			t.Errorf("%q is %+v, printed as %q is %+v, %v", text, s, s, again, err)
		}
		for _, use := range []Use{Running, Stored} {
			if err := Check([]Spec{s, s}, use); err == nil && s.Kind != CSD {
				t.Errorf("%q twice for use %d", text, use)
			}
		}
	})
}
