package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/golden"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/policy"
)

// TestForcedStepsOfPolicies runs kvpress's presses: the positions kept are kvpress's, but for tokens whose scores tie at the cut
// by kvpress's own figures, and where they are, the logits of eight forced steps are within 1e-3.
func TestForcedStepsOfPolicies(t *testing.T) {
	t.Parallel()
	root := golden.Shared(t, "data", "golden", "policies")
	all := golden.Tensors(t, root+"/golden.safetensors")
	b, err := os.ReadFile(root + "/policies.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows map[string]struct {
		Params map[string]any `json:"params"`
		Ties   int            `json:"ties_at_cut"` // layers and KV heads whose scores tie there
	}
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	base := map[string]string{"snapkv_small": "snapkv", "pyramidkv_small": "pyramidkv", "expected_attention_nocov": "expected_attention", "lagkv_32": "lagkv", "adakv_snapkv": "adakv"}
	ids := all["input_ids"].Ints()
	for key, row := range rows {
		name, _, _ := strings.Cut(key, "@")
		spec := name
		if s, ok := base[name]; ok {
			spec = s
		}
		sep := ":"
		for p, v := range row.Params {
			if p == "compression_ratio" {
				p = "ratio"
			}
			spec += fmt.Sprintf("%s%s=%v", sep, p, v)
			sep = ","
		}
		e := openModel(t, root, Options{Exact: true, Policy: spec})
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Prefill(t.Context(), ids, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		differ := notKept(t, key, s, all[key+"/kept_mask"].Ints(), all[key+"/scores"].Floats(), len(ids))
		if differ > 0 && row.Ties == 0 {
			t.Errorf("%s: %d positions are kept that kvpress drops, which has no ties at the cut", key, differ)
		}
		tokens, want := all[key+"/decode_tokens"].Ints(), all[key+"/decode_logits"].Floats()
		for i := range len(tokens) - 1 {
			if err := s.Decode(tokens[i]); err != nil {
				t.Fatal(err)
			}
			if differ > 0 {
				continue // other tokens were dropped: other logits
			}
			var off float64
			for j, x := range s.Logits() {
				off = max(off, math.Abs(float64(x-want[i*len(s.Logits())+j])))
			}
			if off > 1e-3 {
				t.Errorf("%s: logits of step %d are off by %.2g", key, i, off)
			}
		}
		s.Close()
	}
}

// notKept counts positions that the session holds and the mask [layers, heads, n] drops. By the scores [layers, heads, n] each
// of them ties with the lowest that the mask keeps, and as many are held as kept.
func notKept(t *testing.T, key string, s *Session, mask []int, scores []float32, n int) (differ int) {
	t.Helper()
	m := s.e.m
	for layer := range m.Layers {
		for g := range m.Layer[0].KVHeads {
			at, kept, cut := (layer*m.Layer[0].KVHeads+g)*n, 0, math.Inf(1)
			for p := range n {
				if mask[at+p] != 0 {
					kept, cut = kept+1, min(cut, float64(scores[at+p]))
				}
			}
			pos := s.text.Seq().PositionList(layer, g)
			if len(pos) != kept {
				t.Errorf("%s: layer %d, head %d: %d positions are kept, kvpress keeps %d", key, layer, g, len(pos), kept)
			}
			for _, p := range pos {
				if mask[at+int(p)] != 0 {
					continue
				}
				if differ++; math.Abs(float64(scores[at+int(p)])-cut) > 1e-6 {
					t.Errorf("%s: layer %d, head %d: position %d of score %g is kept, kvpress cuts at %g", key, layer, g, p, scores[at+int(p)], cut)
				}
			}
		}
	}
	return differ
}

// allSpecs lists every policy that the engine runs on a model without a trained indexer, wrappers around one inner policy.
func allSpecs(t *testing.T) []string {
	var out []string
	for _, info := range policy.Infos() {
		if spec, err := policy.Parse(info.Spec()); err != nil || !spec.Causal() || spec.Lossless() {
			out = append(out, info.Spec())
		}
	}
	if len(out) < 15 {
		t.Fatalf("only %v", out)
	}
	return append(out, "retroinfer:cluster=8,update=16,recent=4,retrieval=10%,estimation=50%", "topp:pqcache,budget=120,bits=4", "topp:infinigen,alpha=20,estimate=exact", "snapkv+quest", "decoding:knorm,target_size=80,compression_interval=5", "decoding:snapkv,window_size=8,target_size=80,compression_interval=10",
		"decoding:expected_attention,target_size=90,compression_interval=6", "rkv:budget=40", "decoding:rkv,target_size=80,compression_interval=10",
		"decoding:triattention,target_size=90,compression_interval=6", "decoding:triattention,allow_prefill_compression=true,target_size=80,compression_interval=5",
		"simlayerkv:lazy_threshold=0.5,n_recent=24", "compactor:chunk_size=24,sketch_dimension=8,budget=60", "dms:kvzap,weights=0.1,threshold=0,window=16,decoding=true")
}

// budgeted gives a specification a budget where it takes one.
func budgeted(spec, budget string) string {
	sep := ":"
	if strings.Contains(spec, ":") {
		sep = ","
	}
	if strings.Contains(spec, "+") {
		return spec
	}
	if with := spec + sep + "budget=" + budget; parses(with) {
		return with
	}
	return spec
}

func parses(spec string) bool {
	_, err := policy.Parse(spec)
	return err == nil
}

// TestPoliciesDoNotDependOnTheMachine: page size and threads change no bit, a batch changes no bit, and a budget that
// covers the text is full, bit for bit. openModel checks the page accounts after each.
func TestPoliciesDoNotDependOnTheMachine(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(150, 1), fakes.IDs(12, 2)
	calibration := fakes.IDs(64, 3)
	full := forced(t, small(t, Options{Threads: 1}), prompt, next)
	for _, name := range allSpecs(t) {
		t.Run(strings.ReplaceAll(name, ":", " of "), func(t *testing.T) {
			spec := budgeted(name, "60")
			e := small(t, Options{Threads: 1, Policy: spec, Calibration: calibration})
			want := forced(t, e, prompt, next)
			for _, o := range []Options{{Threads: 2, PageTokens: 64}} {
				o.Policy, o.Calibration = spec, calibration
				if d := fakes.Worst(want, forced(t, small(t, o), prompt, next)); d != 0 {
					t.Errorf("pages of %d, %d threads: logits differ by %g", o.PageTokens, o.Threads, d)
				}
			}
			if d := fakes.Worst(want, inBatch(t, e, prompt, next)); d != 0 {
				t.Errorf("in a batch: logits differ by %g", d)
			}
			if wide := budgeted(name, "100%"); wide != name && !hasOwnLimit(name) {
				if d := fakes.Worst(full, forced(t, small(t, Options{Threads: 2, Policy: wide, Calibration: calibration}), prompt, next)); d != 0 {
					t.Errorf("%s: logits differ from full by %g", wide, d)
				}
			}
		})
	}
}

// hasOwnLimit reports whether a wrapper decides by something else than the budget of what it wraps.
func hasOwnLimit(spec string) bool {
	return strings.HasPrefix(spec, "decoding") || strings.HasPrefix(spec, "dms") || strings.HasPrefix(spec, "topp")
}

// chunkKL is the largest divergence, in nats, of a step's next-token distribution that cutting a prompt otherwise may bring:
// rows do not depend on it, bit for bit, but sums over rows are added in another order, which can turn a choice between
// scores that are equal to six digits.
const chunkKL = 1e-4

// TestChunksChangeNothing: the size of the chunks that a prompt is read in changes the distributions of forced steps by at
// most chunkKL under any policy, and no bit under those that sum nothing over the prompt.
func TestChunksChangeNothing(t *testing.T) {
	t.Parallel()
	prompt, next, calibration := fakes.IDs(210, 1), fakes.IDs(6, 2), fakes.IDs(64, 3)
	for _, name := range allSpecs(t) {
		t.Run(strings.ReplaceAll(name, ":", " of "), func(t *testing.T) {
			o := Options{Policy: budgeted(name, "60"), Calibration: calibration}
			want := forced(t, small(t, o), prompt, next)
			for _, o.ChunkTokens = range []int{75} { // which no page ends at
				got := forced(t, small(t, o), prompt, next)
				var most float64
				for i := range want {
					most = max(most, divergence(want[i], got[i]))
				}
				if most > chunkKL {
					t.Errorf("chunks of %d: KL %.2g, want at most %g", o.ChunkTokens, most, chunkKL)
				}
				if sums := slices.Contains([]string{"h2o", "observed_attention", "expected_attention", "hillinfer"}, name); !sums && fakes.Worst(want, got) != 0 {
					t.Errorf("chunks of %d: logits differ by %g", o.ChunkTokens, fakes.Worst(want, got))
				}
			}
		})
	}
}

// divergence is KL(a ‖ b) of the distributions that logits stand for.
func divergence(a, b []float32) (kl float64) {
	logs := func(x []float32) []float64 {
		var sum float64
		for _, v := range x {
			sum += math.Exp(float64(v) - float64(slices.Max(x)))
		}
		out := make([]float64, len(x))
		for i, v := range x {
			out[i] = float64(v) - float64(slices.Max(x)) - math.Log(sum)
		}
		return out
	}
	p, q := logs(a), logs(b)
	for i := range p {
		kl += math.Exp(p[i]) * (p[i] - q[i])
	}
	return kl
}

// inBatch is forced beside another text of another length.
func inBatch(t *testing.T, e *Engine, prompt, next []int) [][]float32 {
	t.Helper()
	a, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := errors.Join(b.Prefill(t.Context(), fakes.IDs(97, 7), PrefillHooks{}), a.Prefill(t.Context(), prompt, PrefillHooks{})); err != nil {
		t.Fatal(err)
	}
	out := [][]float32{slices.Clone(a.Logits())}
	for i, id := range next {
		if err := e.DecodeBatch([]*Session{b, a}, []int{i, id}); err != nil {
			t.Fatal(err)
		}
		out = append(out, slices.Clone(a.Logits()))
	}
	return out
}

// TestDroppedTokensAreGone: what the cache holds follows the budget, in tokens and in bytes.
func TestDroppedTokensAreGone(t *testing.T) {
	for spec, want := range map[string]float64{"snapkv:budget=64": 64 + 20, "h2o:budget=40": 40, "decoding:knorm,target_size=50,compression_interval=20": 50, "full": 220, "quest:budget=32": 220} {
		e := small(t, Options{Policy: spec})
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Prefill(t.Context(), fakes.IDs(200, 4), PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if err := s.Decode(i); err != nil {
				t.Fatal(err)
			}
		}
		u := s.KVUse()
		if u.Tokens != want {
			t.Errorf("%s holds %g tokens, want %g", spec, u.Tokens, want)
		}
		if most := e.kv.BytesFor(int(want) + 15); u.Bytes > most || u.Bytes+u.SketchBytes != e.KV().InUseBytes {
			t.Errorf("%s: %d bytes, at most %d expected, accounted %d", spec, u.Bytes, most, e.KV().InUseBytes)
		}
		if spec == "quest:budget=32" && (u.TokensRead > 170 || u.TokensRead < 32 || u.SketchBytes == 0) {
			t.Errorf("quest read %g tokens a step of %d bytes of sketch", u.TokensRead, u.SketchBytes)
		}
		if err := s.Rewind(100); err != nil || s.Tokens() != 100 {
			t.Errorf("%s: rewound to %d tokens: %v", spec, s.Tokens(), err)
		}
		s.Close()
	}
}

// TestQuantisedKV: low-bit caches stay near f16, the rotation changes nothing but rounding, and memory is as computed.
func TestQuantisedKV(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 5), fakes.IDs(20, 6)
	exact := forced(t, small(t, Options{Exact: true}), prompt, next)
	size := fakes.Worst(exact, zeros(exact))
	if d := fakes.Worst(exact, forced(t, small(t, Options{Exact: true, Rotate: RotateBoth}), prompt, next)); d > 1e-4*size {
		t.Errorf("rotation of f32 keys and values changes logits of %g by %g", size, d)
	}
	want := forced(t, small(t, Options{}), prompt, next)
	for _, c := range []struct {
		k, v   kvpage.Elem
		rotate Rotation
		limit  float32
	}{{kvpage.I8, kvpage.I8, RotateNone, 0.05}, {kvpage.I8, kvpage.I4, RotateKeys, 0.15}, {kvpage.I4, kvpage.I4, RotateAuto, 0.15}, {kvpage.F16, kvpage.I8, RotateNone, 0.05},
		{kvpage.I3, kvpage.I3, RotateAuto, 0.6}, {kvpage.I3, kvpage.I2, RotateBoth, 0.7}, {kvpage.I2, kvpage.F16, RotateNone, 0.9}, {kvpage.F16, kvpage.I3, RotateAuto, 0.3}} {
		o := Options{KVTypeSet: true, KType: c.k, VType: c.v, Rotate: c.rotate, KVWindow: 32}
		e := small(t, o)
		got := forced(t, e, prompt, next)
		if d := fakes.Worst(want, got); d > c.limit*size || d == 0 {
			t.Errorf("%v keys, %v values: logits of %g differ by %g", c.k, c.v, size, d)
		}
		o.Threads, o.PageTokens = 1, 4*c.k.PageTokens()
		if d := fakes.Worst(got, forced(t, small(t, o), prompt, next)); d != 0 {
			t.Errorf("%v keys: one thread and larger pages change logits by %g", c.k, d)
		}
		o.Policy = "snapkv:budget=100+quest"
		forced(t, small(t, o), prompt, next)
	}
}

func zeros(like [][]float32) [][]float32 {
	out := make([][]float32, len(like))
	for i := range like {
		out[i] = make([]float32, len(like[i]))
	}
	return out
}

// TestRefusals: what cannot work is refused at start, with the reason.
func TestRefusals(t *testing.T) {
	m := small(t, Options{}).m
	for _, o := range []Options{
		{Policy: "h2o", KVTypeSet: true, KType: kvpage.I8, VType: kvpage.F16},
		{Policy: "expected_attention", Rotate: RotateKeys},
		{Policy: "think", Rotate: RotateBoth},
		{Policy: "lagkv", Rotate: RotateBoth},
	} {
		if _, err := Open(m, o); !errors.Is(err, model.ErrUnsupported) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Open(m, Options{Policy: "infinigen"}); !errors.Is(err, ErrOption) {
		t.Errorf("infinigen without a sample text: %v", err)
	}
}
