// Package grammar says which tokens may come next, so that a generated text belongs to a language: a JSON schema's (package
// grammar/schema), or a GBNF grammar's. Nothing outside the language is ever allowed, and whatever is allowed can be completed.
//
// A language is a context-free grammar over bytes (expr.go, gbnf.go) that compile.go turns into a Grammar: instructions of a
// pushdown automaton, without rules that produce nothing and without left recursion. machine.go runs it as an automaton whose
// states are sets of threads, each with a stack; stacks that continue alike are one (stack.go), so that a state stays small
// where a grammar is ambiguous. States and transitions are made when they are first asked for, and kept; where empty moves lead
// from an instruction is found once for each pair of instruction and stacks (closure.go). text.go reads characters, as UTF-8 or
// inside JSON strings. vocabulary.go has the tokens as tries of bytes; mask.go walks them through the automaton, lets all plain
// tokens below a place pass at once where a thread takes any plain characters, and keeps masks by what the state can do within
// one token.
//
// It knows no model, tokenizer, server or file: tokens come as bytes. Units: text is bytes, lengths of strings code points.
// Concurrency: a Grammar and a Vocabulary are immutable; a Machine locks itself; a State belongs to one text.
//
// Invariants: (1) every state that is not dead can be completed; (2) what a Machine keeps is bounded (maxConfigs, maxMasks):
// beyond that it is emptied; (3) a mask never depends on what was kept.
package grammar
