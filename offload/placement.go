package offload

import "fmt"

// placement is where records lie in the file: layer after layer, the groups of a layer one after another in extents.
type placement struct {
	strideBytes int // from record to record
	groups      int // of an extent
	extentBytes int64
	extents     int
}

// extentTargetBytes is about how much lies together: streaming runs at full speed from 256 KiB on, and a sequence wastes half
// an extent a layer.
const extentTargetBytes = 1 << 20

func newPlacement(s Shape, o SSDOptions, align int) (placement, error) {
	p := placement{groups: o.ExtentGroups}
	p.strideBytes = roundUp(s.RecordBytes(), 4096)
	if p.strideBytes > s.RecordBytes()*5/4 {
		p.strideBytes = roundUp(s.RecordBytes(), align)
	}
	room, layers := o.CapacityBytes-headerBytes, int64(s.Layers)
	if p.groups <= 0 {
		stride := int64(p.strideBytes)
		p.groups = int(max(1, min(extentTargetBytes/stride, room/(stride*layers*4))))
	}
	p.extentBytes = int64(p.groups) * int64(p.strideBytes)
	if room < p.extentBytes*layers {
		return p, fmt.Errorf("offload: ssd %s: capacity %d bytes does not hold one group of %d tokens in %d layers, which takes %d: %w",
			o.Dir, o.CapacityBytes, s.GroupTokens, s.Layers, headerBytes+p.extentBytes*layers, ErrFull)
	}
	p.extents = int(min(room/p.extentBytes, 1<<31-1))
	return p, nil
}

// offset is where a group begins, given its extent.
func (p *placement) offset(extent int32, group int) int64 {
	return headerBytes + int64(extent)*p.extentBytes + int64(group%p.groups)*int64(p.strideBytes)
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
