package offload

import "fmt"

// placement is where records lie in the file. Layers are taken in strips of `strip` layers; a strip's groups lie one after
// another in extents of `groups` groups, and in a group its layers. strip 1 is layer-major, all layers token-major.
type placement struct {
	strideBytes int // from record to record
	strip       int
	groups      int // of an extent
	strips      int
	extentBytes int64
	extents     int
}

// extentTargetBytes is about how much lies together: streaming runs at full speed from 256 KiB on, and a sequence wastes half
// an extent a strip.
const extentTargetBytes = 1 << 20

func newPlacement(s Shape, o SSDOptions, align int) (placement, error) {
	p := placement{strip: o.StripLayers, groups: o.ExtentGroups}
	p.strideBytes = roundUp(s.RecordBytes(), 4096)
	if p.strideBytes > s.RecordBytes()*5/4 {
		p.strideBytes = roundUp(s.RecordBytes(), align)
	}
	p.strips = (s.Layers + p.strip - 1) / p.strip
	room := o.CapacityBytes - headerBytes
	if p.groups <= 0 {
		perGroup := int64(p.strip * p.strideBytes)
		p.groups = int(max(1, min(extentTargetBytes/perGroup, room/(perGroup*int64(p.strips)*4))))
	}
	p.extentBytes = int64(p.groups) * int64(p.strip) * int64(p.strideBytes)
	if room < p.extentBytes*int64(p.strips) {
		return p, fmt.Errorf("offload: ssd %s: capacity %d bytes does not hold one group of %d tokens in %d layers, which takes %d: %w",
			o.Dir, o.CapacityBytes, s.GroupTokens, s.Layers, headerBytes+p.extentBytes*int64(p.strips), ErrFull)
	}
	p.extents = int(min(room/p.extentBytes, 1<<31-1))
	return p, nil
}

// offset is where a record begins, given its strip's extent.
func (p *placement) offset(extent int32, layer, group int) int64 {
	return headerBytes + int64(extent)*p.extentBytes + int64(group%p.groups*p.strip+layer%p.strip)*int64(p.strideBytes)
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
