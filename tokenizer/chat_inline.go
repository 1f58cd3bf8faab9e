package tokenizer

import (
	"fmt"

	"github.com/nikolalohinski/gonja/v2/tokens"
)

// gonja reads Jinja's conditional expression only as a whole output or a whole
// assigned value. Published templates (Gemma 3's among them) also have it in
// parentheses, arguments and lists. inlineConditions rewrites
//
//	A if C else B    to    (((C) and [A] or [B])|first)
//
// in the token stream: and/or evaluate only what they need and a list of one is
// always true, so the meaning is the same.
func inlineConditions(list []*tokens.Token) ([]*tokens.Token, error) {
	var out []*tokens.Token
	for i := 0; i < len(list); i++ {
		out = append(out, list[i])
		var end int
		switch {
		case list[i].Type == tokens.VariableBegin:
			end = find(list, i+1, tokens.VariableEnd)
		case list[i].Type == tokens.BlockBegin:
			end = find(list, i+1, tokens.BlockEnd)
		default:
			continue
		}
		inner := list[i+1 : end]
		var err error
		if list[i].Type == tokens.VariableBegin {
			inner, err = rewriteParts(inner, 0)
		} else {
			inner, err = rewriteBlock(inner)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, inner...)
		i = end - 1
	}
	return out, nil
}

// find returns the index of the first token of a type at or after i, or the
// length.
func find(list []*tokens.Token, i int, kind tokens.Type) int {
	for ; i < len(list) && list[i].Type != kind && list[i].Type != tokens.EOF; i++ {
	}
	return i
}

// rewriteBlock rewrites the value of a set and what stands in brackets
// elsewhere; the "if" of an if or for block is another.
func rewriteBlock(list []*tokens.Token) ([]*tokens.Token, error) {
	name := 0
	for name < len(list) && list[name].Type == tokens.Whitespace {
		name++
	}
	if name < len(list) && list[name].Val == "set" {
		if at := find(list, 0, tokens.Assign); at < len(list) {
			value, err := rewriteParts(list[at+1:], 0)
			return append(append([]*tokens.Token(nil), list[:at+1]...), value...), err
		}
	}
	return rewriteGroups(list, 0)
}

// rewriteGroups rewrites inside every bracket of list, not list itself.
func rewriteGroups(list []*tokens.Token, depth int) ([]*tokens.Token, error) {
	if depth > templateMaxDepth {
		return nil, fmt.Errorf("brackets nest deeper than the limit of %d", templateMaxDepth)
	}
	var out []*tokens.Token
	for i := 0; i < len(list); i++ {
		out = append(out, list[i])
		if !opens(list[i]) {
			continue
		}
		end := matching(list, i)
		inner, err := rewriteParts(list[i+1:end], depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, inner...)
		i = end - 1
	}
	return out, nil
}

func opens(t *tokens.Token) bool {
	return t.Type == tokens.LeftParenthesis || t.Type == tokens.LeftBracket || t.Type == tokens.LeftBrace
}

func closes(t *tokens.Token) bool {
	return t.Type == tokens.RightParenthesis || t.Type == tokens.RightBracket || t.Type == tokens.RightBrace
}

// matching returns the index of the bracket that closes the one at i, or the
// length when none does (the parser will say so).
func matching(list []*tokens.Token, i int) int {
	depth := 0
	for ; i < len(list); i++ {
		if opens(list[i]) {
			depth++
		} else if closes(list[i]) {
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return i
}

// rewriteParts rewrites the parts of a bracket's inside: between commas, after
// the "=" of a named argument, after the ":" of a map's entry.
func rewriteParts(list []*tokens.Token, depth int) ([]*tokens.Token, error) {
	var out []*tokens.Token
	from, nested := 0, 0
	flush := func(to int) error {
		part, err := rewriteCondition(list[from:to], depth)
		out = append(out, part...)
		return err
	}
	for i, t := range list {
		switch {
		case opens(t):
			nested++
		case closes(t):
			nested--
		case nested == 0 && (t.Type == tokens.Comma || t.Type == tokens.Assign || t.Type == tokens.Colon):
			if err := flush(i); err != nil {
				return nil, err
			}
			out = append(out, t)
			from = i + 1
		}
	}
	return out, flush(len(list))
}

// rewriteCondition rewrites one expression.
func rewriteCondition(list []*tokens.Token, depth int) ([]*tokens.Token, error) {
	if depth > templateMaxDepth {
		return nil, fmt.Errorf("conditions nest deeper than the limit of %d", templateMaxDepth)
	}
	cond, other, nested := -1, -1, 0
	for i, t := range list {
		switch {
		case opens(t):
			nested++
		case closes(t):
			nested--
		case nested != 0 || t.Type != tokens.Name:
		case t.Val == "if" && cond < 0:
			cond = i
		case t.Val == "else" && cond >= 0 && other < 0:
			other = i
		}
	}
	if cond <= 0 {
		return rewriteGroups(list, depth)
	}
	condition, otherwise := list[cond+1:], []*tokens.Token{token(list[cond], tokens.Name, "none")}
	if other >= 0 {
		condition, otherwise = list[cond+1:other], list[other+1:]
	}
	var parts [3][]*tokens.Token
	for i, part := range [][]*tokens.Token{condition, list[:cond], otherwise} {
		var err error
		if parts[i], err = rewriteCondition(part, depth+1); err != nil {
			return nil, err
		}
	}
	return joinCondition(list[cond], parts[0], parts[1], parts[2]), nil
}

func token(at *tokens.Token, kind tokens.Type, val string) *tokens.Token {
	return &tokens.Token{Type: kind, Val: val, Pos: at.Pos, Line: at.Line, Col: at.Col}
}

// joinCondition is (((condition) and [then] or [otherwise])|first).
func joinCondition(at *tokens.Token, condition, then, otherwise []*tokens.Token) []*tokens.Token {
	var out []*tokens.Token
	add := func(kind tokens.Type, val string) { out = append(out, token(at, kind, val)) }
	add(tokens.LeftParenthesis, "(")
	add(tokens.LeftParenthesis, "(")
	add(tokens.LeftParenthesis, "(")
	out = append(out, condition...)
	add(tokens.RightParenthesis, ")")
	add(tokens.And, "and")
	add(tokens.LeftBracket, "[")
	out = append(out, then...)
	add(tokens.RightBracket, "]")
	add(tokens.Or, "or")
	add(tokens.LeftBracket, "[")
	out = append(out, otherwise...)
	add(tokens.RightBracket, "]")
	add(tokens.RightParenthesis, ")")
	add(tokens.Pipe, "|")
	add(tokens.Name, "first")
	add(tokens.RightParenthesis, ")")
	return out
}
