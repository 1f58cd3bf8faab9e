package vulkan

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// cpu is Mesa's driver for the CPU, or whatever else computes there.
func cpu(t *testing.T) *Physical {
	t.Helper()
	i, err := Open()
	if err == nil {
		t.Cleanup(i.Close)
		var list []*Physical
		if list, err = i.Devices(); err == nil {
			for _, p := range list {
				if p.Kind == CPU {
					return p
				}
			}
			err = ErrNoDevice
		}
	}
	if strings.Contains(os.Getenv("TERRACE_TEST_VULKAN"), "cpu") {
		t.Fatal(err)
	}
	t.Skipf("no Vulkan driver for the CPU: %v", err)
	return nil
}

// TestResults: a call's result decides the sentinel; what succeeded is no error.
func TestResults(t *testing.T) {
	for code, want := range map[int32]error{-1: ErrMemory, -2: ErrMemory, -10: ErrMemory, -1000069000: ErrMemory, -4: ErrLost} {
		if err := failed("vkCall", uintptr(uint32(code))); !errors.Is(err, want) || !strings.Contains(err.Error(), "vkCall") {
			t.Errorf("result %d: %v, want %v", code, err, want)
		}
	}
	if err := failed("vkCall", uintptr(uint32(0xfffffff7))); err == nil || errors.Is(err, ErrMemory) || errors.Is(err, ErrLost) {
		t.Errorf("incompatible driver: %v", err)
	}
	if err := failed("vkCall", uintptr(incomplete)); err != nil {
		t.Error(err)
	}
}

// TestLost: after a call has said that the device is lost nothing is recorded or submitted any more.
func TestLost(t *testing.T) {
	d := &Device{Info: Info{Name: "test", GroupsAcross: 1}}
	if err := d.check("vkQueueSubmit", 0); err != nil || d.lost != nil {
		t.Fatal(err)
	}
	if err := d.check("vkQueueSubmit", uintptr(0xfffffffc)); !errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"dispatch": d.Dispatch(&Kernel{}, nil, 1, 1, 1), "barrier": d.Barrier(), "submit": d.Submit(),
		"copy": d.Copy(&Memory{Size: 8}, 0, &Memory{Size: 8}, 0, 8)} {
		if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "test") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLoaderMissing: a loader that is not there is ErrLoader, saying what to install; a build without the tag is ErrNotBuilt.
func TestLoaderMissing(t *testing.T) {
	_, err := open([]string{"libno-such-loader.so.1"})
	if loaders == nil {
		if !errors.Is(err, ErrNotBuilt) {
			t.Error(err)
		}
		return
	}
	if !errors.Is(err, ErrLoader) || !strings.Contains(err.Error(), "install") {
		t.Error(err)
	}
}

// TestLacks names what a device does not have.
func TestLacks(t *testing.T) {
	good := Physical{version: apiVersion, Info: Info{BufferAddress: true, SubgroupSums: true, PushBytes: 128, Invocations: 256, SharedBytes: 16 << 10}}
	if what := good.lacks(); what != "" {
		t.Error(what)
	}
	for want, change := range map[string]func(*Physical){"Vulkan 1.2": func(p *Physical) { p.version-- }, "addresses": func(p *Physical) { p.BufferAddress = false },
		"sums": func(p *Physical) { p.SubgroupSums = false }, "work groups": func(p *Physical) { p.SharedBytes-- }} {
		p := good
		if change(&p); !strings.Contains(p.lacks(), want) {
			t.Errorf("%q, want %s", p.lacks(), want)
		}
		if _, err := p.Open(); !errors.Is(err, ErrNoDevice) {
			t.Error(err)
		}
	}
}

// TestTransfers copies bytes to the device and back, and asks for more than there is.
func TestTransfers(t *testing.T) {
	p := cpu(t)
	if p.Name == "" || p.MemoryBytes < 1 || p.SubgroupSize < 1 || !strings.HasPrefix(p.API, "1.") {
		t.Errorf("%+v", p.Info)
	}
	d, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	up, err := d.Staging(64)
	if err != nil {
		t.Fatal(err)
	}
	on, err := d.Allocate(256)
	if err != nil {
		t.Fatal(err)
	}
	copy(up.Bytes, "from here to there")
	for _, err := range []error{d.Copy(on, 100, up, 0, 18), d.Barrier(), d.Copy(up, 32, on, 105, 13), d.Submit()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := string(up.Bytes[32:45]); got != "here to there" {
		t.Errorf("%q", got)
	}
	if err := d.Copy(on, 250, up, 0, 18); err == nil {
		t.Error("a copy past the end was recorded")
	}
	if _, err := d.Allocate(1 << 50); !errors.Is(err, ErrMemory) {
		t.Errorf("a petabyte: %v", err)
	}
	if _, err := d.Kernel("text", []byte("this is not SPIR-V, not at all..")); err == nil {
		t.Error("text was taken for a kernel")
	}
	if err := d.Dispatch(&Kernel{name: "none"}, make([]byte, MaxPush+4), 1, 1, 1); err == nil {
		t.Error("too many push constants were taken")
	}
}
