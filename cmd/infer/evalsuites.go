package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"terrace/eval"
	"terrace/eval/choice"
	"terrace/eval/forced"
	"terrace/eval/longbench"
	"terrace/eval/metrics"
	"terrace/eval/published"
	"terrace/eval/ruler"
	"terrace/internal/nearest"
	"terrace/internal/units"
)

// suiteFlags choose a suite and its settings.
type suiteFlags struct {
	name       string
	tasks      []string
	data       string
	limit      int
	maxContext string
	seed       uint64
	noChat     bool
	placing
	asking
	chunk    int
	kl       bool
	prompts  string
	tokens   int
	policies []string // of the run: full among others makes perplexity compare with it
}

// placing is where needles lie: in texts of which lengths, how deep.
type placing struct {
	lengths []string
	depths  []float64
}

// asking is how the choice suite asks: after how many examples, and whether the question is decoded.
type asking struct {
	shots   int
	decodes bool
}

// suites lists what --suite takes, and the flags of suiteFlags that each reads: the others are refused, not ignored.
var suites = []struct {
	name, about, flags string
	open               func(f *suiteFlags) (eval.Suite, error)
	from               string          // where --data comes from
	tasks              func() []string // nil = it has none to choose
}{
	{"longbench", "21 tasks in their native JSONL (--data)", "data tasks limit max-context no-chat", func(f *suiteFlags) (eval.Suite, error) { return f.longbench(false) },
		"data.zip (114 MB) of the data set zai-org/LongBench (once THUDM/LongBench) on Hugging Face", metrics.LongBenchTasks},
	{"longbench-e", "LongBench-E, by length (--data)", "data tasks limit max-context no-chat", func(f *suiteFlags) (eval.Suite, error) { return f.longbench(true) },
		"the files *_e.jsonl of the same archive", nil},
	{"longbench-v2", "503 questions with four answers about long texts (--data: data.json, or JSONL)", publishedFlags, func(f *suiteFlags) (eval.Suite, error) { return f.published() },
		"data.json of the data set zai-org/LongBench-v2 (once THUDM/LongBench-v2) on Hugging Face", nil},
	{"infinitebench", "12 tasks of 100k tokens and more in their JSONL (--data: a folder, or one task's file)", publishedFlags, func(f *suiteFlags) (eval.Suite, error) { return f.published() },
		"the files TASK.jsonl of the data set xinrongzhang2022/InfiniteBench on Hugging Face", publishedTasks("infinitebench")},
	{"loogle", "4 tasks on texts of 2022 and later in their JSONL (--data: a folder, or one task's file)", publishedFlags, func(f *suiteFlags) (eval.Suite, error) { return f.published() },
		"the files TASK.jsonl of the data set bigai-nlco/LooGLE on Hugging Face", publishedTasks("loogle")},
	{"math", "MATH and AIME, answers in a box (--data: math.jsonl, aime.jsonl or a folder with them; --tokens of an answer, 4096)", publishedFlags, func(f *suiteFlags) (eval.Suite, error) { return f.published() },
		"test.jsonl of HuggingFaceH4/MATH-500, or rows of problem and solution as hendrycks/math has them; rows of problem and answer of AIME, as HuggingFaceH4/aime_2024 or math-ai/aime25 has them; on Hugging Face", publishedTasks("math")},
	{"ruler", "13 tasks at any --lengths (--data: essays; SQuAD and HotpotQA for qa_1 and qa_2)", "data tasks limit no-chat lengths", func(f *suiteFlags) (eval.Suite, error) { return f.ruler(nil) },
		"any plain text; RULER takes Paul Graham's essays, which scripts/data/synthetic/json/download_paulgraham_essay.py of its repository (NVIDIA/RULER, once hsiehjackson/RULER) fetches; in the same folder or its qa: dev-v2.0.json of SQuAD (rajpurkar.github.io/SQuAD-explorer) for qa_1, hotpot_dev_distractor_v1.json of HotpotQA (hotpotqa.github.io), or LongBench's hotpotqa.jsonl, for qa_2; without them the other 11 are run", ruler.TaskNames},
	{"niah", "needle in a haystack, --lengths x --depths (--data: essays)", "data limit no-chat lengths depths", func(f *suiteFlags) (eval.Suite, error) { return f.ruler(f.depths) },
		"as ruler", nil},
	{"perplexity", "wikitext-2, pg19 or a text file in --chunk tokens, the policy at work while scoring; KL from full when full is run too, or with --kl", "data tasks limit chunk kl", (*suiteFlags).perplexity,
		"any text file; wikitext-2-raw-v1 of Salesforce/wikitext, books of deepmind/pg19 on Hugging Face", nil},
	{"choice", "OpenBookQA, PIQA, COPA, RTE, ARC, HellaSwag, MMLU, GSM8K from their JSONL or Parquet files (--data, --shots)", "data tasks limit shots decode-question", (*suiteFlags).choice,
		"on Hugging Face, a folder a task, DIR/TASK: allenai/openbookqa (main), ybisk/piqa, aps/super_glue (copa, rte), allenai/ai2_arc (ARC-Easy, ARC-Challenge), Rowan/hellaswag, cais/mmlu (all, with its dev split for --shots), openai/gsm8k (main, with its train split)", choice.TaskNames},
	{"agreement", "token agreement and KL with full on the --prompts of longbench or ruler, --tokens each", "data tasks limit no-chat prompts tokens max-context lengths", (*suiteFlags).agreement,
		"as that of --prompts", nil},
	{"contexts", "arrivals (--trace) of questions about --contexts, replayed with a --store under each --placement: quality, TTFT, hits and the rate sustained", "limit " + strings.Join(contextOnly, " "), nil,
		"a trace and contexts of your own, in JSONL", nil},
}

