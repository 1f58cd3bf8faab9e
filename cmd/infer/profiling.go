package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"

	"github.com/spf13/pflag"
)

// profiling writes Go profiles of one command (--cpu-profile, --memory-profile).
type profiling struct {
	cpuFile, memFile string
	cpu              *profileFile
}

func (p *profiling) addFlags(f *pflag.FlagSet) {
	f.StringVar(&p.cpuFile, "cpu-profile", "", "write a CPU profile (go tool pprof)")
	f.StringVar(&p.memFile, "memory-profile", "", "write a heap profile at the end")
}

func (p *profiling) start() error {
	if p.cpuFile == "" {
		return nil
	}
	f, err := os.Create(p.cpuFile)
	if err != nil {
		return fmt.Errorf("cpu profile: %w", err)
	}
	p.cpu = &profileFile{File: f}
	return pprof.StartCPUProfile(p.cpu)
}

// profileFile remembers a write that failed: pprof does not say.
type profileFile struct {
	*os.File
	failed error
}

func (f *profileFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	if f.failed == nil {
		f.failed = err
	}
	return n, err
}

// close reports the first failure, and removes a file that is not whole.
func (f *profileFile) close(err error) error {
	if err = cmp.Or(f.failed, err); err != nil {
		f.File.Close()
	} else {
		err = f.File.Close()
	}
	if err != nil {
		removeRegular(f.Name())
	}
	return err
}

func (p *profiling) stop() error {
	if p.cpu != nil {
		pprof.StopCPUProfile()
		if err := p.cpu.close(nil); err != nil {
			return fmt.Errorf("cpu profile: %w", err)
		}
	}
	if p.memFile == "" {
		return nil
	}
	f, err := os.Create(p.memFile)
	if err != nil {
		return fmt.Errorf("memory profile: %w", err)
	}
	runtime.GC()
	out := &profileFile{File: f}
	if err := out.close(pprof.WriteHeapProfile(out)); err != nil {
		return fmt.Errorf("memory profile: %w", err)
	}
	return nil
}

// remove takes back the profiles of a command that was refused.
func (p *profiling) remove() {
	if p.cpu != nil {
		removeRegular(p.cpuFile)
	}
	if p.memFile != "" {
		removeRegular(p.memFile)
	}
}

// removeRegular removes a file, and no device.
func removeRegular(path string) {
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
		os.Remove(path)
	}
}
