package answer

// Functionary's forms. 3.1: <function=NAME>{…}</function>. 3.2: >>>NAME and the arguments on the next line; >>>all is text.
var (
	functionaryFamily = family{
		name: "functionary-3.1", models: "Functionary 3.1", uses: holds("<function="),
		example: "<function=f>{\"x\": 1}</function>",
		form: Form{calls: []caller{&namedCalls{
			open: []string{"<function="}, close: []string{"</function>"},
			head:   func(r *reader, _ string) (string, bool) { return r.wordTo(">") },
			before: func(name string) string { return "<function=" + name + ">" },
			after:  "</function>",
		}}},
	}
	functionary2Family = family{
		name: "functionary-3.2", models: "Functionary 3.2",
		uses:    func(t string) bool { return holds(">>>all")(t) || holds("'>>>'", `">>>"`)(t) },
		example: ">>>f\n{\"x\": 1}",
		form: Form{
			prompted: ">>>",
			dropped:  []string{">>>all\n"},
			calls: []caller{&namedCalls{
				open:   []string{">>>"},
				head:   func(r *reader, _ string) (string, bool) { return r.word("\n{") },
				before: func(name string) string { return ">>>" + name + "\n" },
			}},
		},
	}
)
