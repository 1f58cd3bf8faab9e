package storage

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"terrace/internal/vfs"
)

// TestScripts runs the scripts in testdata on files in memory whose operations fail as the script says. go test ./internal/storage -run
// TestScripts -rewrite writes the answers.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{t: t}
		datadriven.RunTest(t, path, s.run)
	})
}

// script is a folder d and who uses it.
type script struct {
	t       *testing.T
	mem     *vfs.Mem
	faults  *vfs.Faults
	folder  *Folder
	records *Records
	locks   map[string]io.Closer
	log     strings.Builder
}

// letter says that names are one letter.
func letter(name string) bool { return len(name) == 1 && name >= "a" && name <= "z" }

var (
	faultKinds = map[string]vfs.FaultKind{"EIO": vfs.EIO, "full": vfs.ENOSPC, "short": vfs.Short, "flip": vfs.Flip, "lose": vfs.Lose, "torn": vfs.Torn, "off": vfs.PowerOff}
	faultOps   = map[string]vfs.OpKind{"open": vfs.OpOpen, "read": vfs.OpRead, "write": vfs.OpWrite, "sync": vfs.OpSync, "rename": vfs.OpRename, "preallocate": vfs.OpPreallocate,
		"remove": vfs.OpRemove, "lock": vfs.OpLock, "mkdir": vfs.OpMkdir}
)

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	s.log.Reset()
	err := s.do(d)
	if err != nil {
		fmt.Fprintln(&s.log, err)
	} else if s.log.Len() == 0 {
		s.log.WriteString("ok\n")
	}
	return s.log.String()
}

func (s *script) do(d *datadriven.TestData) error {
	switch d.Cmd {
	case "folder":
		return s.open(d)
	case "fault":
		*s.faults = vfs.Faults{Seed: 1, Nth: s.number(d, "nth", 1), Times: s.number(d, "times", 1), Kind: faultKinds[s.word(d, "kind")], Of: []vfs.OpKind{faultOps[s.word(d, "of")]}}
	case "crash":
		s.mem.Crash()
		*s.faults = vfs.Faults{}
		s.records.Forget()
	case "put", "get", "part", "scan", "touch", "remove", "recover", "size":
		return s.record(d)
	case "lock", "unlock":
		return s.lock(d)
	case "header", "check", "claim", "reserve":
		return s.file(d)
	case "write", "cut":
		f, err := s.mem.OpenFile(filepath.Join("d", s.word(d, "file")), vfs.OpenOptions{Create: d.Cmd == "write"})
		if err != nil {
			return err
		}
		if d.Cmd == "cut" {
			return f.Truncate(s.number(d, "bytes", 0))
		}
		_, err = f.WriteAt(bytes.Repeat([]byte(s.word(d, "text")), int(s.number(d, "times", 1))), s.number(d, "at", 0))
		return err
	case "files":
		list, err := s.mem.List("d")
		for _, x := range list {
			fmt.Fprintf(&s.log, "%s %d\n", x.Name, x.Bytes)
		}
		return err
	default:
		d.Fatalf(s.t, "no command %s", d.Cmd)
	}
	return nil
}

func (s *script) open(d *datadriven.TestData) (err error) {
	if s.mem == nil || d.HasArg("new") {
		s.mem = vfs.NewCrashMem(s.number(d, "disk", 1<<20), uint64(s.number(d, "seed", 1)))
		s.locks = map[string]io.Closer{}
	}
	s.faults = &vfs.Faults{}
	if s.word(d, "of") != "" {
		*s.faults = vfs.Faults{Of: []vfs.OpKind{faultOps[s.word(d, "of")]}, Nth: 1, Kind: vfs.EIO}
	}
	s.folder, err = OpenFolder("d", Options{FS: &vfs.Faulty{FS: s.mem, Faults: s.faults}, ReadOnly: d.HasArg("readonly"), Buffered: d.HasArg("buffered")})
	if err != nil {
		return err
	}
	s.records = NewRecords(s.folder, 2, 1<<16, letter)
	return nil
}

