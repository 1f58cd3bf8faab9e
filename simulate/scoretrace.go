package simulate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// ErrScores wraps errors of a score trace that cannot be read, written or used.
var ErrScores = errors.New("simulate: score trace")

// ScoreTrace is what a real model's tokens were worth to a policy that ranks them by one score each: the scores of every cached token,
// at each decode step, in some layers. It drives hit rates instead of a synthetic trace, and is what that is fitted to.
//
// A score is kept as codesPerDeviation codes a standard deviation of its step and layer, from their mean, at most maxCode away: what is
// read is what ranks best, and near the cut (0.84 deviations at a fifth of the tokens) 1,000 tokens lie about as many codes apart as
// there are tokens. The file is a line of JSON, then zstd: for each layer and step the low bytes of the codes, then the high ones.
// 30 layers of 2,000 tokens and 64 steps are 7.8 MB in memory and about 5 MB in a file.
type ScoreTrace struct {
	Format string `json:"format"`
	Model  string `json:"model"`
	Policy string `json:"policy"`
	Text   string `json:"text"`   // where its tokens came from
	Prompt int    `json:"prompt"` // tokens before the first step
	Steps  int    `json:"steps"`
	Layers []int  `json:"layers"` // that were recorded, ascending
	Of     int    `json:"of"`     // layers of the model

	mu    sync.Mutex
	codes [][][]int16 // [layer recorded] [step] [Prompt+step]
	extra int         // rows beyond Steps
}

const (
	scoreFormat       = "terrace-scores-1"
	codesPerDeviation = 256
	maxCode           = 1023
	maxScoreRows      = 1 << 16
	maxScoreCodes     = 1 << 28
)

// NewScoreTrace is an empty trace of so many steps behind a prompt, in count of a model's layers, evenly spaced; 0 records all.
func NewScoreTrace(prompt, steps, count, of int) *ScoreTrace {
	t := &ScoreTrace{Format: scoreFormat, Prompt: prompt, Steps: steps, Of: of}
	if count < 1 || count > of {
		count = of
	}
	for i := range count {
		t.Layers = append(t.Layers, (2*i+1)*of/(2*count))
	}
	t.codes = make([][][]int16, count)
	return t
}

// Hear takes the scores of a layer's cached tokens at a step: the next of those of that layer. One of the step's own token is left out.
func (t *ScoreTrace) Hear(layer int, scores []float32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, l := range t.Layers {
		if l != layer {
			continue
		}
		n := t.Prompt + len(t.codes[i])
		switch {
		case len(t.codes[i]) == t.Steps:
			t.extra++
		case len(scores) == n || len(scores) == n+1:
			t.codes[i] = append(t.codes[i], encodeScores(scores[:n]))
		}
	}
}

// encodeScores are codes of scores, by their mean and deviation.
func encodeScores(scores []float32) []int16 {
	mean, square := 0.0, 0.0
	for _, s := range scores {
		mean += float64(s)
	}
	mean /= float64(max(1, len(scores)))
	for _, s := range scores {
		square += (float64(s) - mean) * (float64(s) - mean)
	}
	per := codesPerDeviation / math.Sqrt(max(1e-30, square/float64(max(1, len(scores)))))
	out := make([]int16, len(scores))
	for i, s := range scores {
		out[i] = int16(max(-maxCode, min(maxCode, math.Round((float64(s)-mean)*per))))
	}
	return out
}

// Check says what the trace lacks.
func (t *ScoreTrace) Check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.extra > 0 {
		return fmt.Errorf("%w: %d more rows of scores than %d steps of %d layers have: want one text that decodes those alone", ErrScores, t.extra, t.Steps, len(t.Layers))
	}
	for i, rows := range t.codes {
		if len(rows) != t.Steps {
			return fmt.Errorf("%w: layer %d: %d steps were ranked by one score a token, want %d: want a policy that does so in every layer (hillinfer), and one text on the host", ErrScores, t.Layers[i], len(rows), t.Steps)
		}
	}
	return nil
}

