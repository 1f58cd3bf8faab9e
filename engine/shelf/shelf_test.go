package shelf

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"terrace/engine"
	"terrace/engine/prefixcache"
	"terrace/internal/golden"
	"terrace/internal/vfs"
	"terrace/kvmanager/contexts"
	"terrace/model"
	"terrace/policy"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/vocab"
)

// same is 1 for the same text, else 0.
type same struct{}

func (same) Name() string { return "same" }

func (same) Scores(pred, whole []string) ([]float64, error) {
	out := make([]float64, len(pred))
	for i := range pred {
		if pred[i] == whole[i] {
			out[i] = 1
		}
	}
	return out, nil
}

// reader reads with the shared tiny llama, over a store of these tiers.
func reader(t *testing.T, specs ...contexts.Spec) (*Reader, *contexts.Store) {
	t.Helper()
	file, err := weights.Open(golden.Shared(t, "data", "golden", "tiny_gguf", "tiny-Q8_0.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	v, err := vocab.FromModel(file.Meta(), "")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(m, engine.Options{Threads: 1, Context: 512})
	if err != nil {
		t.Fatal(err)
	}
	store, err := contexts.Open(t.Context(), specs, contexts.Options{FS: vfs.NewMem(1 << 30), Rule: contexts.Rule{Wait: true}, Write: contexts.WritePlaced})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close(); e.Close(); file.Close() })
	r := &Reader{Engine: e, Tokenizer: tok, Quality: same{}, MaxTokens: 6}
	if r.Cache, err = prefixcache.Use(e, store, "tiny"); err != nil {
		t.Fatal(err)
	}
	return r, store
}

// text is n words of the tiny model, other ones for each seed.
func text(t *testing.T, r *Reader, n int, seed uint64) []int {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 2))
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, "%c%c ", 'a'+random.IntN(26), 'a'+random.IntN(26))
	}
	ids, err := r.Tokenizer.Encode(b.String(), true, false)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestSmaller: a context that a placement makes smaller comes from its own record, and is what compressing it from the text gives;
// by another method, or from a record without ranks, it does come from the text.
func TestSmaller(t *testing.T) {
	r, store := reader(t, contexts.Spec{Kind: "host", CapacityBytes: 64 << 20})
	p, _ := policy.ParsePlacement("evicpress:alpha=0.1,methods=keydiff/snapkv,keeps=0.5/0.25")
	sh, err := New(Options{Reader: r, Store: store, Placement: p})
	if err != nil {
		t.Fatal(err)
	}
	c := Context{ID: "c", IDs: text(t, r, 60, 1)}
	taken := func(it *item, method string, keep float64) []*contexts.Record {
		t.Helper()
		records, err := sh.take(t.Context(), it, policy.Config{Method: method, Keep: keep})
		if err != nil || len(records) == 0 {
			t.Fatal(len(records), err)
		}
		return records
	}
	for _, method := range []string{"keydiff", "snapkv"} {
		half := &item{Context: c, config: policy.Config{Method: method, Keep: 0.5}}
		records := taken(&item{Context: c, tier: -1}, method, 0.5)
		if err := store.On(0).Put(t.Context(), records); err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			half.keys = append(half.keys, r.Key)
		}
		before := sh.Shrunk
		want, got := taken(&item{Context: c, tier: -1}, method, 0.25), taken(half, method, 0.25)
		if sh.Shrunk != before+1 || len(got) != len(want) {
			t.Fatalf("%s: %d made smaller, %d records, want %d", method, sh.Shrunk-before, len(got), len(want))
		}
		for i := range want {
			if got[i].Meta != want[i].Meta || !slices.Equal(got[i].Section(0), want[i].Section(0)) {
				t.Errorf("%s: record %d has other tokens", method, i)
			}
		}
		other := map[string]string{"keydiff": "snapkv", "snapkv": "keydiff"}[method]
		if taken(half, other, 0.25); sh.Shrunk != before+1 {
			t.Errorf("%s was made of %s", other, method)
		}
	}
}