func (s *script) record(d *datadriven.TestData) error {
	names := strings.Fields(s.word(d, "names"))
	switch d.Cmd {
	case "put":
		var values []Value
		for i, name := range names {
			values = append(values, Value{name, bytes.Repeat([]byte(name), int(s.number(d, "bytes", 8192))), time.Unix(s.number(d, "used", 1)-int64(i), 0)})
		}
		n, err := s.records.Put(values)
		fmt.Fprintf(&s.log, "%d of %d\n", n, len(values))
		return err
	case "get":
		b, err := s.records.Get(names[0], s.number(d, "most", 0))
		s.show(b)
		return err
	case "part":
		dst := make([]byte, s.number(d, "bytes", 4096))
		n, err := s.records.ReadPart(names[0], dst, s.number(d, "off", 0))
		s.show(dst[:n])
		fmt.Fprintf(&s.log, "%d open\n", len(s.records.old))
		return err
	case "size":
		n, err := s.records.Size(names[0])
		fmt.Fprintf(&s.log, "%d\n", n)
		return err
	case "touch":
		s.records.Touch(names[0], time.Unix(s.number(d, "used", 1), 0))
		return nil
	case "remove":
		return s.records.Remove(names...)
	}
	records, foreign, unfinished, err := s.records.Scan()
	if d.Cmd == "recover" {
		var names []string
		for _, x := range unfinished {
			names = append(names, x.Name)
		}
		return s.records.RemoveFiles(names)
	}
	for i, list := range [][]vfs.Info{records, foreign, unfinished} {
		for _, x := range list {
			fmt.Fprintf(&s.log, "%s %s %d", []string{"record", "foreign", "unfinished"}[i], x.Name, x.Bytes)
			if i == 0 {
				fmt.Fprintf(&s.log, " used %d", x.Modified.Unix())
			}
			s.log.WriteString("\n")
		}
	}
	return err
}

// show says what bytes are: runs of one byte.
func (s *script) show(b []byte) {
	for len(b) > 0 {
		n := 1
		for n < len(b) && b[n] == b[0] {
			n++
		}
		fmt.Fprintf(&s.log, "%q×%d ", b[0], n)
		b = b[n:]
	}
	if s.log.Len() > 0 {
		s.log.WriteString("\n")
	}
}

func (s *script) lock(d *datadriven.TestData) error {
	who := s.word(d, "who")
	if d.Cmd == "unlock" {
		return s.locks[who].Close()
	}
	l, err := s.folder.Lock(s.t.Context(), "lock", time.Duration(s.number(d, "wait_ms", 0))*time.Millisecond)
	s.locks[who] = l
	return err
}

func (s *script) file(d *datadriven.TestData) error {
	name := s.word(d, "file")
	if d.Cmd == "claim" {
		return s.folder.Claim(name, "TERRACEKV")
	}
	f, err := s.folder.Open(name, vfs.OpenOptions{Create: true})
	if err != nil {
		return err
	}
	defer f.Close()
	switch d.Cmd {
	case "reserve":
		return s.folder.Reserve(f, name, s.number(d, "bytes", 0))
	case "header":
		return WriteHeader(f, "TERRACEKV", uint32(s.number(d, "version", 1)), []byte(s.word(d, "body")))
	}
	b := make([]byte, PageBytes)
	n, _ := f.ReadAt(b, 0)
	body, err := CheckHeader(b[:n], "TERRACEKV", uint32(s.number(d, "version", 1)), int(s.number(d, "bytes", 4)))
	fmt.Fprintf(&s.log, "%q; %s\n", body, s.folder.Notice())
	return err
}

// number is an argument, or another where it is not given.
func (s *script) number(d *datadriven.TestData, key string, otherwise int64) int64 {
	if d.HasArg(key) {
		d.ScanArgs(s.t, key, &otherwise)
	}
	return otherwise
}

func (s *script) word(d *datadriven.TestData, key string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return strings.Join(a.Vals, " ")
		}
	}
	return ""
}

// TestAttempts: what may pass is tried twice, what stays is not.
func TestAttempts(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 1}, {syscall.EIO, 2}, {ErrCorrupt, 2}, {io.ErrUnexpectedEOF, 2}, {fmt.Errorf("x: %w", ErrFull), 1}, {ErrMissing, 1}, {ErrShape, 1}, {ErrInUse, 1}, {ErrReadOnly, 1},
	} {
		made := 0
		err := tried(func() error { made++; return c.err })
		if got := Attempts(c.err); got != c.want || made != c.want || err != c.err {
			t.Errorf("%v: %d attempts, %d made, want %d", c.err, got, made, c.want)
		}
	}
	made := 0
	if err := tried(func() error {
		if made++; made == 1 {
			return syscall.EIO
		}
		return nil
	}); err != nil || made != 2 {
		t.Errorf("EIO, then nothing: %v after %d", err, made)
	}
}

// TestAligned: memory for direct I/O, of any size.
func TestAligned(t *testing.T) {
	for _, n := range []int{0, 1, 100, PageBytes, 3*PageBytes + 5} {
		b := Aligned(n)
		if len(b) != n || cap(b) != n || n > 0 && !vfs.Aligned(b[:n/PageBytes*PageBytes], PageBytes) {
			t.Errorf("%d bytes: %d of %d", n, len(b), cap(b))
		}
	}
	for _, c := range [][3]int{{0, 4096, 0}, {1, 4096, 4096}, {4096, 4096, 4096}, {4097, 512, 4608}} {
		if got := RoundUp(c[0], c[1]); got != c[2] {
			t.Errorf("%d to %d: %d", c[0], c[1], got)
		}
	}
}

