package answer

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"terrace/internal/golden"
)

var rewrite = flag.Bool("rewrite", false, "write the table of docs/forms.md")

// TestTableOfPage: docs/forms.md shows the forms as they are.
func TestTableOfPage(t *testing.T) {
	const path, begins, ends = "../../docs/forms.md", "<!-- forms: made by go test ./serve/answer -rewrite -->\n", "<!-- end of forms -->\n"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(page), begins)
	got, after, ended := strings.Cut(rest, ends)
	if !begun || !ended {
		t.Fatalf("%s: want a table between the lines %q and %q", path, begins, ends)
	}
	want := "| form | models | a call | thoughts of its own |\n| --- | --- | --- | --- |\n"
	cell := strings.NewReplacer("\n", "⏎", "|", `\|`)
	code := func(text string) string {
		if text == "" {
			return ""
		}
		if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") || strings.TrimSpace(text) != text {
			text = " " + text + " " // what Markdown strips again
		}
		return "``" + cell.Replace(text) + "``"
	}
	for _, r := range Table() {
		want += fmt.Sprintf("| %s | %s | %s | %s |\n", r.Name, r.Models, code(r.Call), code(r.Thought))
	}
	switch {
	case got == want:
	case *rewrite:
		if err := os.WriteFile(path, []byte(before+begins+want+ends+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s: the table is not Table's: run 'go test ./serve/answer -rewrite' and read the diff", path)
	}
}

// TestFormOf: public templates teach the forms that their models write.
func TestFormOf(t *testing.T) {
	folder := golden.Shared(t, "data", "templates")
	for name, want := range map[string]string{
		"Bielik-11B-v3.0-Instruct": "hermes", "Qwen-Qwen3-0.6B": "hermes", "ibm-granite-granite-4.1": "hermes", "MiMo-VL": "hermes",
		"Qwen3-Coder": "qwen3-coder", "GLM-4.6": "glm", "Spark2.5": "glm", "poolside-Laguna-S-2.1": "glm", "inclusionai-ling-3.0-flash": "glm",
		"meta-llama-Llama-3.1-8B-Instruct": "llama3", "mistralai-Mistral-Nemo-Instruct-2407": "mistral", "unsloth-mistral-Devstral-Small-2507": "mistral",
		"deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "deepseek", "deepseek-ai-DeepSeek-V3.1": "deepseek", "deepseek-ai-DeepSeek-V4": "dsml",
		"moonshotai-Kimi-K2": "kimi-k2", "openai-gpt-oss-120b": "harmony", "muse-glimmer": "atem", "upstage-Solar-Open-100B": "solar",
		"Cohere2MoE": "cohere", "CohereForAI-c4ai-command-r-plus-tool_use": "command-r", "google-gemma-4-31B-it": "gemma4",
		"google-gemma-2-2b-it": "json", "microsoft-Phi-3.5-mini-instruct": "json", "HuggingFaceTB-SmolLM3-3B": "json",
		"MiniMax-M1": "tool-calls", "MiniMax-M3": "minimax-m3", "Apriel-1.6-15b-Thinker-fixed": "tool-calls", "NVIDIA-Nemotron-Nano-v2": "nemotron",
		"LFM2-8B-A1B": "lfm2", "LFM2.5-Instruct": "lfm2", "ibm-granite-granite-3.3-2B-Instruct": "granite3", "GigaChat3-10B-A1.8B": "gigachat3",
		"meetkai-functionary-medium-v3.1": "functionary-3.1",
	} {
		text, err := os.ReadFile(folder + "/" + name + ".jinja")
		if err != nil {
			t.Fatal(err)
		}
		if got := FormOf(string(text)).Name; got != want {
			t.Errorf("%s: form %s, want %s", name, got, want)
		}
	}
}
