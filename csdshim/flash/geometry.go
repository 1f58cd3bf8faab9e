package flash

import "fmt"

// Geometry is the flash: pages of PageBytes in erase blocks of BlockPages; block b is on channel b mod Channels,
// die b/Channels mod Dies, plane b/(Channels·Dies) mod Planes.
type Geometry struct {
	Channels   int `toml:"channels"`
	Dies       int `toml:"dies"`   // a channel
	Planes     int `toml:"planes"` // a die
	PageBytes  int `toml:"page_bytes"`
	BlockPages int `toml:"block_pages"`
	// CapacityBytes is what groups may take, in whole pages; more blocks than that exist, for collecting garbage.
	CapacityBytes int64 `toml:"capacity_bytes"`
	// SparePercent of the capacity, at least two blocks a channel, lie beside it.
	SparePercent int `toml:"spare_percent"`
}

// Validate reports the first number out of range, wrapping ErrGeometry.
func (g Geometry) Validate() error {
	check := func(name string, v, lo, hi int) error {
		if v < lo || v > hi {
			return fmt.Errorf("csdshim: flash: %s %d, want %d to %d: %w", name, v, lo, hi, ErrGeometry)
		}
		return nil
	}
	for _, err := range []error{
		check("channels", g.Channels, 1, 64), check("dies a channel", g.Dies, 1, 64), check("planes a die", g.Planes, 1, 8),
		check("page bytes", g.PageBytes, 512, 64<<10), check("pages a block", g.BlockPages, 4, 4096),
		check("spare percent", g.SparePercent, 0, 100),
	} {
		if err != nil {
			return err
		}
	}
	if g.PageBytes&(g.PageBytes-1) != 0 {
		return fmt.Errorf("csdshim: flash: page bytes %d, want a power of two: %w", g.PageBytes, ErrGeometry)
	}
	if g.CapacityBytes < int64(g.PageBytes) || g.CapacityBytes > 1<<43 || int64(g.blocks())*int64(g.BlockPages) >= 1<<31 {
		return fmt.Errorf("csdshim: flash: capacity of %d bytes, want %d to %d, in less than 2^31 pages: %w", g.CapacityBytes, g.PageBytes, int64(1)<<43, ErrGeometry)
	}
	return nil
}

// capacityPages is the number of pages that groups may take.
func (g Geometry) capacityPages() int64 { return g.CapacityBytes / int64(g.PageBytes) }

// blocks is the number of erase blocks, spare ones included.
func (g Geometry) blocks() int {
	n := (g.capacityPages() + int64(g.BlockPages) - 1) / int64(g.BlockPages)
	return int(n + max(n*int64(g.SparePercent)/100, int64(2*g.Channels+2)))
}

// pagesOf is the number of pages that size bytes take.
func (g Geometry) pagesOf(sizeBytes int) int { return (sizeBytes + g.PageBytes - 1) / g.PageBytes }
