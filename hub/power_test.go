package hub

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// TestPowerLossWithoutChecksum: the machine goes off in the middle of a download from an address that names no checksum. Whatever the
// disk is left with behind what was synced, the next pull goes on behind that and ends with the server's bytes.
func TestPowerLossWithoutChecksum(t *testing.T) {
	was := checkpointBytes
	t.Cleanup(func() { checkpointBytes = was })
	checkpointBytes = 8_000
	data := append([]byte("GGUF"), blob(21, 30_000)...)
	server := fileServer(t, map[string][]byte{"m.gguf": data})
	var ranges []string
	client := server.Client()
	client.Transport = seen{client.Transport, &ranges}
	name := server.URL + "/m.gguf"
	for what, c := range map[string]struct {
		damage func(written, durable []byte) []byte
		state  func(json []byte) []byte
		from   int // the next pull asks from here on; 0 = for all
	}{
		"all is there":         {func(w, _ []byte) []byte { return w }, nil, 16_000},
		"nothing behind":       {func(_, d []byte) []byte { return d }, nil, 16_000},
		"a part behind":        {func(w, d []byte) []byte { return w[:len(d)+100] }, nil, 16_000},
		"zeros behind":         {func(w, d []byte) []byte { return append(bytes.Clone(d), make([]byte, len(w)-len(d))...) }, nil, 16_000},
		"the synced damaged":   {func(w, d []byte) []byte { return append([]byte("GGUE"), w[4:]...) }, nil, 0},
		"the synced lost":      {func(w, d []byte) []byte { return d[:9_000] }, nil, 0},
		"no state":             {func(w, _ []byte) []byte { return w }, func([]byte) []byte { return nil }, 0},
		"half a state":         {func(w, _ []byte) []byte { return w }, func(j []byte) []byte { return j[:len(j)/2] }, 0},
		"a state of before it": {func(w, _ []byte) []byte { return w }, func(j []byte) []byte { return append(bytes.Split(j, []byte(`,"bytes"`))[0], '}') }, 0},
	} {
		t.Run(what, func(t *testing.T) {
			h, _ := newTestHub(t, Options{Client: client})
			d := download{url: name, dest: filepath.Join(h.stageDir(name), "0", "m.gguf")}
			if err := os.MkdirAll(filepath.Dir(d.dest), 0o755); err != nil {
				t.Fatal(err)
			}
			p, err := openPart(d)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.accept(d, &http.Response{StatusCode: http.StatusOK, ContentLength: int64(len(data)), Header: http.Header{"Etag": {`"` + sumOf(data) + `"`}}}); err != nil {
				t.Fatal(err)
			}
			for at := 0; at < 20_000; at += 1_000 {
				if _, err := p.Write(data[at : at+1_000]); err != nil {
					t.Fatal(err)
				}
			}
			p.file.Close() // and no more: the power is off
			state := mustRead(t, p.path+".json")
			if c.state != nil {
				state = c.state(state)
			}
			mustWrite(t, p.path+".json", state)
			mustWrite(t, p.path, c.damage(bytes.Clone(data[:20_000]), data[:16_000]))
			ranges = nil
			r, err := h.Resolve(t.Context(), name)
			if err != nil || !bytes.Equal(mustRead(t, r.Path), data) {
				t.Fatalf("%+v, %v, or other bytes", r, err)
			}
			want := ""
			if c.from > 0 {
				want = fmt.Sprintf("bytes=%d-", c.from)
			}
			if len(ranges) != 1 || ranges[0] != want {
				t.Errorf("asked for %q, want %q", ranges, want)
			}
		})
	}
}

// seen notes what ranges are asked for.
type seen struct {
	http.RoundTripper
	ranges *[]string
}

func (s seen) RoundTrip(r *http.Request) (*http.Response, error) {
	*s.ranges = append(*s.ranges, r.Header.Get("Range"))
	return s.RoundTripper.RoundTrip(r)
}
