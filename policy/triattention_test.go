package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/internal/cacheshape"
)

func init() {
	answers[QueryCenters{}.Key()] = func(s looking, _ Observation) any {
		scene, _ := s.(*scene)
		c := NewCenters(scene.heads, scene.dim/2)
		for _, q := range scene.pre {
			c.Add(q, 1, Planes(scene.rope, scene.dim))
		}
		return c
	}
}

// longer is a rope that turns and lengthens, as YaRN's does.
type longer struct {
	Rope
	by float32
}

func (r longer) Rotate(x []float32, position int) {
	r.Rope.Rotate(x, position)
	kernelsTimes(x, r.by)
}

func (r longer) Unrotate(x []float32, position int) {
	r.Rope.Unrotate(x, position)
	kernelsTimes(x, 1/r.by)
}

func kernelsTimes(x []float32, by float32) {
	for i := range x {
		x[i] *= by
	}
}

// triOptions are those of the reference.
type triOptions struct {
	reach                                              int
	most, meanOfGroup, raw, noMLR, noTrig, promptMayGo bool
}

func (o triOptions) String() string {
	return fmt.Sprintf("offset_max_length=%d,score_aggregation=%s,layer_perhead_aggregation=%s,normalize_scores=%t,disable_mlr=%t,disable_trig=%t,allow_prefill_compression=%t",
		o.reach, map[bool]string{false: "mean", true: "max"}[o.most], map[bool]string{false: "max", true: "mean"}[o.meanOfGroup], !o.raw, o.noMLR, o.noTrig, o.promptMayGo)
}

// refTri is the paper's score (its equations of the trigonometric series and of the norms' part), written down wave by wave in complex
// numbers, of the tokens from first on: what stays with them. Queries' means are over the scene's.
func refTri(s *scene, target, first int, o triOptions, theta, factor float64) (kept [][]int32) {
	half, group, n := s.dim/2, s.heads/s.kvHeads, len(s.q)
	wave := func(f int) float64 { return math.Pow(theta, -2*float64(f)/float64(s.dim)) }
	for g := range s.kvHeads {
		pos := s.pos[g]
		best := make([]float64, len(pos))
		for i := range first {
			best[i] = math.Inf(1)
		}
		var all [][]float64
		for h := g * group; h < (g+1)*group; h++ {
			means, lengths := make([]complex128, half), make([]float64, half)
			for f := range half {
				for _, q := range s.pre {
					x := complex(float64(q[h*s.dim+f]), float64(q[h*s.dim+f+half]))
					means[f] += x / complex(float64(len(s.pre)), 0)
					lengths[f] += cmplx.Abs(x) / float64(len(s.pre))
				}
			}
			row := make([]float64, len(pos)-first)
			for i := range row {
				p := int(pos[first+i])
				key, looks, norms := s.key(g, p), []float64{}, 0.0
				for ahead := 1; ahead <= o.reach; ahead *= 2 {
					sum := 0.0
					for f := range half {
						k := complex(float64(key[f]), float64(key[f+half])) * cmplx.Rect(1/factor, -wave(f)*float64(p)) // before RoPE
						mean, length, delta := means[f], lengths[f], float64(n-p+ahead)
						phase := cmplx.Phase(mean * cmplx.Conj(k))
						sum += factor * factor * cmplx.Abs(mean) * cmplx.Abs(k) * math.Cos(wave(f)*delta+phase)
						if ahead == 1 && o.noMLR {
							norms += factor * factor * length * cmplx.Abs(k)
						} else if ahead == 1 {
							norms += factor * factor * (length - cmplx.Abs(mean)) * cmplx.Abs(k)
						}
					}
					looks = append(looks, sum)
				}
				switch {
				case o.noTrig:
				case o.most:
					row[i] = slices.Max(looks)
				default:
					for _, x := range looks {
						row[i] += x / float64(len(looks))
					}
				}
				row[i] += norms
			}
			if !o.raw {
				mean, squares := 0.0, 0.0
				for _, x := range row {
					mean += x / float64(len(row))
				}
				for _, x := range row {
					squares += (x - mean) * (x - mean) / float64(len(row))
				}
				for i := range row {
					row[i] = (row[i] - mean) / math.Sqrt(squares)
				}
			}
			all = append(all, row)
		}
		for i := range best[first:] {
			most, sum := math.Inf(-1), 0.0
			for _, row := range all {
				most, sum = max(most, row[i]), sum+row[i]
			}
			if best[first+i] = most; o.meanOfGroup {
				best[first+i] = sum
			}
		}
		kept = append(kept, topOf(best, target))
	}
	return kept
}

