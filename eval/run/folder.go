package run

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"terrace/eval"
)

const (
	optionsFile = "options.json"
	machineFile = "machine.json"
	samplesFile = "samples.jsonl"
	resultsFile = "results.json"
	lockFile    = "lock"
)

// maxLineBytes bounds a line of samples.jsonl.
const maxLineBytes = 64 << 20

// Folder is an open run folder; close it. Not safe for concurrent use.
type Folder struct {
	dir      string
	options  Options
	disk     disk
	lock     *flock.Flock
	samples  records
	size     int64 // bytes of whole lines
	done     map[eval.Key]bool
	outcomes []eval.Outcome
	narrower Narrower
}

// Narrower gives the suite's settings (Options.Settings) with another limit of samples, whose samples are the first of its own.
type Narrower func(limit int) (any, error)

// Open creates or takes up a run. An existing run must have equal options (ErrChanged otherwise); a second process is
// refused (ErrBusy).
func Open(dir string, o Options, m Machine) (*Folder, error) { return OpenWider(dir, o, m, nil) }

// OpenWider is Open, but the run that is there may have fewer policies, and where narrower is not nil a smaller limit: then it
// becomes the wider one, and keeps its outcomes.
func OpenWider(dir string, o Options, m Machine, narrower Narrower) (*Folder, error) {
	return openOn(systemDisk{}, dir, o, m, narrower)
}

// openOn is OpenWider on a disk; the lock is the system's.
func openOn(d disk, dir string, o Options, m Machine, narrower Narrower) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	f := &Folder{disk: d, dir: dir, options: o, done: map[eval.Key]bool{}, narrower: narrower}
	if err := f.acquire(); err != nil {
		return nil, err
	}
	if err := f.begin(m); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// acquire takes the lock and writes the process id into it.
func (f *Folder) acquire() error {
	path := filepath.Join(f.dir, lockFile)
	f.lock = flock.New(path)
	ok, err := f.lock.TryLock()
	if err != nil {
		return fmt.Errorf("run: lock: %w", err)
	}
	if !ok {
		pid, _ := os.ReadFile(path)
		return fmt.Errorf("run: %s: process %s works there: %w", f.dir, orUnknown(string(pid)), ErrBusy)
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, "%d\n", os.Getpid()), 0o644); err != nil {
		return fmt.Errorf("run: lock: %w", err)
	}
	return nil
}

func orUnknown(s string) string {
	if s = strings.TrimSpace(s); s == "" {
		return "unknown"
	}
	return s
}

// begin checks the options and reads the outcomes that are there.
func (f *Folder) begin(m Machine) error {
	want, err := f.options.Encode()
	if err != nil {
		return err
	}
	have, err := f.disk.ReadFile(f.path(optionsFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		if samples, err := f.disk.ReadFile(f.path(samplesFile)); err == nil && len(samples) > 0 {
			return fmt.Errorf("run: %s has samples.jsonl but no options.json: %w", f.dir, ErrFolder)
		}
		machine, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			return fmt.Errorf("run: machine: %w", err)
		}
		if err := f.replace(machineFile, append(machine, '\n')); err != nil {
			return err
		}
		if err := f.replace(optionsFile, want); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("run: %w", err)
	default:
		if err := Compare(have, want); err == nil {
			break
		}
		narrow, err := f.narrowed(have)
		if err == nil {
			err = Compare(have, narrow)
		}
		if err != nil {
			return fmt.Errorf("%w (%s); use another folder", err, f.dir)
		}
		if err := f.replace(optionsFile, want); err != nil {
			return err
		}
	}
	return f.openSamples()
}

// narrowed are the folder's options with what a wider run may have more of taken back to what is there.
func (f *Folder) narrowed(have []byte) ([]byte, error) {
	old, err := decodeOptions(have)
	if err != nil {
		return nil, err
	}
	o := f.options
	if f.narrower == nil {
		return o.Encode()
	}
	if n := len(old.Policies); n <= len(o.Policies) {
		o.Policies = o.Policies[:n]
	}
	was, limited := limitOf(old.Settings)
	now, limits := limitOf(o.Settings)
	if limited && limits && was > 0 && (now == 0 || now > was) {
		if o.Settings, err = f.narrower(was); err != nil {
			return nil, err
		}
	}
	return o.Encode()
}

