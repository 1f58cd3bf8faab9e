package policy

import (
	"fmt"
	"slices"
	"testing"

	"terrace/internal/cacheshape"
)

// TestSwitchesTurnOnePart: each of hillinfer's switches changes what whoever runs it sees of its own part, and nothing of the others':
// HIE (score blocks and their order), BKP (who says what is hot, and in which layers), APP (the split), CEC (what is scanned), and who scores.
func TestSwitchesTurnOnePart(t *testing.T) {
	parts := []string{"HIE", "BKP", "APP", "CEC", "drive"}
	see := func(args string) map[string]string {
		t.Helper()
		spec, err := Parse("hillinfer:alpha=0.1" + args)
		if err != nil {
			t.Fatal(err)
		}
		set, err := spec.New(Model{Layers: cacheshape.Equal(4, 4, cacheshape.KV{Heads: 2, KeyDim: 32, ValueDim: 32})})
		if err != nil {
			t.Fatal(err)
		}
		scoring, placer, needs := set.Selector.(TokenScoring), set.Placer, set.Needs()
		placer.SetBalance(Balance{FC: 3e9, FS: 77e9, BC: 5e9, BS: 3.2e9})
		b := placer.Balanced()
		return map[string]string{
			"HIE":   fmt.Sprint(scoring.Serial(), scoring.BlockLen()),
			"BKP":   fmt.Sprint(placer.Decides(), placer.WholeTokens()),
			"APP":   fmt.Sprint(b.Mode, b.Share, placer.HotTokens(1000, 900)),
			"CEC":   fmt.Sprint(needs.Sketch),
			"drive": fmt.Sprint(scoring.Weighs(), needs.HostScores),
		}
	}
	whole := see("")
	for args, part := range map[string]string{"hie=false": "HIE", "exchange=false": "BKP", "pools=paper": "BKP", "beta_mode=fixed,beta=1": "APP",
		"score=fp16": "CEC", "drive=false": "drive", "drive=true": "drive"} {
		var changed []string
		with := see("," + args)
		for _, p := range parts {
			if with[p] != whole[p] {
				changed = append(changed, p)
			}
		}
		if !slices.Equal(changed, []string{part}) {
			t.Errorf("%s changes %v, want %s alone: %v, without it %v", args, changed, part, with, whole)
		}
	}
	if still := see(",exchange=false")["BKP"]; still != "true false" {
		t.Errorf("exchange=false: decides and whole tokens are %s: it is not to change granularity", still)
	}
	if still := see(",pools=paper,exchange=false")["BKP"]; still != "true true" {
		t.Errorf("exchange=false with the paper's pools: decides and whole tokens are %s", still)
	}
}

// TestLagKVRanksEqualScoresByIndex: the earlier of equal scores ranks lower, which kvpress leaves open.
func TestLagKVRanksEqualScoresByIndex(t *testing.T) {
	p, scores := &lagKV{lag: 4}, []float32{2, 1, 2, 2}
	if p.rank(scores); !slices.Equal(scores, []float32{0.25, 0, 0.5, 0.75}) {
		t.Errorf("ranks %v", scores)
	}
}
