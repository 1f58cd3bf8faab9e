// Package hardware has the profiles of the drives that csdshim mimics: rates, times and sizes.
package hardware

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"terrace/csdshim/flash"
	"terrace/csdshim/nand"
)

// ErrProfile: a profile that is missing or says nonsense.
var ErrProfile = errors.New("bad profile")

// Profile is the hardware that a drive mimics. A rate of 0 is not limited, a time of 0 is none.
type Profile struct {
	Name   string        `toml:"name"`
	Link   LinkProfile   `toml:"link"`
	NAND   NANDProfile   `toml:"nand"`
	DRAM   DRAMProfile   `toml:"dram"`
	Engine EngineProfile `toml:"engine"`
}

// LinkProfile is the way between drive and host.
type LinkProfile struct {
	ToHostBytesPerS  float64 `toml:"to_host_bytes_per_s"`
	ToDriveBytesPerS float64 `toml:"to_drive_bytes_per_s"`
	LatencyUs        float64 `toml:"latency_us"` // of a message, each way
}

// NANDProfile is the flash.
type NANDProfile struct {
	Channels         int     `toml:"channels"`
	Dies             int     `toml:"dies"`   // a channel
	Planes           int     `toml:"planes"` // a die
	PageBytes        int     `toml:"page_bytes"`
	BlockPages       int     `toml:"block_pages"`
	ChannelBytesPerS float64 `toml:"channel_bytes_per_s"`
	ReadUs           float64 `toml:"read_us"`    // of a page, before its bytes cross the channel
	ProgramUs        float64 `toml:"program_us"` // of a page
	EraseUs          float64 `toml:"erase_us"`   // of a block
	BusBytesPerS     float64 `toml:"bus_bytes_per_s"`
	SparePercent     int     `toml:"spare_percent"`
	CacheRead        bool    `toml:"cache_read"` // a die senses on while its former pages cross; false where the file is silent
}

// DRAMProfile is the drive's own memory, which holds key codes.
type DRAMProfile struct {
	Bytes     float64 `toml:"bytes"`
	BytesPerS float64 `toml:"bytes_per_s"`
}

// EngineProfile is what scores.
type EngineProfile struct {
	None          bool    `toml:"none"` // the drive cannot score
	ScanBytesPerS float64 `toml:"scan_bytes_per_s"`
	CommandUs     float64 `toml:"command_us"` // firmware time of every command

	// Of the attention engine; a profile may leave them out.
	ArgTopKPerS     float64 `toml:"argtopk_per_s"`      // numbers a second that the argtopk unit takes
	FilterBytesPerS float64 `toml:"filter_bytes_per_s"` // of each channel's filter
	Kernels         int     `toml:"kernels"`            // attention kernels; 0 = 2, as in the paper
	KernelBytesPerS float64 `toml:"kernel_bytes_per_s"` // of keys and values, of each of them
}

// Validate reports every number out of range.
func (p Profile) Validate() error {
	var errs []error
	for name, v := range map[string]float64{
		"link.to_host_bytes_per_s": p.Link.ToHostBytesPerS, "link.to_drive_bytes_per_s": p.Link.ToDriveBytesPerS, "link.latency_us": p.Link.LatencyUs,
		"nand.channel_bytes_per_s": p.NAND.ChannelBytesPerS, "nand.read_us": p.NAND.ReadUs, "nand.program_us": p.NAND.ProgramUs,
		"nand.erase_us": p.NAND.EraseUs, "nand.bus_bytes_per_s": p.NAND.BusBytesPerS, "dram.bytes": p.DRAM.Bytes, "dram.bytes_per_s": p.DRAM.BytesPerS,
		"engine.scan_bytes_per_s": p.Engine.ScanBytesPerS, "engine.command_us": p.Engine.CommandUs,
		"engine.argtopk_per_s": p.Engine.ArgTopKPerS, "engine.filter_bytes_per_s": p.Engine.FilterBytesPerS, "engine.kernel_bytes_per_s": p.Engine.KernelBytesPerS,
	} {
		least, most := 1.0, 1e18
		if name == "dram.bytes" { // a size; a modelled drive in miniature may have less than a byte
			least = 0
		}
		switch {
		case strings.HasSuffix(name, "_us"): // up to a quarter of an hour
			if most = 1e9; !(v >= 0) || v > most {
				errs = append(errs, fmt.Errorf("%s is %v, want 0 to %g", name, v, most))
			}
		case v != 0 && !(v >= least) || v > most: // slower than a byte a second nothing is
			errs = append(errs, fmt.Errorf("%s is %v, want 0 (no limit), or %g to %g", name, v, least, most))
		}
	}
	if p.Engine.Kernels < 0 || p.Engine.Kernels > 64 {
		errs = append(errs, fmt.Errorf("engine.kernels is %d, want 0 to 64", p.Engine.Kernels))
	}
	g := p.Geometry(1 << 30)
	errs = append(errs, g.Validate())
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return errors.Join(errs...)
}

// Geometry is that of a drive of this profile with so many bytes.
func (p Profile) Geometry(capacityBytes int64) flash.Geometry {
	return flash.Geometry{Channels: p.NAND.Channels, Dies: p.NAND.Dies, Planes: p.NAND.Planes, PageBytes: p.NAND.PageBytes,
		BlockPages: p.NAND.BlockPages, CapacityBytes: capacityBytes, SparePercent: p.NAND.SparePercent}
}

// CheckCapacity reports a capacity that no drive of this profile can have: less than a page, or more than it can number.
func (p Profile) CheckCapacity(capacityBytes int64) error {
	return p.Geometry(capacityBytes).Validate()
}

// FlashTiming is the flash as package nand takes it.
func (p Profile) FlashTiming() nand.Timing {
	n := p.NAND
	return nand.Timing{Channels: n.Channels, Dies: n.Dies, Planes: n.Planes, Sense: Micros(n.ReadUs), Program: Micros(n.ProgramUs),
		Erase: Micros(n.EraseUs), Cross: Crossing(n.PageBytes, n.ChannelBytesPerS), CacheRead: n.CacheRead}
}

// NANDBytesPerS is what the flash delivers at most: its channels together, or the bus behind them; 0 = not limited.
func (p Profile) NANDBytesPerS() float64 {
	all := float64(p.NAND.Channels) * p.NAND.ChannelBytesPerS
	if all == 0 || p.NAND.BusBytesPerS > 0 && p.NAND.BusBytesPerS < all {
		return p.NAND.BusBytesPerS
	}
	return all
}

// ScanBytesPerS is how fast codes are scored from the DRAM; 0 = not limited.
func (p Profile) ScanBytesPerS() float64 {
	if p.Engine.ScanBytesPerS == 0 || p.DRAM.BytesPerS > 0 && p.DRAM.BytesPerS < p.Engine.ScanBytesPerS {
		return p.DRAM.BytesPerS
	}
	return p.Engine.ScanBytesPerS
}

// Micros is a time of a profile.
func Micros(us float64) time.Duration { return time.Duration(math.Round(us * 1e3)) }

// Crossing is how long n bytes take at a rate; none where it is not limited.
func Crossing(n int, bytesPerS float64) time.Duration {
	if bytesPerS == 0 {
		return 0
	}
	return time.Duration(math.Round(float64(n) / bytesPerS * 1e9))
}