// limitOf is the limit of samples in a suite's settings; false where they have none.
func limitOf(settings any) (int, bool) {
	m, ok := settings.(map[string]any)
	if !ok {
		return 0, false
	}
	switch n := m["limit"].(type) {
	case int:
		return n, true
	case float64:
		return int(n), true
	}
	return 0, false
}

func decodeOptions(raw []byte) (o Options, err error) {
	if err = json.Unmarshal(raw, &o); err != nil {
		err = fmt.Errorf("run: %s: %w: %w", optionsFile, ErrFolder, err)
	}
	return o, err
}

// Policies are those of the run in a folder, nil where there is none.
func Policies(dir string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, optionsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	o, err := decodeOptions(raw)
	return o.Policies, err
}

// openSamples reads samples.jsonl and cuts off a last line that a kill left unfinished.
func (f *Folder) openSamples() error {
	file, err := f.disk.Records(f.path(samplesFile))
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	f.samples = file
	outcomes, size, err := readSamples(file, f.path(samplesFile))
	if err != nil {
		return err
	}
	if err := onlyOnce(outcomes, f.path(samplesFile)); err != nil {
		return err
	}
	for _, o := range outcomes {
		f.done[o.Key()] = true
	}
	f.outcomes, f.size = outcomes, size
	if err := file.Truncate(size); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	_, err = file.Seek(size, io.SeekStart)
	return err
}

// onlyOnce refuses outcomes of which two are of one sample and policy.
func onlyOnce(outcomes []eval.Outcome, name string) error {
	seen := map[eval.Key]bool{}
	for _, o := range outcomes {
		if seen[o.Key()] {
			return fmt.Errorf("run: %s: %s/%s under %s is there twice: %w", name, o.Task, o.ID, o.Policy, ErrFolder)
		}
		seen[o.Key()] = true
	}
	return nil
}

// readSamples reads whole lines; a last line that is unfinished or not JSON (a torn write) is left out of size.
func readSamples(file io.Reader, name string) (outcomes []eval.Outcome, size int64, err error) {
	in := bufio.NewReaderSize(file, 1<<20)
	var bad error
	for line := 1; ; line++ {
		raw, err := in.ReadBytes('\n')
		if err == io.EOF {
			return outcomes, size, nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("run: %s: %w", name, err)
		}
		if bad != nil {
			return nil, 0, bad // there is more after the bad line: not a torn write
		}
		var o eval.Outcome
		if err := json.Unmarshal(bytes.TrimSpace(raw), &o); err != nil || o.Task == "" || len(raw) > maxLineBytes {
			bad = fmt.Errorf("run: %s, line %d is not an outcome: %w", name, line, ErrFolder)
			continue
		}
		outcomes = append(outcomes, o)
		size += int64(len(raw))
	}
}

func (f *Folder) path(name string) string { return filepath.Join(f.dir, name) }

// replace writes a file in one step.
func (f *Folder) replace(name string, data []byte) error {
	if err := f.disk.Replace(f.path(name), data); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

// Done reports whether an outcome is there.
func (f *Folder) Done(k eval.Key) bool { return f.done[k] }

// Outcomes are those there so far, in the order they were written; the caller must not change them.
func (f *Folder) Outcomes() []eval.Outcome { return f.outcomes }

// Options are the run's.
func (f *Folder) Options() Options { return f.options }

// Append writes one outcome and syncs it. What cannot be written whole is taken back, so that the file stays readable.
func (f *Folder) Append(o eval.Outcome) error {
	if f.done[o.Key()] {
		return fmt.Errorf("run: %s/%s under %s is there already: %w", o.Task, o.ID, o.Policy, ErrFolder)
	}
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	err := e.Encode(&o)
	if err != nil {
		return fmt.Errorf("run: outcome %s/%s: %w", o.Task, o.ID, err)
	}
	raw := line.Bytes()
	if _, err = f.samples.Write(raw); err == nil {
		err = f.samples.Sync()
	}
	if err != nil {
		if terr := f.samples.Truncate(f.size); terr == nil {
			_, _ = f.samples.Seek(f.size, io.SeekStart)
		}
		return fmt.Errorf("run: %s: %w", f.path(samplesFile), err)
	}
	f.size += int64(len(raw))
	f.done[o.Key()] = true
	f.outcomes = append(f.outcomes, o)
	return nil
}

// Close gives the folder back.
func (f *Folder) Close() error {
	var err error
	if f.samples != nil {
		err = f.samples.Close()
	}
	if uerr := f.lock.Unlock(); err == nil {
		err = uerr
	}
	return err
}