// publishedFlags are those of the benchmarks that are read as their authors publish them.
const publishedFlags = "data tasks limit max-context no-chat tokens"

func publishedTasks(name string) func() []string {
	return func() []string { return published.Tasks(name) }
}

// suiteOnly are the flags that some suites have and others do not.
var suiteOnly = []string{"data", "tasks", "limit", "max-context", "no-chat", "lengths", "depths", "shots", "decode-question", "chunk", "kl", "prompts", "tokens"}

// listSuites prints what --suite takes, with tasks and where the data are to be got; nothing is fetched.
func (c *evalCommand) listSuites() error {
	for _, s := range suites {
		fmt.Fprintf(c.stdout, "%s: %s\n  data: %s\n", s.name, s.about, s.from)
		if s.tasks != nil {
			fmt.Fprintf(c.stdout, "  tasks: %s\n", strings.Join(s.tasks(), ", "))
		}
		fmt.Fprintf(c.stdout, "  flags: --%s\n", strings.ReplaceAll(s.flags, " ", " --"))
	}
	return nil
}

func suiteHelp() string {
	text := ""
	for _, s := range suites {
		text += "\n  " + s.name + ": " + s.about
	}
	return text
}

func (f *suiteFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringVar(&f.name, "suite", "", "the suite (required)")
	p.StringSliceVar(&f.tasks, "tasks", nil, "tasks of the suite (default all)")
	p.StringVar(&f.data, "data", "", "folder with the suite's data, or its file")
	p.IntVar(&f.limit, "limit", 0, "samples a task (0: all)")
	p.StringVar(&f.maxContext, "max-context", "0", "prompt tokens at most, counts take k; longer prompts lose their middle (0: what the context leaves)")
	p.Uint64Var(&f.seed, "seed", 1, "seed of everything that is drawn")
	p.BoolVar(&f.noChat, "no-chat", false, "no chat template (base models)")
	p.StringSliceVar(&f.lengths, "lengths", []string{"4k"}, "ruler, niah: tokens of a sample, answer included")
	p.Float64SliceVar(&f.depths, "depths", []float64{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100}, "niah: where the needle stands, percent")
	p.Lookup("depths").DefValue = "0,10,20,30,40,50,60,70,80,90,100" // pflag prints floats with six digits
	p.IntVar(&f.shots, "shots", choice.TaskShots, "choice: examples before each question (-1: as lm-evaluation-harness has it: 5 for gsm8k, none for the others)")
	p.BoolVar(&f.decodes, "decode-question", false, "choice: the question itself is decoded under the policy, only the examples before it are the prompt (with --shots)")
	p.IntVar(&f.chunk, "chunk", 1024, "perplexity: tokens a sample, of which the second half is scored")
	p.BoolVar(&f.kl, "kl", false, "perplexity: KL divergence from full even when full is not among the policies")
	p.StringVar(&f.prompts, "prompts", "longbench", "agreement: whose prompts, longbench or ruler")
	p.IntVar(&f.tokens, "tokens", 0, "agreement: tokens compared a prompt (0: 64); longbench-v2, infinitebench, loogle, math: of an answer at most (0: the benchmark's own)")
}

