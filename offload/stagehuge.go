package offload

import "terrace/internal/kernels"

// hugeStage is staging for operations of single tokens in one piece of memory that asks for huge pages: a device is given whole
// stretches of memory, not pages of 4 KiB one by one, which costs it (or what stands for it in a virtual machine) time for each. Reads of
// 24 KiB at a depth of 32 into 4 KiB pages took a virtio disk 52 µs each, into a huge page 31 µs.
type hugeStage struct {
	mapping []byte
	free    [][]byte
	pieces  int
}

// hugeStageBytes is a huge page.
const hugeStageBytes = 2 << 20

// take gives a piece of some bytes, nil where there is none; made is the memory that was mapped for it. size divides hugeStageBytes.
func (h *hugeStage) take(size int) (piece []byte, made int64) {
	if h.mapping == nil {
		data, mapping, err := kernels.MapHuge(hugeStageBytes)
		if err != nil {
			return nil, 0
		}
		h.mapping, h.pieces, made = mapping, hugeStageBytes/size, hugeStageBytes
		for at := 0; at < hugeStageBytes; at += size {
			h.free = append(h.free, data[at:at+size:at+size])
		}
	}
	n := len(h.free)
	if n == 0 {
		return nil, made
	}
	piece, h.free = h.free[n-1], h.free[:n-1]
	return piece, made
}

// drop unmaps the memory unless a piece is in use; it returns how much that was.
func (h *hugeStage) drop() int64 {
	if h.mapping == nil || len(h.free) < h.pieces {
		return 0
	}
	kernels.Unmap(h.mapping)
	*h = hugeStage{}
	return hugeStageBytes
}
