package simulate

import (
	"bufio"
	"fmt"
	"os"
)

// replay is a recorded trace as keys and queries: a step has two numbers of a key, a score's code in base 127, and its query takes
// those; so a policy that scores in 8 bits gets the code itself. The newest tokens of the recorded prompt are the miniature's, and of the
// recorded layers as many as it runs, evenly spaced. Every text is the recorded one.
type replay struct {
	t       *ScoreTrace
	prompt  int // tokens of the miniature
	layers  []int
	dropped int // oldest tokens of the recorded prompt that the miniature has no room for
}

// codeBase is of the two digits of a code.
const codeBase = 127

// newReplay takes a trace for a miniature of some prompt tokens, layers and steps.
func newReplay(t *ScoreTrace, prompt, layers, steps int) (*replay, error) {
	if t.Prompt < prompt || t.Steps < steps || len(t.Layers) < layers || 2*steps >= pipeDim {
		return nil, fmt.Errorf("trace of %d layers, %d tokens and %d steps: want %d, %d and %d of each or more: %w", len(t.Layers), t.Prompt, t.Steps, layers, prompt, steps, ErrScores)
	}
	r := &replay{t: t, prompt: prompt, dropped: t.Prompt - prompt}
	for i := range layers {
		r.layers = append(r.layers, (2*i+1)*len(t.Layers)/(2*layers))
	}
	return r, nil
}

// code is a token's at a step, 0 before there was one.
func (r *replay) code(layer, step, pos int) int {
	row := r.t.codes[r.layers[layer]][step]
	if pos += r.dropped; pos < len(row) {
		return int(row[pos])
	}
	return 0
}

func (r *replay) key(dst []float32, _, layer, pos int) {
	clear(dst)
	for step := 0; step < r.t.Steps && 2*step+1 < len(dst)-1; step++ {
		c := r.code(layer, step, pos)
		high := (c + codeBase/2 + codeBase*codeBase) / codeBase // rounded, of a number that is not below 0
		high -= codeBase
		dst[2*step], dst[2*step+1] = float32(high), float32(c-codeBase*high)
	}
	dst[len(dst)-1] = codeBase // the largest of all: the scale of a key is 1
}

func (r *replay) value([]float32, int, int, int) {}

func (r *replay) query(dst []float32, _, _, pos int) {
	clear(dst)
	if step := pos - r.prompt; step >= 0 && step < r.t.Steps && 2*step+1 < len(dst)-1 {
		dst[2*step], dst[2*step+1] = codeBase, 1
	}
}

func (r *replay) guess(dst []float32, text, layer, pos int) { r.query(dst, text, layer, pos) }

// trace is what an experiment's parameter trace names, for a prompt of some tokens: a synthetic trace, or a file.
func (h hill) trace(tokens int) (scores, error) {
	if h.scores == nil {
		return newSynthetic(h.p, tokens), nil
	}
	return newReplay(h.scores, tokens, pipeLayers, pipeSteps)
}

// scoreTrace reads the file that parameter trace names; nil = the trace is synthetic.
func (b *builder) scoreTrace() (*ScoreTrace, error) {
	name := b.text("trace")
	if name == syntheticTrace || name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("trace=%s: want %s, or a file of infer bench --record-trace: %w", name, syntheticTrace, err)
	}
	defer f.Close()
	t, err := ReadScoreTrace(bufio.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("trace=%s: %w", name, err)
	}
	return t, nil
}

// syntheticTrace is the value of parameter trace that names no file.
const syntheticTrace = "synthetic"
