package engine

import (
	"slices"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/kvpage"
	"terrace/policy"
)

// TestPartsChangeNothing: a prompt that is read in parts, with steps and prompts of other sessions between them, leaves the
// logits of one that is read at once, bit for bit, under every kind of policy.
func TestPartsChangeNothing(t *testing.T) {
	t.Parallel()
	float, int8 := small(t, Options{Threads: 2, Context: 1100, ChunkTokens: 128}), small(t, Options{Threads: 2, Context: 1100, ChunkTokens: 128, KType: kvpage.I8, VType: kvpage.I8, KVTypeSet: true, KVWindow: 64, KVWindowSet: true})
	for _, text := range []string{"full", "streaming_llm:budget=64", "snapkv:budget=25%", "h2o:budget=30%", "tova:budget=40%", "expected_attention:ratio=0.5", "quest:budget=64", "sliminfer:preset=early", "minference", "kvzip:ratio=0.5", "full in int8"} {
		e := float
		if plain, ok := strings.CutSuffix(text, " in int8"); ok {
			text, e = plain, int8
		}
		spec, err := policy.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		ids := fakes.IDs(500, 3)
		open := func() *Session {
			s, err := e.NewSession(spec)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			t.Cleanup(s.Close)
			return s
		}
		whole, other, parts := open(), open(), open()
		if err := whole.Prefill(t.Context(), ids, PrefillHooks{}); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := other.Prefill(t.Context(), fakes.IDs(40, 4), PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		r, err := parts.BeginPrompt(ids, PrefillHooks{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; r.Left() > 0; n++ {
			if err := r.Read(t.Context(), []int{16, 1, 48, 33, 200}[n%5]); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if err := other.Decode(n % 200); err != nil {
				t.Fatal(err)
			}
		}
		if text == "full" && e == float && n < 8 {
			t.Errorf("%d parts", n)
		}
		for step := range 5 {
			if !slices.Equal(whole.Logits(), parts.Logits()) {
				t.Fatalf("%s: logits differ after %d steps (%d parts)", text, step, n)
			}
			if err := e.DecodeBatch([]*Session{whole, parts}, []int{7 + step, 7 + step}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