// open opens the suite; changed says whether a flag was given.
func (f *suiteFlags) open(changed func(flag string) bool) (eval.Suite, error) {
	if f.limit < 0 {
		return nil, usageErrorf("--limit %d: want 0 (all) or more", f.limit)
	}
	var names []string
	for _, s := range suites {
		if s.name != f.name {
			names = append(names, s.name)
			continue
		}
		own := strings.Fields(s.flags)
		for _, flag := range slices.Concat(suiteOnly, contextOnly) {
			if changed(flag) && !slices.Contains(own, flag) {
				return nil, usageErrorf("--%s is not for --suite %s, which takes --%s", flag, s.name, strings.Join(own, ", --"))
			}
		}
		return s.open(f)
	}
	return nil, usageErrorf("--suite %q%s: want one of %s (see 'infer eval --help')", f.name, nearest.Hint(f.name, names), strings.Join(names, ", "))
}

func (f *suiteFlags) longbench(extended bool) (*longbench.Suite, error) {
	if err := f.needData(); err != nil {
		return nil, err
	}
	n, err := units.ParseCount(f.maxContext)
	if err != nil {
		return nil, usageErrorf("--max-context: %v", err)
	}
	return longbench.New(longbench.Options{Data: f.data, Tasks: f.tasks, Limit: f.limit, MaxContext: n, Extended: extended, NoChat: f.noChat})
}

func (f *suiteFlags) needData() error {
	if f.data == "" {
		return usageErrorf("--suite %s needs --data DIR", f.name)
	}
	return nil
}

func (f *suiteFlags) ruler(depths []float64) (*ruler.Suite, error) {
	o := ruler.Options{Data: f.data, Tasks: f.tasks, Depths: depths, Samples: f.limit, Seed: f.seed, NoChat: f.noChat}
	for _, l := range f.lengths {
		n, err := units.ParseCount(l)
		if err != nil {
			return nil, usageErrorf("--lengths: %v", err)
		}
		o.Lengths = append(o.Lengths, n)
	}
	return ruler.New(o)
}

func (f *suiteFlags) perplexity() (eval.Suite, error) {
	if err := f.needData(); err != nil {
		return nil, err
	}
	if f.chunk < 1 {
		return nil, usageErrorf("--chunk %d: want 8 or more", f.chunk)
	}
	kl := f.kl || len(f.policies) > 1 && slices.Contains(f.policies, "full")
	return forced.NewPerplexity(forced.PerplexityOptions{Data: f.data, Tasks: f.tasks, Chunk: f.chunk, Limit: f.limit, KL: kl})
}

func (f *suiteFlags) choice() (eval.Suite, error) {
	if err := f.needData(); err != nil {
		return nil, err
	}
	return choice.New(choice.Options{Data: f.data, Tasks: f.tasks, Limit: f.limit, Shots: f.shots, Seed: f.seed, DecodeQuestion: f.decodes})
}

func (f *suiteFlags) agreement() (eval.Suite, error) {
	var prompts forced.Prompts
	switch f.prompts {
	case "longbench":
		s, err := f.longbench(false)
		if err != nil {
			return nil, err
		}
		prompts = s
	case "ruler":
		s, err := f.ruler(nil)
		if err != nil {
			return nil, err
		}
		prompts = s
	default:
		return nil, usageErrorf("--prompts %s: want longbench or ruler", f.prompts)
	}
	return forced.NewAgreement(prompts, orInt(f.tokens, 64))
}

func (f *suiteFlags) published() (eval.Suite, error) {
	if err := f.needData(); err != nil {
		return nil, err
	}
	n, err := units.ParseCount(f.maxContext)
	if err != nil {
		return nil, usageErrorf("--max-context: %v", err)
	}
	if f.tokens < 0 {
		return nil, usageErrorf("--tokens %d: want 0 (the benchmark's own) or more", f.tokens)
	}
	return published.New(f.name, published.Options{Data: f.data, Tasks: f.tasks, Limit: f.limit, MaxContext: n, Tokens: f.tokens, NoChat: f.noChat})
}
