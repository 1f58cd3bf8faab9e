package contexts

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "terrace/kvmanager/values/remote"
)

// fakeValues is what a fake server keeps, and how it misbehaves.
type fakeValues struct {
	mu     sync.Mutex
	m      map[string][]byte
	at     map[string]time.Time
	delay  time.Duration // of every answer
	hang   bool          // nothing is answered any more
	refuse bool          // writes are answered with an error
	end    chan struct{} // closed when the test is over
}

func newValues(t testing.TB) *fakeValues {
	v := &fakeValues{m: map[string][]byte{}, at: map[string]time.Time{}, end: make(chan struct{})}
	t.Cleanup(func() { close(v.end) })
	return v
}

// set changes how the server behaves.
func (v *fakeValues) set(change func(*fakeValues)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(v)
}

// tamper changes every record that is kept.
func (v *fakeValues) tamper(change func([]byte) []byte) (n int) {
	v.set(func(v *fakeValues) {
		for k, b := range v.m {
			v.m[k] = change(slices.Clone(b))
			n++
		}
	})
	return n
}

// held is how many bytes of records are kept.
func (v *fakeValues) held() (n int64) {
	v.set(func(v *fakeValues) {
		for _, b := range v.m {
			n += int64(len(b))
		}
	})
	return n
}

// ready waits as long as the server takes to answer; false: it never does.
func (v *fakeValues) ready() bool {
	v.mu.Lock()
	delay, hang := v.delay, v.hang
	v.mu.Unlock()
	if hang {
		<-v.end
		return false
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-v.end:
			return false
		}
	}
	return true
}

// server is a fake valkey or s3.
type server struct {
	*fakeValues
	spec func(capacity int64) Spec
	stop func()
}

// fakeValkey speaks as much of RESP3 as the tier uses.
func fakeValkey(t testing.TB) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := newValues(t)
	f := &valkeyFake{fakeValues: v, used: map[string]float64{}}
	var open sync.Map
	stop := func() {
		l.Close()
		open.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
	}
	t.Cleanup(stop)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(c, true)
			go f.talk(c)
		}
	}()
	return &server{v, func(capacity int64) Spec {
		return Spec{Kind: "valkey", Place: l.Addr().String(), CapacityBytes: capacity}
	}, stop}
}

type valkeyFake struct {
	*fakeValues
	used map[string]float64 // the sorted set
}

// talk answers one connection's commands, in order.
func (f *valkeyFake) talk(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		args, err := readCommand(in)
		if err != nil || !f.ready() {
			return
		}
		if _, err := c.Write(f.answer(args)); err != nil {
			return
		}
	}
}

// readCommand reads an array of bulk strings.
func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readCount(in, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := readCount(in, '$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return nil, err
		}
		args[i] = string(b[:size])
	}
	return args, nil
}

func readCount(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("%q, want %c", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

func bulk(b []byte) []byte { return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(b), b) }

func (f *valkeyFake) answer(args []string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	number := func(n int) []byte { return fmt.Appendf(nil, ":%d\r\n", n) }
	switch cmd := strings.ToUpper(args[0]); cmd {
	case "HELLO":
		return []byte("%3\r\n+server\r\n+redis\r\n+version\r\n+7.4.0\r\n+proto\r\n:3\r\n")
	case "CLIENT", "AUTH", "SELECT":
		return []byte("+OK\r\n")
	case "PING":
		return []byte("+PONG\r\n")
	case "GET", "GETRANGE":
		b, ok := f.m[args[1]]
		if !ok {
			return []byte("_\r\n")
		}
		if cmd == "GETRANGE" {
			end, _ := strconv.Atoi(args[3])
			b = b[:min(len(b), end+1)]
		}
		return bulk(b)
	case "SET":
		if f.refuse {
			return []byte("-OOM command not allowed when used memory > 'maxmemory'.\r\n")
		}
		f.m[args[1]], f.at[args[1]] = []byte(args[2]), time.Now()
		return []byte("+OK\r\n")
	case "EXISTS":
		_, ok := f.m[args[1]]
		if ok {
			return number(1)
		}
		return number(0)
	case "UNLINK":
		delete(f.m, args[1])
		return number(1)
	case "ZADD":
		pairs, only := args[2:], false
		if strings.EqualFold(pairs[0], "XX") {
			pairs, only = pairs[1:], true
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			if _, there := f.used[pairs[i+1]]; there || !only {
				f.used[pairs[i+1]], _ = strconv.ParseFloat(pairs[i], 64)
			}
		}
		return number(0)
	case "ZREM":
		delete(f.used, args[2])
		return number(1)
	case "ZRANGE":
		out := fmt.Appendf(nil, "*%d\r\n", len(f.used))
		for _, m := range slices.SortedFunc(maps.Keys(f.used), func(a, b string) int { return int(f.used[a] - f.used[b]) }) {
			out = append(append(append(out, "*2\r\n"...), bulk([]byte(m))...), fmt.Appendf(nil, ",%g\r\n", f.used[m])...)
		}
		return out
	}
	return []byte("-ERR unknown command " + args[0] + "\r\n")
}

// fakeS3 has one bucket.
func fakeS3(t testing.TB) *server {
	t.Helper()
	v := newValues(t)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !v.ready() {
			panic(http.ErrAbortHandler)
		}
		v.serveS3(w, r, body)
	}))
	stop := func() { h.CloseClientConnections(); h.Listener.Close() }
	t.Cleanup(stop)
	return &server{v, func(capacity int64) Spec {
		return Spec{Kind: "s3", Place: h.URL + "/bucket", CapacityBytes: capacity}
	}, stop}
}

func (v *fakeValues) serveS3(w http.ResponseWriter, r *http.Request, body []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	name, object := strings.CutPrefix(r.URL.Path, "/bucket/")
	switch {
	case !object || name == "":
		if r.Method == http.MethodGet {
			type content struct {
				Key, ETag    string
				LastModified time.Time
				Size         int
			}
			var list struct {
				XMLName     xml.Name `xml:"ListBucketResult"`
				IsTruncated bool
				Contents    []content
			}
			for _, k := range slices.Sorted(maps.Keys(v.m)) {
				if strings.HasPrefix(k, r.URL.Query().Get("prefix")) {
					list.Contents = append(list.Contents, content{k, `"e"`, v.at[k].UTC(), len(v.m[k])})
				}
			}
			_ = xml.NewEncoder(w).Encode(list)
		}
	case r.Method == http.MethodPut && v.refuse:
		s3Error(w, http.StatusInsufficientStorage, "XMinioStorageFull")
	case r.Method == http.MethodPut:
		if r.Header.Get("X-Amz-Decoded-Content-Length") != "" {
			body = unchunked(body)
		}
		v.m[name], v.at[name] = body, time.Now()
		w.Header().Set("ETag", `"e"`)
	case r.Method == http.MethodDelete:
		delete(v.m, name)
		w.WriteHeader(http.StatusNoContent)
	case v.m[name] == nil:
		s3Error(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("ETag", `"e"`)
		http.ServeContent(w, r, name, v.at[name], bytes.NewReader(v.m[name]))
	}
}

func s3Error(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants it</Message></Error>", code)
}

// unchunked takes a body out of aws-chunked framing: SIZE;signature, bytes, and so on, up to a chunk of none.
func unchunked(b []byte) (out []byte) {
	for {
		line, rest, _ := bytes.Cut(b, []byte("\r\n"))
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseInt(string(size), 16, 64)
		if err != nil || n == 0 || int(n)+2 > len(rest) {
			return out
		}
		out, b = append(out, rest[:n]...), rest[n+2:]
	}
}
