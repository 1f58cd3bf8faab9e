// Package schema turns JSON schemas (drafts 4 to 2020-12) into grammars.
//
// It owns: reading a schema in its order (value.go, resolve.go), schemas as formulas over the places of the document
// (formula.go), a normal form of each formula that is closed under and, or and not (normal.go, texts.go, numbers.go,
// arrays.go, objects.go, formats.go), and the grammar of the JSON texts that satisfy it (emit.go, emitobject.go,
// emitarray.go). A formula is normalised when it is first needed, so that schemas may be recursive.
//
// The language. Object members come in the order in which the schema first names them (properties, then required), then all
// others; white space is what serialisers write: none or one blank, or line ends and indentation of at most 64, after { [ : ,
// and before } ]; numbers are decimal, with at most 40 digits before the point and 20 behind it, and have an exponent only where
// nothing bounds them; integers have no point. In strings whose text is limited an escape stands only where serialisers write
// one. Names that the schema does not give may repeat, and a validator counts a name once: together they count as one towards
// minProperties, and a minimum that the named properties and one more cannot reach is an error, as is a not that asks for an
// unnamed property unlike others of its kind. format asserts; formats that no draft defines, and keywords that no draft
// defines, are annotations, as the standard says.
//
// Invariants: (1) every text of the grammar satisfies the schema; (2) every document that satisfies it, written as above, is a
// text of the grammar; (3) a keyword that cannot be held to these is an error that names it and its place, never left out;
// (4) work and memory are bounded (maxBytes, maxDepth, budget).
package schema
