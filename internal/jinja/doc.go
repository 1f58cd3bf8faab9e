// Package jinja renders chat templates as Hugging Face transformers does: Jinja 3 in its immutable sandbox with
// trim_blocks, lstrip_blocks, loop controls, the tag generation, and the functions raise_exception and strftime_now.
//
// It owns the language: lexer, parser, Python's values and their text forms, filters, tests, methods. It reads no file,
// no clock but that of strftime_now, no environment. A template comes with a model and is not trusted: every step of a
// rendering is charged to a Limits account, and what a template does wrong is an error, never a panic.
//
// Differences to jinja2, all of them on purpose: append, extend, insert and pop of lists are allowed (published templates
// use them); a slice of a literal that has none is always an error; include, import, extends, block and the filters that
// make HTML or random choices are refused by name.
//
// A Template is immutable and may render in several goroutines. Values are Python's: nil (None), bool, int64, float64,
// string, *List, *Dict; FromJSON makes them.
//
// Source: Jinja 3.1 (palletsprojects/jinja), transformers' chat_template_utils.
package jinja
