package serve

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"terrace/engine"
	"terrace/internal/kernels/quant"
	"terrace/model"
	"terrace/policy"
	"terrace/weights"
	"terrace/weights/convert"
)

// stressArchs are models of different kinds of KV: plain, with windows, with recurrent state, latent, with sinks.
var stressArchs = []string{"llama", "llama", "llama", "gemma3", "qwen35", "deepseek2", "gpt-oss", "gemma4", "lfm2"}

var stressModels sync.Mutex // files that are made

// stressModel makes each model once.
func stressModel(t testing.TB, arch string) string {
	t.Helper()
	small, err := smallModel()
	if err != nil {
		t.Fatal(err)
	}
	stressModels.Lock()
	defer stressModels.Unlock()
	path := filepath.Join(filepath.Dir(small), "stress-"+arch+".gguf")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	spec := convert.Spec{Arch: arch, Layers: 4, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 32, FFN: 96, Vocab: 300, Context: 512, Seed: 9}
	if arch == "gemma4" {
		spec.Layers = 6 // of which the last has no window
	}
	spec.SetDefaults()
	if err := convert.Synthesize(context.Background(), path, spec, convert.Options{Type: quant.Q8_0}); err != nil {
		t.Fatalf("%s: %v", arch, err)
	}
	return path
}

// stressPolicies are those of the registry, with numbers that small prompts feel; %d is a budget in percent.
var stressPolicies = map[string]string{
	"full": "full", "oracle": "oracle:budget=%d%%", "random": "random:budget=%d%%", "compactor": "compactor:budget=%d%%,chunk_size=32,sketch_dimension=8", "leverage_score": "leverage_score:budget=%d%%", "non_causal_attn": "non_causal_attn:budget=%d%%,chunk_size=16", "cur": "cur:budget=%d%%", "duo_attention": "duo_attention:pattern=0.9/0.1/0.8/0.2/0.1/0.9/0.3/0.7,sinks=4,recent=%d",
	"expected_attention": "expected_attention:budget=%d%%", "finch": "finch:budget=%d%%,window=8", "keydiff": "keydiff:budget=%d%%", "knorm": "knorm:budget=%d%%",
	"kvzap": "kvzap:weights=0.1,budget=%d%%", "fastkvzip": "fastkvzip:weights=0.1,budget=%d%%", "kvcompose": "kvcompose:budget=%d%%", "kvzip": "kvzip:budget=%d%%", "kvzip_plus": "kvzip_plus:budget=%d%%", "lagkv": "lagkv:budget=%d%%,lag_size=16", "observed_attention": "observed_attention:budget=%d%%",
	"pyramidkv": "pyramidkv:budget=%d%%,window=8", "qfilter": "qfilter:filters=@none.safetensors,budget=%d%%", "rkv": "rkv:budget=%d%%", "triattention": "triattention:budget=%d%%", "simlayerkv": "simlayerkv:threshold=0.%d,recent=16", "snapkv": "snapkv:budget=%d%%,window=8", "streaming_llm": "streaming_llm:budget=%d%%",
	"think": "think:window=8", "tova": "tova:budget=%d%%", "adakv": "adakv:press=snapkv,budget=%d%%", "chunkkv": "chunkkv:press=knorm,budget=%d%%,chunk_length=8", "criticalkv": "criticalkv:press=snapkv,budget=%d%%",
	"decoding": "decoding:press=knorm,interval=8,target=%d", "dms": "dms:press=knorm,threshold=-6,window=%d", "per_layer": "per_layer:press=snapkv,budget=%d%%,shape=pyramid", "topp": "topp:press=quest,budget=%d,p=0.9", "vattention": "vattention:press=topk,budget=%d",
	"h2o": "h2o:budget=%d%%", "h2o_offload": "h2o_offload:budget=%d%%", "indexer": "indexer:budget=%d", "infinigen": "infinigen:budget=%d%%,sample=8", "kvswap": "kvswap:budget=%d", "leoam": "leoam:budget=%d%%",
	"double_sparsity": "double_sparsity:budget=%d%%", "magicpig": "magicpig:bits=4,tables=%d,recent=16", "pqcache": "pqcache:budget=%d%%,sinks=4", "rocketkv": "rocketkv:budget=%d%%,window=8,kernel=7", "quest": "quest:budget=%d,dense_layers=1", "retroinfer": "retroinfer:retrieval=%d%%,segment=64,recent=16", "sparf": "sparf:ratio=%d%%", "sparq": "sparq:budget=%d%%", "tailcodes": "tailcodes:budget=%d%%", "topk": "topk:budget=%d",
	"hillinfer": "hillinfer:alpha=0.%d,block=32", "flexprefill": "flexprefill:min_budget=%d,block=16", "lazyllm": "lazyllm:keep=%d%%", "minference": "minference:vertical=%d,slash=64", "sliminfer": "sliminfer:block=16",
	"flexgen": "flexgen", "deepspeed": "deepspeed", "insti_dense": "insti_dense", "flexgen_sparq": "flexgen_sparq",
}

// TestStressPolicies: TestStress draws from the whole registry.
func TestStressPolicies(t *testing.T) {
	for _, name := range policy.Names() {
		text := stressPolicies[name]
		if strings.Contains(text, "%d") {
			text = fmt.Sprintf(text, 50)
		}
		if _, err := policy.Parse(text); text == "" || err != nil {
			t.Errorf("%s: %q: %v", name, text, err)
		}
	}
}

// drawTiers is a bound on host memory, 0 = none, and whether an SSD lies below it.
func (s *stress) drawTiers(arch, path string, eo engine.Options) (host int64, ssd bool) {
	switch s.rnd.IntN(6) {
	case 0:
		return 0, false
	case 1:
		return 64 << 20, s.rnd.IntN(2) == 0
	}
	host, ssd = kvBytesOf(s.t, path, eo, 200+s.rnd.IntN(300)), s.rnd.IntN(3) == 0
	if arch == "qwen35" {
		host += kvBytesOf(s.t, path, eo, 1) // what else its states need
	}
	if ssd {
		host += 256 << 10 // what is on its way
	}
	return host, ssd
}

// kvBytesOf is what a text of n tokens takes.
func kvBytesOf(t testing.TB, path string, eo engine.Options, n int) int64 {
	t.Helper()
	file, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := eo.Validate(m); err != nil {
		t.Fatal(err)
	}
	return engine.KVBytes(m, eo, n)
}

// valueOf reads the number in a message's words, 0 where it has none.
func valueOf(message, words string) (n int) {
	if at := strings.Index(message, words[:strings.Index(words, "%")]); at >= 0 {
		_, _ = fmt.Sscanf(message[at:], words, &n)
	}
	return n
}
