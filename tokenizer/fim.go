package tokenizer

// FIM are the tokens by which a model fills text into the middle: its prompt is Prefix, the text before, Suffix, the text behind, and
// Middle. The others are -1 where the vocabulary has none.
type FIM struct {
	Prefix, Suffix, Middle int
	Pad                    int
	Repo, File             int // before a repository's and a file's name
}

// The texts of these tokens, as families of models write them; source: llama.cpp's llama-vocab.cpp.
var (
	fimPrefixes = []string{"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>"}
	fimSuffixes = []string{"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>"}
	fimMiddles  = []string{"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>"}
	fimPads     = []string{"<|fim_pad|>", "<fim-pad>", "<fim_pad>"}
	fimRepos    = []string{"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}
	fimFiles    = []string{"<|file_sep|>"}
)

// FIM returns the tokens of filling in; false where the vocabulary has not all three that a prompt needs.
func (t *Tokenizer) FIM() (f FIM, ok bool) {
	find := func(texts []string) int {
		for _, text := range texts {
			if id, ok := t.TokenID(text); ok {
				return id
			}
		}
		return -1
	}
	f = FIM{find(fimPrefixes), find(fimSuffixes), find(fimMiddles), find(fimPads), find(fimRepos), find(fimFiles)}
	return f, f.Prefix >= 0 && f.Suffix >= 0 && f.Middle >= 0
}
