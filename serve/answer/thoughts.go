package answer

import (
	"slices"
	"strings"
)

// ThoughtMarks are the texts between which a model thinks.
type ThoughtMarks struct {
	Open, Close string
	Closing     string // ends a thought that has taken too long, and begins the answer
	Anywhere    bool   // they are control tokens; else a thought begins an answer, or follows another part of the form
	lead        string // ends a thought before a forced call; "": Close
}

func pair(open, close string, anywhere bool) ThoughtMarks {
	return ThoughtMarks{Open: open, Close: close, Closing: "\n" + close + "\n\n", Anywhere: anywhere}
}

// think is what most models write. Templates that say nothing of thoughts get it too: at the beginning of an answer it is
// nothing else.
var think = pair("<think>", "</think>", false)

// thoughtMarks are those that a template may write, besides those of families that have their own.
var thoughtMarks = []ThoughtMarks{
	pair("<mm:think>", "</mm:think>", true),
	pair("<seed:think>", "</seed:think>", true),
	pair("[THINK]", "[/THINK]", true),
	pair("◁think▷", "◁/think▷", true),
	pair("<|inner_prefix|>", "<|inner_suffix|>", true),
	pair("<thinking>", "</thinking>", false),
	pair("<thought>", "</thought>", false),
	pair("<reasoning>", "</reasoning>", false),
	pair("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", false),
	pair("Here is my thought process:", "Here is my response:", false),
}

func thoughtsOf(template string) (all []ThoughtMarks) {
	for _, t := range thoughtMarks {
		if strings.Contains(template, t.Close) {
			all = append(all, t)
		}
	}
	if len(all) == 0 || strings.Contains(template, think.Close) {
		all = append([]ThoughtMarks{think}, all...)
	}
	return all
}

// thoughtOf is the pair that a mark belongs to.
func (f Form) thoughtOf(mark string) *ThoughtMarks {
	i := slices.IndexFunc(f.Thoughts, func(t ThoughtMarks) bool { return mark != "" && (mark == t.Open || mark == t.Close) })
	if i < 0 {
		return nil
	}
	return &f.Thoughts[i]
}

// insideThought is the thought that a prompt ends in; nil where it opens none.
func (f Form) insideThought(promptTail string) *ThoughtMarks {
	tail := strings.TrimRight(promptTail, " \n\t\r")
	for _, m := range f.dropped { // Seed's prompts end a budget of none with a mark behind the thought's
		tail = strings.TrimSuffix(tail, m)
	}
	i := slices.IndexFunc(f.Thoughts, func(t ThoughtMarks) bool { return strings.HasSuffix(tail, strings.TrimRight(t.Open, "\n")) })
	if i < 0 {
		return nil
	}
	return &f.Thoughts[i]
}

// CloseThought is the text that ends a thought as the model is taught to write it, where its budget is used up.
func (f Form) CloseThought() string { return f.Thoughts[0].Closing }

// InsideThought says whether an answer to a prompt, of which tail is the end, begins inside a thought.
func (f Form) InsideThought(promptTail string) bool { return f.insideThought(promptTail) != nil }

// isControl says whether a mark looks like a control token, which a model does not write as a text about it.
func isControl(mark string) bool {
	return strings.ContainsAny(mark, "|｜") || strings.Contains(mark, "<SPECIAL_") || strings.Contains(mark, "seed:") || strings.HasPrefix(mark, "[TOOL")
}
