package serve

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"terrace/engine"
	"terrace/grammar"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/offload"
	"terrace/policy"
)

// Error is what a client is told: the HTTP status, and the field that was wrong where one was. Each API writes it in its own
// shape.
type Error struct {
	Status     int
	Param      string // the field; "" = none
	Code       string // for programs, such as model_not_found; "" = none
	Message    string
	RetryAfter int   // seconds; 0 = not said
	Cause      error // for callers in this process, never sent; nil = there is none
}

func (e *Error) Error() string { return e.Message }

// Unwrap is for errors.Is.
func (e *Error) Unwrap() error { return e.Cause }

// badField is a 400 that names a field.
func badField(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Param: param, Message: param + ": " + fmt.Sprintf(format, args...)}
}

// badRequest is a 400 that no field is to blame for.
func badRequest(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

// ErrQueue: too many requests wait already.
var ErrQueue = errors.New("too many requests are waiting")

var (
	errDraining = &Error{Status: http.StatusServiceUnavailable, Code: "draining", Message: "the server is shutting down", RetryAfter: 1}
	errQueue    = &Error{Status: http.StatusTooManyRequests, Code: "queue_full", Message: "too many requests are waiting; try again later", RetryAfter: 1, Cause: ErrQueue}
	errInternal = &Error{Status: http.StatusInternalServerError, Code: "internal_error", Message: "internal error"}
	errKey      = &Error{Status: http.StatusUnauthorized, Code: "invalid_api_key", Message: "no valid API key was given"}
	errHost     = &Error{Status: http.StatusForbidden, Code: "host_not_allowed", Message: "this Host is not served"}
	errOrigin   = &Error{Status: http.StatusForbidden, Code: "origin_not_allowed", Message: "pages of this origin are not served; --cors ORIGIN lets them"}
	errNoRoute  = &Error{Status: http.StatusNotFound, Code: "not_found", Message: "there is no such route"}
	errMethod   = &Error{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Message: "this route does not take this method"}
)

// asError is what a client is told of an error: its own, or that something went wrong here, without internals.
func asError(err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.shortened()
	}
	return errInternal
}

// maxMessageBytes is the most that a client is told: not the megabytes that it sent.
const maxMessageBytes = 1 << 10

// cut leaves the middle of a long text out.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most/2], "") + " … " + strings.ToValidUTF8(s[len(s)-most/2:], "")
}

// shortened is the error with the two ends of a long message: the field stands first, the cause last.
func (e *Error) shortened() *Error {
	if len(e.Message) <= maxMessageBytes && len(e.Param) <= maxMessageBytes {
		return e
	}
	short := *e
	short.Message, short.Param = cut(e.Message, maxMessageBytes), cut(e.Param, maxMessageBytes/4)
	return &short
}

// kind is OpenAI's type of an error.
func (e *Error) kind() string {
	switch e.Status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	}
	if e.Status >= 500 {
		return "server_error"
	}
	return "invalid_request_error"
}

// clientError is what a client is told of an error of the engine.
func clientError(err error) error {
	if said := (*Error)(nil); errors.As(err, &said) {
		return said // with a cause, or none
	}
	switch {
	case errors.Is(err, engine.ErrContext), errors.Is(err, engine.ErrOption), errors.Is(err, model.ErrUnsupported),
		errors.Is(err, grammar.ErrTooLarge): // of a schema or grammar whose choices cannot be told at some token
		return badRequest("%s", oneLine(err))
	case errors.Is(err, policy.ErrModel), errors.Is(err, policy.ErrParam), errors.Is(err, kvmanager.ErrUnsupported): // what is known where a session begins, or once its prompt is read
		return badField("kv_policy", "%s", oneLine(err))
	case errors.Is(err, engine.ErrMemory), errors.Is(err, kvmanager.ErrBudget), errors.Is(err, offload.ErrFull):
		return &Error{Status: http.StatusBadRequest, Code: "does_not_fit", Message: "the request does not fit the memory given", Cause: kvmanager.ErrBudget}
	}
	return asError(err)
}

// oneLine keeps an error to one line.
func oneLine(err error) string { return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ") }
