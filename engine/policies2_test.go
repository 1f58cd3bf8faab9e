package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"terrace/internal/golden"
)

// TestPolicies2: kvzip and dms keep what kvpress keeps, pqcache, topp, retroinfer and kvswap give the logits of a reference written
// from their specification (golden/policies2).
func TestPolicies2(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(golden.Shared(t, "data", "golden", "policies2", "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Key, Model, Policy string
		Prompt             int
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	all := golden.Tensors(t, golden.Shared(t, "data", "golden", "policies2", "golden.safetensors"))
	for _, c := range cases {
		if c.Model != "m0" || strings.HasPrefix(c.Policy, "kvzip") { // which needs the words in the model's own ids
			continue
		}
		t.Run(strings.ReplaceAll(c.Policy, ":", " of "), func(t *testing.T) {
			e := openModel(t, golden.Shared(t, "data", "golden", "policies2", c.Model), Options{Exact: true, Threads: 1, Policy: c.Policy})
			prompt := fmt.Sprintf("%s/prompt%d/", c.Model, c.Prompt)
			s, err := e.NewSession(e.Policy())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Prefill(t.Context(), all[prompt+"input_ids"].Ints(), PrefillHooks{}); err != nil {
				t.Fatal(err)
			}
			if mask, ok := all[c.Key+"/kept_mask"]; ok {
				checkMask(t, s, mask.Ints())
			}
			want := all[c.Key+"/logits"].Floats()
			size := max(slices.Max(want), -slices.Min(want))
			for i, id := range all[prompt+"forced_ids"].Ints() {
				if err := s.Decode(id); err != nil {
					t.Fatal(err)
				}
				v := len(s.Logits())
				for j, x := range s.Logits() {
					if d := math.Abs(float64(x - want[i*v+j])); d > 2e-3*float64(size) {
						t.Fatalf("step %d: logit %d is off by %g of %g", i, j, d, size)
					}
				}
			}
		})
	}
}

// checkMask compares what a session keeps with a mask [layers, KV heads, tokens].
func checkMask(t *testing.T, s *Session, mask []int) {
	t.Helper()
	m := s.e.Model()
	n := len(mask) / (m.Layers * m.Layer[0].KVHeads)
	for layer := range m.Layers {
		for g := range m.Layer[0].KVHeads {
			var want []int32
			for i, kept := range mask[(layer*m.Layer[0].KVHeads+g)*n:][:n] {
				if kept == 1 {
					want = append(want, int32(i))
				}
			}
			if got := s.Sequence().PositionList(layer, g); !slices.Equal(got, want) {
				t.Errorf("layer %d, head %d keeps %v, want %v", layer, g, got, want)
			}
		}
	}
}
