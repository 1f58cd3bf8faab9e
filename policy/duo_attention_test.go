package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"terrace/internal/cacheshape"
)

// alphas are a pattern of 4 layers with 2 KV heads.
const alphas = "0.93/0.02/0.41/0.4/-0.1/1.2/0.41/0.9"

// TestDuoAttention: which heads stream, by part and by threshold, and what they keep at the prompt's end and while decoding.
func TestDuoAttention(t *testing.T) {
	s := randomScene(3, 60, 4, 2, 16) // of 4 layers
	s.fill()
	for spec, want := range map[string][4][2]bool{ // layer, head: streams
		"head_compression_ratio=0":     {},
		"head_compression_ratio=0.25":  {{false, true}, {}, {true, false}, {}},
		"head_compression_ratio=0.5":   {{false, true}, {true, true}, {true, false}, {}},            // the first of two equal ones
		"head_compression_ratio=0.562": {{false, true}, {true, true}, {true, false}, {}},            // 4.496
		"head_compression_ratio=0.563": {{false, true}, {true, true}, {true, false}, {true, false}}, // 4.504
		"sparsity=1":                   {{true, true}, {true, true}, {true, true}, {true, true}},
		"threshold=0.41":               {{false, true}, {false, true}, {true, false}, {}},
	} {
		for layer, heads := range want {
			s.index = layer
			p := mustSet(t, "DuoAttentionPress:pattern="+alphas+",sink_size=3,recent_size=20,decode=true,"+spec, s)
			l := s.shown(p.Keeper)
			var keep, drop Selection
			p.Keeper.KeepPrompt(l, &keep)
			p.Dropper.DropStep(l, &drop)
			for g, streams := range heads {
				kept, dropped := span(nil, 0, 60), []int32(nil)
				if streams {
					kept, dropped = span(span(nil, 0, 3), 40, 60), span(nil, 3, 40)
				}
				equalIndices(t, keep.Heads[g], kept, fmt.Sprintf("%s, layer %d, head %d", spec, layer, g))
				equalIndices(t, drop.Heads[g], dropped, fmt.Sprintf("%s, a step in layer %d, head %d", spec, layer, g))
			}
		}
	}
}

func TestDuoAttentionRefuses(t *testing.T) {
	for _, spec := range []string{"duo_attention", "duo_attention:pattern=0.1/x", "duo_attention:pattern=NaN", "duo_attention:pattern=0.5,threshold=0.2,sparsity=0.5"} {
		if _, err := Parse(spec); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v, want a bad parameter", spec, err)
		}
	}
	spec, err := Parse("duo_attention:pattern=0.1/0.2/0.3")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := spec.New(Model{Layers: cacheshape.Equal(4, 2, cacheshape.KV{Heads: 2})}); !errors.Is(err, ErrModel) {
		t.Errorf("a pattern of another model: %v", err)
	}
	if _, err := ExpandFiles("duo_attention:pattern=@missing.tsv", func(string) ([]byte, error) { return nil, errors.New("no such file") }); err == nil || !strings.Contains(err.Error(), "missing.tsv") {
		t.Errorf("a missing file: %v", err)
	}
	text, err := ExpandFiles("duo_attention:pattern=@a.tsv,sink_size=2", func(string) ([]byte, error) { return []byte("0.5\t0.25\n1.0\t0\n"), nil })
	if err != nil || text != "duo_attention:pattern=0.5/0.25/1.0/0,sink_size=2" {
		t.Errorf("%q, %v", text, err)
	}
}
