package serve

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of what a client may send, and for how long.
const (
	maxBodyBytes   = 8 << 20
	maxHeaderBytes = 60 << 10 // net/http adds 4 KiB
	maxDepth       = 128      // of JSON
	headerTimeout  = 10 * time.Second
	bodyTimeout    = 30 * time.Second
	restTimeout    = time.Second      // of what is left of a body once it is answered
	writeTimeout   = 30 * time.Second // of a part of an answer that the client does not take
	idleTimeout    = 2 * time.Minute  // of a connection between requests
)

const statusGone = 499 // the client left first

// errGone: the client takes no answer any more.
var errGone = errors.New("serve: the client has left")

// exchange is one HTTP request while it is answered.
type exchange struct {
	http.ResponseWriter
	id      string // of the request, in logs and headers
	key     string // digest of the key; "" = none
	status  int    // 0 = nothing sent yet
	bytes   int64
	reply   *Reply   // of a generating request
	ignored []string // what was left out of it
}

type exchangeKey struct{}

// exchangeOf is the one that a request's context belongs to; nil outside of a handler.
func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// keyOf tells requests of one API key from those of others.
func keyOf(ctx context.Context) string {
	if x := exchangeOf(ctx); x != nil {
		return x.key
	}
	return ""
}

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter; a client that takes nothing for writeTimeout has left.
func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := x.ResponseWriter.Write(b)
	x.bytes += int64(n)
	if err != nil {
		err = errors.Join(errGone, err)
	}
	return n, err
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// gateway is what every request comes through: keys, hosts, origins and limits before it is served, accounts and the log behind.
type gateway struct {
	o *Options
	m *metrics
}

// answer is a route's handler: key, limits, accounts, log, and a panic is this request's own.
func (g *gateway) answer(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		x := &exchange{ResponseWriter: w, id: requestID(r)}
		x.Header().Set("X-Request-Id", x.id)
		x.Header().Set("Request-Id", x.id) // as Anthropic's clients read it
		x.Header().Set("X-Content-Type-Options", "nosniff")
		err := g.admit(rt, x, r)
		if err == nil {
			r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
			err = g.guarded(rt, x, r)
		}
		code := x.status
		switch {
		case err == nil && code == 0:
			code = http.StatusOK
		case errors.Is(err, errGone) || errors.Is(err, context.Canceled) && r.Context().Err() != nil:
			code = statusGone
			if x.status == 0 {
				defer panic(http.ErrAbortHandler) // net/http would answer 200
			}
		case err != nil && x.status == 0:
			e := asError(err)
			if code = e.Status; e == errInternal {
				g.o.Log.Error("a request failed", slog.String("id", x.id), slog.String("error", oneLine(err)))
			}
			if e.RetryAfter > 0 {
				x.Header().Set("Retry-After", strconv.Itoa(e.RetryAfter))
			}
			if code == http.StatusUnauthorized {
				x.Header().Set("WWW-Authenticate", "Bearer")
			}
			rt.fail(x, e)
		}
		if r.ContentLength != 0 { // net/http reads on what is left of a body, which may come a byte at a time
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTimeout))
		}
		g.account(rt, x, r, code, time.Since(began))
	})
}

// guarded serves a route; a panic is an error of the request.
func (g *gateway) guarded(rt route, x *exchange, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			g.o.Log.Error("a handler failed by a bug", slog.String("id", x.id), slog.Any("value", p), slog.String("stack", string(debug.Stack())))
			err = errInternal
		}
	}()
	return rt.serve(x, r)
}

// account counts and logs an exchange.
func (g *gateway) account(rt route, x *exchange, r *http.Request, code int, took time.Duration) {
	if !rt.uncounted {
		g.m.requests.With(rt.label, strconv.Itoa(code)).Add(1)
	}
	attrs := []slog.Attr{slog.String("id", x.id), slog.String("method", r.Method), slog.String("route", rt.label), slog.Int("status", code),
		slog.Float64("ms", float64(took.Microseconds())/1000), slog.Int64("bytes", x.bytes)}
	if x.reply != nil {
		u, t := x.reply.Usage(), x.reply.Timings()
		attrs = append(attrs, slog.Int("prompt_tokens", u.Prompt), slog.Int("cached_tokens", u.Cached), slog.Int("generated_tokens", u.Generated),
			slog.Float64("queue_ms", ms(t.Queue)), slog.Float64("prompt_ms", ms(t.Prompt)))
		g.m.duration.Observe(took.Seconds())
		g.m.prompt.Observe(float64(u.Prompt))
		g.m.answer.Observe(float64(u.Generated))
	}
	if len(x.ignored) > 0 {
		attrs = append(attrs, slog.String("ignored", strings.Join(x.ignored, ", ")))
	}
	g.writeTrace(x, code, took)
	level := slog.LevelInfo
	if rt.uncounted {
		level = slog.LevelDebug
	}
	g.o.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// requestID is the client's, if it is a short plain word, else a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	plain := func(c rune) bool {
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_'
	}
	if id != "" && len(id) <= 64 && strings.IndexFunc(id, func(c rune) bool { return !plain(c) }) < 0 {
		return id
	}
	return "req_" + newID()
}

// newID is 24 random characters.
func newID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // which cannot fail
	return hex.EncodeToString(b[:])
}

// admit checks the key, and what the headers say of the body.
func (g *gateway) admit(rt route, x *exchange, r *http.Request) error {
	if len(g.o.Keys) > 0 && !rt.open && !(rt.scraped && g.o.OpenMetrics) {
		keys := g.o.Keys
		if rt.scraped {
			keys = append(slices.Clip(keys), g.o.MetricsKeys...)
		}
		if x.key = keyGiven(r, keys); x.key == "" {
			return errKey
		}
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return &Error{Status: http.StatusUnsupportedMediaType, Message: "a compressed body is not taken"}
	}
	if r.ContentLength > maxBodyBytes {
		return tooLarge
	}
	return nil
}

var tooLarge = &Error{Status: http.StatusRequestEntityTooLarge, Code: "body_too_large", Message: "the body is larger than 8 MiB"}

// keyGiven is the digest of the key that a request has, "" if it is none of keys. All keys are compared, in constant time.
func keyGiven(r *http.Request, keys []string) string {
	scheme, given, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if given = strings.TrimLeft(given, " "); !strings.EqualFold(scheme, "Bearer") {
		given = r.Header.Get("X-Api-Key")
	}
	sum, found := sha256.Sum256([]byte(given)), 0
	for _, k := range keys {
		want := sha256.Sum256([]byte(k))
		found |= subtle.ConstantTimeCompare(sum[:], want[:])
	}
	if found == 0 {
		return ""
	}
	return hex.EncodeToString(sum[:8])
}

// guardHost refuses names that are none of this machine's loopback: a page of somebody else's must not reach the server by a
// name that it lets point here.
func (g *gateway) guardHost(next http.Handler) http.Handler {
	if g.o.AnyHost {
		return next
	}
	refuse := g.answer(route{label: "other", open: true, fail: writeOpenAIError, serve: func(http.ResponseWriter, *http.Request) error { return errHost }})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback(r.Host) {
			refuse.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopback reports whether a Host header names this machine's loopback.
func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// readBody takes the whole body in, in bodyTimeout.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	_ = c.SetReadDeadline(time.Time{})
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, tooLarge
	}
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		w.Header().Set("Connection", "close")
		return nil, &Error{Status: http.StatusRequestTimeout, Message: "the body did not come in time"}
	}
	if err != nil {
		w.Header().Set("Connection", "close")
		return nil, badRequest("the body is not whole")
	}
	return body, nil
}
