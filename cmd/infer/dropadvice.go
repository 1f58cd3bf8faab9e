package main

import (
	"fmt"

	"terrace/engine"
	"terrace/eval"
	"terrace/policy"
)

// Of a text of fewer tokens, a drop that frees fewer bytes saves nothing that anybody notices.
const (
	shortText = 256
	smallDrop = 1 << 20
)

// dropAdvice says why what a policy dropped helped nobody: of a prompt and later tokens behind it, held stay a layer and KV head;
// freed is the bytes that the drop freed, -1 = not known. Empty where the drop may well help, or where a sliding window alone dropped.
func dropAdvice(spec *policy.Spec, prompt, later, held int, freed int64) string {
	dropped := prompt + later - held
	if held <= 0 || dropped <= 0 || spec.Lossless() {
		return ""
	}
	if window := spec.Unscored(); window >= held-later && dropped < prompt {
		return fmt.Sprintf("policy %s keeps its window, the newest %d tokens, first: of a prompt of %d tokens it kept the newest %d and chose none by score; a budget in tokens, where the policy has one (budget=1024), leaves short prompts whole, window_size=N makes the window smaller",
			spec, window, prompt, prompt-dropped)
	}
	if prompt+later < shortText && freed >= 0 && freed < smallDrop {
		return fmt.Sprintf("policy %s dropped %d of %d tokens, which frees about %d KiB: a budget in tokens, where the policy has one (budget=1024), leaves short texts whole", spec, dropped, prompt+later, freed>>10)
	}
	return ""
}

// noticeDrop says of an answer where the policy's drop helped nobody.
func (a *app) noticeDrop(e *engine.Engine, res *engine.Result) {
	freed := int64(-1)
	if res.KV.Fraction > 0 {
		freed = int64(float64(res.KV.Bytes) * (1/res.KV.Fraction - 1))
	}
	later := max(len(res.IDs)-1, 0) // the last one that was drawn was not read
	if line := dropAdvice(e.Policy(), res.PromptTokens, later, int(res.KV.Tokens+0.5), freed); line != "" {
		a.notice("%s", line)
	}
}

// noticeDrops says, once a policy, of how many samples its window was all that stayed.
func (c *evalCommand) noticeDrops(policies []string, outcomes []eval.Outcome) {
	for _, name := range policies {
		spec, err := policy.Parse(name)
		if err != nil { // one that is read from a file: it ran
			continue
		}
		n, of, first := 0, 0, ""
		for _, o := range outcomes {
			if o.Policy != name || o.Error != "" {
				continue
			}
			of++
			later := o.Generated
			if c.suite.name == "perplexity" { // what is scored is read
				later = int(o.Weight)
			}
			if line := dropAdvice(spec, o.Prompt, max(later-1, 0), int(o.Kept+0.5), -1); line != "" {
				if n++; n == 1 {
					first = line
				}
			}
		}
		if n > 0 {
			c.notice("%d of %d samples, the first of them: %s", n, of, first)
		}
	}
}
