package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"

	"github.com/spf13/pflag"
)

// profiling writes Go profiles of one command (--cpu-profile, --memory-profile).
type profiling struct {
	cpuFile, memFile string
	cpu              *os.File
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
	p.cpu = f
	return pprof.StartCPUProfile(f)
}

func (p *profiling) stop() error {
	if p.cpu != nil {
		pprof.StopCPUProfile()
		if err := p.cpu.Close(); err != nil {
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
	defer f.Close()
	runtime.GC()
	return pprof.WriteHeapProfile(f)
}