// TestTriAttentionAgainstReference: at the prompt's end, and under decoding with the prompt held or not, also where gaps are in the cache.
func TestTriAttentionAgainstReference(t *testing.T) {
	for i, o := range []triOptions{
		{reach: 65536}, {reach: 8}, {reach: 500, most: true}, {reach: 65536, meanOfGroup: true}, {reach: 65536, raw: true}, {reach: 65536, noMLR: true},
		{reach: 65536, noTrig: true}, {reach: 65536, promptMayGo: true}, {reach: 300, most: true, raw: true, meanOfGroup: true},
	} {
		for _, factor := range []float64{1, 1.25} {
			s := randomScene(uint64(i), 0, 6, 2, 16)
			s.rope = longer{halfRope{10000}, float32(factor)}
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for len(s.q) < 90 {
				s.push(r)
			}
			for _, q := range s.pre { // centers that are no zeros
				for j := range q {
					q[j] += float32(j%5) - 1.5
				}
			}
			s.prompt = len(s.q)
			s.fill()
			spec := "triattention:budget=30," + o.String()
			p := mustSet(t, spec, s).Keeper
			var kept Selection
			p.KeepPrompt(s.shown(p), &kept)
			equalPositions(t, kept.Heads, refTri(s, 30, 0, o, 10000, factor), spec)

			s.keep(&kept)
			for len(s.q) < 120 {
				s.push(r)
				for g := range s.pos {
					s.pos[g] = append(s.pos[g], int32(len(s.q)-1))
				}
			}
			spec = "decoding:triattention,compression_interval=30,target_size=44," + o.String()
			d := mustSet(t, spec, s).Dropper
			var drop Selection
			d.DropStep(s.shown(d), &drop)
			first := 30
			if o.promptMayGo {
				first = 0
			}
			want := refTri(s, 44, first, o, 10000, factor)
			for g := range want {
				want[g] = rest(nil, want[g], len(s.pos[g]))
			}
			equalPositions(t, drop.Heads, want, spec)
		}
	}
}

// TestTriAttentionPromptThatFills: where the prompt alone has as many tokens as stay, its tokens go too, and new ones can stay.
func TestTriAttentionPromptThatFills(t *testing.T) {
	for _, target := range []int{40, 41} {
		s := randomScene(5, 40, 4, 2, 16)
		s.fill()
		r := rand.New(rand.NewPCG(1, 1))
		for range 20 {
			s.push(r)
		}
		s.pos = nil
		s.fill()
		d := mustSet(t, fmt.Sprintf("decoding:triattention,compression_interval=20,target_size=%d", target), s).Dropper
		var drop Selection
		d.DropStep(s.shown(d), &drop)
		for g, gone := range drop.Heads {
			old := slices.ContainsFunc(gone, func(i int32) bool { return i < 40 })
			if len(gone) != 60-target || old != (target == 40) {
				t.Errorf("target %d, head %d: %v go", target, g, gone)
			}
		}
	}
}

// TestTriAttentionScoresPrompts: at a prompt's end its tokens have scores also where fewer than stay are cached, as under dms.
func TestTriAttentionScoresPrompts(t *testing.T) {
	s := randomScene(5, 40, 4, 2, 16)
	p := mustSet(t, "triattention", s).Keeper.(Scored)
	l := s.shown(p)
	dst := heads(nil, l)
	p.Score(l, 50, dst)
	if slices.Contains(dst[1], infinity) {
		t.Errorf("held: %v", dst[1])
	}
}

// TestTriAttentionAuthors: what stays is what the authors' code keeps (testdata/triattention).
func TestTriAttentionAuthors(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "triattention", "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Layers, Heads, KVHeads, Dim, Tokens, Prompt, More int
		Base                                              float64
		Keys                                              []float32
		Real, Imag, Length                                []float64
		Cases                                             []struct {
			Options map[string]any
			Scale   float64
			Budget  int
			Again   bool
			Kept    [][][]int32
		}
	}
	if err := json.Unmarshal(text, &all); err != nil || len(all.Cases) != 11 {
		t.Fatalf("%d cases, %v", len(all.Cases), err)
	}
	const file = "a.safetensors"
	m := Model{Layers: cacheshape.Equal(all.Layers, all.Heads, cacheshape.KV{Heads: all.KVHeads, KeyDim: all.Dim, ValueDim: all.Dim})}
	n := all.Heads * all.Dim / 2
	f := &Filters{}
	for l := range all.Layers {
		f.Centers = append(f.Centers, &Centers{Heads: all.Heads, Planes: all.Dim / 2, Count: 1, Real: all.Real[l*n : (l+1)*n], Imag: all.Imag[l*n : (l+1)*n], Length: all.Length[l*n : (l+1)*n]})
	}
	m.Filters = map[string]*Filters{file: f}
	upTo := all.Tokens + all.More
	for _, c := range all.Cases {
		spec := fmt.Sprintf("decoding:triattention,stats=@%s,compression_interval=1,target_size=%d", file, c.Budget)
		for k, v := range c.Options {
			spec += fmt.Sprintf(",%s=%v", k, v)
		}
		parsed, err := Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		set, err := parsed.New(m)
		if err != nil {
			t.Fatal(err)
		}
		for l := range all.Layers {
			s := &scene{heads: all.Heads, kvHeads: all.KVHeads, dim: all.Dim, index: l, layers: all.Layers, prompt: all.Prompt, rope: longer{halfRope{all.Base}, float32(c.Scale)}, levels: 127}
			tokens := all.Tokens
			if c.Again {
				tokens = upTo
			}
			for p := range tokens {
				var row []float32
				for g := range all.KVHeads {
					key := slices.Clone(all.Keys[((l*all.KVHeads+g)*upTo+p)*all.Dim:][:all.Dim])
					s.rope.Rotate(key, p)
					row = append(row, key...)
				}
				s.k, s.q, s.v = append(s.k, row), append(s.q, make([]float32, all.Heads*all.Dim)), append(s.v, row)
			}
			s.fill()
			if c.Again {
				for g := range s.pos {
					s.pos[g] = append(slices.Clone(all.Cases[0].Kept[l][g]), span(nil, all.Tokens, upTo)...)
				}
			}
			var drop Selection
			set.Dropper.DropStep(s.layer(0, 0), &drop)
			for g := range all.KVHeads {
				var kept []int32
				for _, i := range rest(nil, drop.Heads[g], len(s.pos[g])) {
					kept = append(kept, s.pos[g][i])
				}
				if !slices.Equal(kept, c.Kept[l][g]) {
					t.Errorf("%s, layer %d, head %d, again %t: %v, the authors keep %v", spec, l, g, c.Again, kept, c.Kept[l][g])
				}
			}
		}
	}
}

