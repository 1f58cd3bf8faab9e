package serve

import (
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// decode reads a request's body into a struct, strictly: UTF-8, no name twice, no name that is not known, no value of another
// type, nothing behind it. Errors name the field.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	return decodeJSON(body, into)
}

func decodeJSON(body []byte, into any) error {
	if deeper(body, maxDepth) {
		return badRequest("the JSON is nested deeper than %d", maxDepth)
	}
	if k := jsontext.Value(body).Kind(); k != '{' && len(body) > 0 && body[0] != ' ' {
		return badRequest("the body must be a JSON object")
	}
	err := json.Unmarshal(body, into, json.RejectUnknownMembers(true))
	if wrong := (*Error)(nil); errors.As(err, &wrong) {
		return wrong
	}
	if wrong := (*json.SemanticError)(nil); errors.As(err, &wrong) {
		field := fieldName(string(wrong.JSONPointer))
		switch {
		case errors.Is(wrong.Err, json.ErrUnknownName):
			return badField(field, "this field is not known")
		case field == "":
			return badRequest("the body must be a JSON object")
		}
		return badField(field, "got %s, want %s", kindName(wrong), wanted(wrong.GoType))
	}
	if wrong := (*jsontext.SyntacticError)(nil); errors.As(err, &wrong) {
		if field := fieldName(string(wrong.JSONPointer)); field != "" {
			return badField(field, "the JSON is not valid: %v", wrong.Err)
		}
		return badRequest("the JSON is not valid: %v", wrong.Err)
	}
	if err != nil {
		return badRequest("the JSON is not valid")
	}
	return nil
}

// decodeJSONField is decodeJSON of a value inside the body, of which errors blame a field.
func decodeJSONField(v jsontext.Value, field string, into any) error {
	err := json.Unmarshal(v, into, json.RejectUnknownMembers(true))
	if wrong := (*Error)(nil); errors.As(err, &wrong) {
		return wrong
	}
	if wrong := (*json.SemanticError)(nil); errors.As(err, &wrong) {
		if errors.Is(wrong.Err, json.ErrUnknownName) {
			return badField(field, "%s: this field is not known", fieldName(string(wrong.JSONPointer)))
		}
		return badField(field, "%s: got %s, want %s", fieldName(string(wrong.JSONPointer)), kindName(wrong), wanted(wrong.GoType))
	}
	if err != nil {
		return badField(field, "the JSON is not valid")
	}
	return nil
}

// decodeTool is decode of tool i of a request.
func decodeTool(v jsontext.Value, i int, into any) error {
	err := decodeJSONField(v, "tools", into)
	if wrong := (*Error)(nil); errors.As(err, &wrong) && strings.HasPrefix(wrong.Message, "tools: ") {
		return wrong.at(i)
	}
	return err
}

// at has an error of a list blame one of its values.
func (e *Error) at(i int) *Error {
	place := e.Param + "[" + strconv.Itoa(i) + "]"
	return &Error{Status: e.Status, Param: place, Message: place + "." + strings.TrimPrefix(e.Message, e.Param+": ")}
}

// deeper reports whether brackets are nested deeper than limit; it takes no memory.
func deeper(b []byte, limit int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// fieldName turns a JSON pointer into the way that clients write a field: messages[0].role.
func fieldName(pointer string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		if _, err := strconv.Atoi(part); err == nil && b.Len() > 0 {
			b.WriteString("[" + part + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(part)
		if b.Len() > 200 {
			break
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

func kindName(e *json.SemanticError) string {
	switch e.JSONKind {
	case '"':
		return "a string"
	case '0':
		if len(e.JSONValue) > 0 && len(e.JSONValue) < 40 {
			return string(e.JSONValue)
		}
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "something else"
}

func wanted(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return "another type"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64:
		return "a whole number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "another type"
}

// writeJSON answers with one object.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	b, err := json.Marshal(v, json.FormatNilMapAsNull(true))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, err = w.Write(append(b, '\n'))
	return err
}