// TestStaging: pieces come back for the next, are counted, and go when nobody uses them.
func TestStaging(t *testing.T) {
	s := NewStaging(0, 16<<10, 64<<10)
	small, huge := s.Take(10)
	large, _ := s.Take(20 << 10)
	giant, _ := s.Take(1 << 20)
	if huge || len(small) != 16<<10 || len(large) != 64<<10 || len(giant) < 1<<20 || s.Bytes() != 80<<10 {
		t.Fatalf("%d, %d, %d bytes, %d in all", len(small), len(large), len(giant), s.Bytes())
	}
	s.Trim(0)
	if s.Bytes() != 80<<10 {
		t.Errorf("what is in use was freed: %d bytes are left", s.Bytes())
	}
	s.Give(giant, false)
	s.Give(small, false)
	s.Give(large, false)
	if again, _ := s.Take(16 << 10); &again[0] != &small[0] {
		t.Error("a piece that was given back is not taken again")
	} else {
		s.Give(again, false)
	}
	if s.Trim(16 << 10); s.Bytes() != 16<<10 {
		t.Errorf("%d bytes are left of those up to 16 KiB", s.Bytes())
	}
	if s.Trim(0); s.Bytes() != 0 {
		t.Errorf("%d bytes are left", s.Bytes())
	}
}

// TestHugeStaging: pieces of one huge page, then others; the page goes when all of it is back.
func TestHugeStaging(t *testing.T) {
	const size = 512 << 10
	s := NewStaging(size, size)
	var pieces [][]byte
	for range hugePageBytes / size {
		b, huge := s.Take(100)
		if !huge {
			t.Skip("no huge page here: pieces come one by one")
		}
		pieces = append(pieces, b)
	}
	more, huge := s.Take(100)
	if huge || s.Bytes() != hugePageBytes+size {
		t.Errorf("a fifth quarter of a huge page: %v, %d bytes", huge, s.Bytes())
	}
	for i, b := range pieces {
		for j := range pieces[:i] {
			if &b[0] == &pieces[j][0] {
				t.Error("two have one piece")
			}
		}
	}
	s.Give(more, false)
	s.Give(pieces[0][:100], true)
	if s.Trim(0); s.Bytes() != hugePageBytes {
		t.Errorf("%d bytes are left while pieces are in use", s.Bytes())
	}
	for _, b := range pieces[1:] {
		s.Give(b, true)
	}
	if s.Trim(0); s.Bytes() != 0 {
		t.Errorf("%d bytes are left", s.Bytes())
	}
}

// TestOnDisk: the system's files, with several folders' users at once; records stay readable while others are put.
func TestOnDisk(t *testing.T) {
	dir := t.TempDir()
	f, err := OpenFolder(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := NewRecords(f, 2, 1<<20, letter)
	value := func(name string) Value { return Value{name, bytes.Repeat([]byte(name), 3*PageBytes), time.Now()} }
	if n, err := r.Put([]Value{value("a"), value("b")}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	done := make(chan error, 4)
	for _, name := range []string{"c", "d", "e"} {
		go func() {
			l, err := f.Lock(t.Context(), "lock", 10*time.Second)
			if err == nil {
				_, err = r.Put([]Value{value(name)})
				err = errorsOf(err, l.Close())
			}
			done <- err
		}()
	}
	go func() {
		for range 200 {
			for off := int64(0); off < 3*PageBytes; off += PageBytes {
				dst := Aligned(PageBytes)
				if n, err := r.ReadPart("a", dst, off); err != nil || n != PageBytes || dst[0] != 'a' {
					done <- fmt.Errorf("%d bytes, %w", n, err)
					return
				}
			}
		}
		done <- nil
	}()
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	again, err := OpenFolder(dir, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	r = NewRecords(again, 2, 1<<20, letter)
	list, _, _, err := r.Scan()
	var names []string
	for _, x := range list {
		b, err := r.Get(x.Name, 0)
		if err != nil || !bytes.Equal(b, value(x.Name).Bytes) {
			t.Errorf("%s: %d bytes, %v", x.Name, len(b), err)
		}
		names = append(names, x.Name)
	}
	if err != nil || !slices.Equal(names, []string{"a", "b", "c", "d", "e"}) {
		t.Errorf("%v, %v", names, err)
	}
	if err := r.Remove("a", "x"); err != nil {
		t.Error(err)
	}
	if _, err := r.Get("a", 0); Attempts(err) != 1 {
		t.Errorf("removed: %v", err)
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
