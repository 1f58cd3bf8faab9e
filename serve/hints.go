package serve

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// hintFields collect the members of a request that its struct does not name: those that a table knows are taken, others refused.
type hintFields struct {
	Rest map[string]jsontext.Value `json:",embed"`
}

// hints are fields that known clients send and that are no part of a request here, by name.
type hints map[string]hint

// hint says what a value asks for; it is not called for null, which asks for nothing.
type hint func(v jsontext.Value) asked

// asked is what becomes of a value.
type asked struct {
	told bool   // it is left out, and the client is told
	want string // not empty: it is refused, with what would be taken
}

// ignored takes any value of one of some kinds (jsontext.Kind: " 0 t { [), which has no effect here, and tells.
func ignored(kinds string) hint {
	return func(v jsontext.Value) asked {
		if k := v.Kind(); !strings.ContainsRune(strings.ReplaceAll(kinds, "t", "tf"), rune(k)) {
			return asked{want: "a value of another type"}
		}
		return asked{told: true}
	}
}

// only takes values that ask for what is done anyway; others would change the answer.
func only(values ...string) hint {
	return func(v jsontext.Value) asked {
		if slices.ContainsFunc(values, func(want string) bool { return sameValue(compact(v), want) }) {
			return asked{}
		}
		return asked{want: strings.Join(values, " or ")}
	}
}

// refused takes null alone.
func refused(jsontext.Value) asked { return asked{want: "none; it is not done here"} }

// sameValue compares JSON without white space; numbers by their value.
func sameValue(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return a == b || errX == nil && errY == nil && x == y
}

// decodeHinted is decode for a struct with hintFields; the first table that knows a name decides.
func decodeHinted(w http.ResponseWriter, r *http.Request, into any, rest *hintFields, tables ...hints) error {
	if err := decode(w, r, into); err != nil {
		return err
	}
	return rest.take(r.Context(), tables...)
}

// take checks what the struct does not name, and tells what is left out.
func (f *hintFields) take(ctx context.Context, tables ...hints) error {
	for _, name := range slices.Sorted(maps.Keys(f.Rest)) {
		h := hintOf(name, tables)
		if h == nil {
			return badField(cut(name, maxMessageBytes/4), "this field is not known")
		}
		v := f.Rest[name]
		if v.Kind() == 'n' {
			continue
		}
		switch a := h(v); {
		case a.want != "":
			return badField(name, "%.60s: want %s", compact(v), a.want)
		case a.told:
			tell(ctx, name)
		}
	}
	return nil
}

// hintOf finds a name; one that ends in a dot or "_*" in a table is a family.
func hintOf(name string, tables []hints) hint {
	for _, t := range tables {
		if h := t[name]; h != nil {
			return h
		}
	}
	if family, _, ok := strings.Cut(name, "."); ok && family == "speculative" || strings.HasPrefix(name, "litellm_") {
		return ignored(`"0t{[`) // llama.cpp's drafts, and what LiteLLM says to itself
	}
	return nil
}

// maxTold bounds the header that tells what was left out.
const maxTold = 32

// tell lists what was left out of a request, in the header Terrace-Ignored and in the log.
func tell(ctx context.Context, what string) {
	x := exchangeOf(ctx)
	if x == nil || len(x.ignored) == maxTold {
		return
	}
	what = strings.Map(func(c rune) rune {
		if c > ' ' && c < 0x7f && c != ',' {
			return c
		}
		return '_'
	}, cut(what, maxToolBytes))
	if !slices.Contains(x.ignored, what) {
		x.ignored = append(x.ignored, what)
		x.Header().Set("Terrace-Ignored", strings.Join(x.ignored, ", "))
	}
}

// offered are the tools of a request that can be offered to the model; others are left out, unless they are all that there is.
func offered(ctx context.Context, tools []tool, out []string, choice string) error {
	if len(tools) == 0 && len(out) > 0 && choice != "none" {
		return badField("tools", "%.40q does not run here, and there is no function beside it", out[0])
	}
	for _, t := range out {
		tell(ctx, t)
	}
	return nil
}