// Write writes the trace's file.
func (t *ScoreTrace) Write(w io.Writer) error {
	if err := t.Check(); err != nil {
		return err
	}
	head, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrScores, err)
	}
	if _, err := w.Write(append(head, '\n')); err != nil {
		return fmt.Errorf("%w: %w", ErrScores, err)
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrScores, err)
	}
	for _, rows := range t.codes {
		for _, row := range rows {
			planes := make([]byte, 2*len(row))
			for i, c := range row {
				c += maxCode
				planes[i], planes[len(row)+i] = byte(c), byte(c>>8)
			}
			if _, err := z.Write(planes); err != nil {
				return fmt.Errorf("%w: %w", ErrScores, err)
			}
		}
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("%w: %w", ErrScores, err)
	}
	return nil
}

// IsScoreTrace says whether what comes next is a score trace, not a recording of calls; nothing is consumed.
func IsScoreTrace(in *bufio.Reader) bool {
	const begin = `{"format":"` + scoreFormat + `"`
	b, _ := in.Peek(len(begin))
	return string(b) == begin
}

// ReadScoreTrace reads what Write wrote. Errors wrap ErrScores.
func ReadScoreTrace(in *bufio.Reader) (*ScoreTrace, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("%w: line 1: %w", ErrScores, err)
	}
	t := &ScoreTrace{}
	if err := json.Unmarshal(line, t); err != nil {
		return nil, fmt.Errorf("%w: line 1: %w", ErrScores, err)
	}
	if err := t.checkHead(); err != nil {
		return nil, err
	}
	z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrScores, err)
	}
	defer z.Close()
	for i := range t.Layers {
		for step := range t.Steps {
			row, err := readCodes(z, t.Prompt+step)
			if err != nil {
				return nil, fmt.Errorf("%w: layer %d, step %d: %w", ErrScores, t.Layers[i], step, err)
			}
			t.codes[i] = append(t.codes[i], row)
		}
	}
	if n, err := z.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: more behind the last step", ErrScores)
	}
	return t, nil
}

// checkHead says what is wrong with the first line, and makes room for what it announces.
func (t *ScoreTrace) checkHead() error {
	switch n := len(t.Layers); {
	case t.Format != scoreFormat:
		return fmt.Errorf("%w: format %q, want %q", ErrScores, t.Format, scoreFormat)
	case n < 1 || n > t.Of || t.Prompt < 1 || t.Steps < 1 || t.Of > maxScoreRows || t.Prompt > 1<<24 || t.Steps > maxScoreRows || float64(n)*float64(t.Steps)*float64(t.Prompt+t.Steps) > maxScoreCodes:
		return fmt.Errorf("%w: %d of %d layers, %d tokens and %d steps: want at least one of each, and at most %d scores", ErrScores, n, t.Of, t.Prompt, t.Steps, maxScoreCodes)
	}
	for i, l := range t.Layers {
		if l < 0 || l >= t.Of || i > 0 && l <= t.Layers[i-1] {
			return fmt.Errorf("%w: layers %v: want ascending ones below %d", ErrScores, t.Layers, t.Of)
		}
	}
	t.codes = make([][][]int16, len(t.Layers))
	return nil
}

func readCodes(in io.Reader, n int) ([]int16, error) {
	planes, row := make([]byte, 2*n), make([]int16, n)
	if _, err := io.ReadFull(in, planes); err != nil {
		return nil, err
	}
	for i := range row {
		if row[i] = int16(planes[i]) | int16(planes[n+i])<<8; row[i] < 0 || row[i] > 2*maxCode {
			return nil, fmt.Errorf("token %d: code %d, want 0 to %d", i, row[i], 2*maxCode)
		}
		row[i] -= maxCode
	}
	return row, nil
}
