package answer

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Tool is a function that the model may call.
type Tool struct {
	Name   string
	Schema jsontext.Value // a JSON schema of its arguments; nil: any object
}

// kinds is a set of kinds of JSON values.
type kinds uint8

const (
	isString kinds = 1 << iota
	isInteger
	isNumber
	isBoolean
	isNull
	isObject
	isArray

	anyKind kinds = 1<<7 - 1
)

var kindNames = map[string]kinds{
	"string": isString, "integer": isInteger, "number": isInteger | isNumber, "boolean": isBoolean, "null": isNull, "object": isObject, "array": isArray,
}

// maxDepth bounds how deep a schema is followed.
const maxDepth = 60

// object is the members of a JSON object by name; nil where it is none.
func object(v jsontext.Value) map[string]jsontext.Value {
	var m map[string]jsontext.Value
	if v.Kind() != '{' || json.Unmarshal(v, &m) != nil {
		return nil
	}
	return m
}

func list(v jsontext.Value) []jsontext.Value {
	var all []jsontext.Value
	if v.Kind() != '[' || json.Unmarshal(v, &all) != nil {
		return nil
	}
	return all
}

// resolve follows $ref inside the schema.
func (t *Tool) resolve(s jsontext.Value) map[string]jsontext.Value {
	m := object(s)
	for range maxDepth {
		ref, ok := m["$ref"]
		if !ok {
			break
		}
		at := t.Schema
		path, inside := strings.CutPrefix(unquote(ref), "#")
		if !inside {
			return nil
		}
		for _, name := range strings.Split(path, "/")[1:] {
			at = object(at)[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
		}
		m = object(at)
	}
	return m
}

// kinds is what a value of a schema can be.
func (t *Tool) kinds(s jsontext.Value, depth int) kinds {
	m := t.resolve(s)
	if m == nil || depth > maxDepth {
		return anyKind
	}
	k := anyKind
	if names, ok := m["type"]; ok {
		k = 0
		for _, name := range append(list(names), names) {
			if name.Kind() == '"' {
				k |= kindNames[unquote(name)]
			}
		}
	}
	if values, ok := enum(m); ok {
		var of kinds
		for _, v := range values {
			of |= kindOf(v)
		}
		k &= of
	}
	for _, word := range []string{"anyOf", "oneOf"} {
		if of, ok := m[word]; ok {
			var some kinds
			for _, s := range list(of) {
				some |= t.kinds(s, depth+1)
			}
			k &= some
		}
	}
	for _, s := range list(m["allOf"]) {
		k &= t.kinds(s, depth+1)
	}
	if k == anyKind && (m["properties"] != nil) != (m["items"] != nil) {
		k = isObject
		if m["items"] != nil {
			k = isArray
		}
	}
	if string(m["nullable"]) == "true" {
		k |= isNull
	}
	if k == 0 {
		return anyKind
	}
	return k
}

// enum is the values that a schema lists.
func enum(m map[string]jsontext.Value) ([]jsontext.Value, bool) {
	if v, ok := m["const"]; ok {
		return []jsontext.Value{v}, true
	}
	v, ok := m["enum"]
	return list(v), ok
}

func kindOf(v jsontext.Value) kinds {
	switch v.Kind() {
	case '"':
		return isString
	case '0':
		if strings.ContainsAny(string(v), ".eE") {
			return isNumber
		}
		return isInteger
	case 't', 'f':
		return isBoolean
	case 'n':
		return isNull
	case '{':
		return isObject
	}
	return isArray
}

// property is the schema of a member of an object of a schema. ok: the object may have it because the schema names it, or
// because it says that there may be others; a schema without properties takes all.
func (t *Tool) property(s jsontext.Value, name string, depth int) (of jsontext.Value, ok bool) {
	m := t.resolve(s)
	if m == nil || depth > maxDepth {
		return nil, true
	}
	if of, ok := object(m["properties"])[name]; ok {
		return of, true
	}
	for pattern, of := range object(m["patternProperties"]) {
		if re, err := regexp.Compile(pattern); err != nil || re.MatchString(name) {
			return of, true
		}
	}
	named := m["properties"] != nil || m["patternProperties"] != nil
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		for _, part := range list(m[word]) {
			if p := t.resolve(part); p["properties"] != nil {
				named = true
				if of, ok := object(p["properties"])[name]; ok {
					return of, true
				}
			}
		}
	}
	switch more := m["additionalProperties"]; more.Kind() {
	case '{':
		return more, true
	case 't':
		return nil, true
	case 'f':
		return nil, false
	}
	return nil, !named
}

// items is the schema of the items of an array of a schema.
func (t *Tool) items(s jsontext.Value) jsontext.Value { return t.resolve(s)["items"] }

// count is a number that a schema says; otherwise where it says none.
func (t *Tool) count(s jsontext.Value, word string, otherwise int) int {
	if n, err := strconv.Atoi(string(t.resolve(s)[word])); err == nil && n >= 0 {
		return n
	}
	return otherwise
}

// names is the properties of a schema in its order, and which have to be there.
func (t *Tool) names() (names []string, required map[string]bool) {
	m := t.resolve(t.Schema)
	required = map[string]bool{}
	for _, name := range list(m["required"]) {
		required[unquote(name)] = true
	}
	if m["properties"] != nil {
		over(m["properties"]).inOrder(func(name string) { names = append(names, name) })
	}
	return slices.Compact(names), required
}

// inOrder calls back with the names of an object's members as they stand.
func (r *reader) inOrder(name func(string)) {
	r.space()
	r.members(func(n string) bool {
		name(n)
		_, ok := r.jsonValue()
		return ok
	})
}
