package offload

import (
	"fmt"

	"terrace/internal/storage"
)

// placement is where records lie in the file: layer after layer, the groups of a layer one after another in extents, which have one
// size whatever the layers' records.
type placement struct {
	layers      []layerPlace
	extentBytes int64
	extents     int
}

// layerPlace is how the records of a layer lie in its extents; zero where it has none.
type layerPlace struct {
	strideBytes int // from record to record
	groups      int // of an extent
}

// extentTargetBytes is about how much lies together: streaming runs at full speed from 256 KiB on, and a sequence wastes half
// an extent a layer.
const extentTargetBytes = 1 << 20

func newPlacement(s Shape, o SSDOptions, align int) (placement, error) {
	p := placement{layers: make([]layerPlace, len(s.Layers))}
	layers, most := int64(s.Layers.Keepers()), 0
	for i := range p.layers {
		p.layers[i].strideBytes = stride(s.RecordBytes(i), align)
		most = max(most, p.layers[i].strideBytes)
	}
	if layers == 0 {
		return p, fmt.Errorf("offload: ssd %s: no layer of the model keeps keys and values: %w", o.Dir, ErrModel)
	}
	room, groups := o.CapacityBytes-headerBytes, o.ExtentGroups
	if groups <= 0 {
		groups = int(max(1, min(extentTargetBytes/int64(most), room/(int64(most)*layers*4))))
	}
	p.extentBytes = int64(groups) * int64(most)
	if room < p.extentBytes*layers {
		return p, fmt.Errorf("offload: ssd %s: capacity %d bytes does not hold one group of %d tokens in %d layers, which takes %d: %w",
			o.Dir, o.CapacityBytes, s.GroupTokens, layers, headerBytes+p.extentBytes*layers, ErrFull)
	}
	for i := range p.layers {
		if x := &p.layers[i]; x.strideBytes > 0 {
			x.groups = int(p.extentBytes / int64(x.strideBytes))
		}
	}
	p.extents = int(min(room/p.extentBytes, 1<<31-1))
	return p, nil
}

// stride is the room of a record: whole blocks of 4 KiB, unless that wastes much.
func stride(recordBytes, align int) int {
	n := storage.RoundUp(recordBytes, 4096)
	if n > recordBytes*5/4 {
		n = storage.RoundUp(recordBytes, align)
	}
	return n
}

// mostStride is the room of the largest layer's record.
func (p *placement) mostStride() int {
	n := 0
	for i := range p.layers {
		n = max(n, p.layers[i].strideBytes)
	}
	return n
}

// index is the extent of a layer that a group lies in.
func (p *placement) index(k Key) int { return int(k.Group) / p.layers[k.Layer].groups }

// offset is where a group begins, given its extent.
func (p *placement) offset(extent int32, k Key) int64 {
	x := &p.layers[k.Layer]
	return headerBytes + int64(extent)*p.extentBytes + int64(int(k.Group)%x.groups)*int64(x.strideBytes)
}