// neighbours turns 2i with 2i + 1, and leaves the last six channels as they are.
type neighbours struct{}

func (neighbours) Rotate(x []float32, position int) {
	for i := 0; i+1 < len(x)-6; i += 2 {
		s, c := math.Sincos(float64(position) / float64(i+1))
		x[i], x[i+1] = float32(float64(x[i])*c-float64(x[i+1])*s), float32(float64(x[i])*s+float64(x[i+1])*c)
	}
}
func (n neighbours) Unrotate(x []float32, position int) { n.Rotate(x, -position) }

// TestPlanes: pairs that turn come first, in the order of their first channel, whatever the layout; the others are paired as they stand.
func TestPlanes(t *testing.T) {
	for want, rope := range map[string]Rope{
		"[[0 5] [1 6] [2 7] [3 8] [4 9]]": halfRope{100},
		"[[0 1] [2 3] [4 5] [6 7] [8 9]]": neighbours{},
	} {
		if got := fmt.Sprint(Planes(rope, 10)); got != want {
			t.Errorf("%T: %s, want %s", rope, got, want)
		}
	}
}

// TestCenters: sums of two parts joined are those of the whole; a head whose queries are all the same is wholly concentrated.
func TestCenters(t *testing.T) {
	planes := Planes(halfRope{100}, 4)
	a, b := NewCenters(2, 2), NewCenters(2, 2)
	a.Add([]float32{3, 0, 4, 1, 1, 2, 3, 4}, 1, planes)
	b.Add([]float32{3, 0, 4, 1, -1, -2, -3, -4}, 1, planes)
	a.Join(b)
	want := &Centers{Heads: 2, Planes: 2, Count: 2, Real: []float64{6, 0, 0, 0}, Imag: []float64{8, 2, 0, 0}, Length: []float64{10, 2, 2 * math.Sqrt(10), 2 * math.Sqrt(20)}}
	for i := range want.Real {
		if a.Real[i] != want.Real[i] || a.Imag[i] != want.Imag[i] || math.Abs(a.Length[i]-want.Length[i]) > 1e-12 || a.Count != 2 {
			t.Errorf("%+v, want %+v", a, want)
			break
		}
	}
	if one, none := a.Concentration(0), a.Concentration(1); math.Abs(one-1) > 1e-12 || none != 0 {
		t.Errorf("concentration %g and %g", one, none)
	}
}

// TestTriAttentionRefuses: each fault of a file, or of a name, is one line.
func TestTriAttentionRefuses(t *testing.T) {
	for _, spec := range []string{"triattention:stats=chat", "triattention:stats=@a.txt", "triattention:offset_max_length=0", "triattention:score_aggregation=min"} {
		if _, err := Parse(spec); !errors.Is(err, ErrParam) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", spec, err)
		}
	}
	whole := func(heads, planes int) []*Centers {
		return []*Centers{NewCenters(heads, planes), NewCenters(heads, planes)}
	}
	for says, f := range map[string]*Filters{
		"was not read":             nil,
		"no centers of queries":    {Scores: &ScoreMap{}},
		"centers of 3 layers":      {Centers: append(whole(4, 8), NewCenters(4, 8))},
		"no centers of layer 1":    {Centers: whole(4, 8)[:1]},
		"2 heads in 8 planes in l": {Centers: whole(2, 8)},
		"4 heads in 4 planes in l": {Centers: whole(4, 4)},
	} {
		m := Model{Layers: cacheshape.Equal(2, 4, cacheshape.KV{Heads: 2, KeyDim: 16, ValueDim: 16}), Filters: map[string]*Filters{"a.safetensors": f}}
		spec, err := Parse("triattention:stats=@a.safetensors")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := spec.New(m); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	odd := Model{Layers: cacheshape.Equal(1, 2, cacheshape.KV{Heads: 1, KeyDim: 9, ValueDim: 9})}
	spec, err := Parse("triattention")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := spec.New(odd); !errors.Is(err, ErrModel) {
		t.Errorf("odd keys: %v", err)
	}
}
