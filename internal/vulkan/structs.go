package vulkan

import "unsafe"

// The structures of vulkan_core.h that are used, field by field; what no one reads is padding. Pointers are unsafe.Pointer, so that
// the collector sees them.

// kind is a VkStructureType.
type kind uint32

const (
	kindApplication        kind = 0
	kindInstance           kind = 1
	kindQueue              kind = 2
	kindDevice             kind = 3
	kindSubmit             kind = 4
	kindAllocate           kind = 5
	kindFence              kind = 8
	kindBuffer             kind = 12
	kindShader             kind = 16
	kindStage              kind = 18
	kindCompute            kind = 29
	kindPipelineLayout     kind = 30
	kindCommandPool        kind = 39
	kindCommandBuffer      kind = 40
	kindBegin              kind = 42
	kindBarrier            kind = 46
	kindFeatures11         kind = 49
	kindFeatures12         kind = 51
	kindFeatures2          kind = 1000059000
	kindProperties2        kind = 1000059001
	kindAllocateFlags      kind = 1000060000
	kindSubgroupProperties kind = 1000094000
	kindDriverProperties   kind = 1000196000
	kindAddress            kind = 1000244001
)

type header struct {
	kind kind
	_    uint32
	next unsafe.Pointer
}

type applicationInfo struct {
	header
	name   *byte
	_, _   uint32
	_      *byte
	_, api uint32
}

type instanceInfo struct {
	header
	flags, _       uint32
	application    *applicationInfo
	layers, _      uint32
	layerNames     unsafe.Pointer
	extensions, _  uint32
	extensionNames unsafe.Pointer
}

type extensionProperties struct {
	name    [256]byte
	version uint32
}

type limits struct {
	_                    [32]byte
	pushConstantsSize    uint32
	allocationCount      uint32
	_                    [176]byte
	sharedMemorySize     uint32
	workGroupCount       [3]uint32
	workGroupInvocations uint32
	workGroupSize        [3]uint32
	_                    [256]byte
}

type properties2 struct {
	header
	apiVersion, driverVersion, vendor, device, deviceType uint32
	name                                                  [256]byte
	_                                                     [20]byte // pipeline cache's id, and 4 to align
	limits                                                limits
	_                                                     [24]byte // sparse properties, and 4 to align
}

type subgroupProperties struct {
	header
	size, stages, operations, quads uint32
}

type driverProperties struct {
	header
	id         uint32
	name, info [256]byte
	_          uint32
}

type features2 struct {
	header
	features [55]uint32
	_        uint32
}

type features11 struct {
	header
	storage16 uint32
	_         [11]uint32
}

type features12 struct {
	header
	_             [2]uint32
	storage8      uint32
	_             [4]uint32
	float16       uint32
	int8          uint32
	_             [29]uint32
	bufferAddress uint32
	_             [9]uint32
}

type memoryType struct{ flags, heap uint32 }

type memoryHeap struct {
	size  uint64
	flags uint32
	_     uint32
}

type memoryProperties struct {
	types uint32
	typed [32]memoryType
	heaps uint32
	heap  [16]memoryHeap
}

type queueFamily struct {
	flags, count, timestampBits uint32
	_                           [3]uint32
}

type queueInfo struct {
	header
	_, family  uint32
	count, _   uint32
	priorities *float32
}

type deviceInfo struct {
	header
	flags, queues  uint32
	queueInfos     *queueInfo
	layers, _      uint32
	layerNames     unsafe.Pointer
	extensions, _  uint32
	extensionNames unsafe.Pointer
	features       unsafe.Pointer
}

type allocateInfo struct {
	header
	size   uint64
	typ, _ uint32
}

type allocateFlags struct {
	header
	flags, mask uint32
}

type bufferInfo struct {
	header
	flags, _    uint32
	size        uint64
	usage       uint32
	sharing     uint32
	families, _ uint32
	familyList  unsafe.Pointer
}

type requirements struct {
	size, alignment uint64
	types, _        uint32
}

type addressInfo struct {
	header
	buffer uint64
}

type shaderInfo struct {
	header
	flags, _ uint32
	size     uintptr
	code     *uint32
}

type specializationEntry struct {
	id, offset uint32
	size       uintptr
}

type specialization struct {
	count, _ uint32
	entries  *specializationEntry
	size     uintptr
	data     *uint32
}

type stageInfo struct {
	header
	flags, stage   uint32
	module         uint64
	name           *byte
	specialization *specialization
}

type computeInfo struct {
	header
	flags, _ uint32
	stage    stageInfo
	layout   uint64
	base     uint64
	index, _ uint32
}

type pushRange struct{ stages, _, size uint32 }

type layoutInfo struct {
	header
	flags, sets uint32
	setLayouts  unsafe.Pointer
	ranges, _   uint32
	pushRanges  *pushRange
}

type poolInfo struct {
	header
	flags, family uint32
}

type commandBufferInfo struct {
	header
	pool         uint64
	level, count uint32
}

type beginInfo struct {
	header
	flags, _    uint32
	inheritance unsafe.Pointer
}

type submitInfo struct {
	header
	waits, _         uint32
	waitSemaphores   unsafe.Pointer
	waitStages       unsafe.Pointer
	buffers, _       uint32
	commandBuffers   *uintptr
	signals, _       uint32
	signalSemaphores unsafe.Pointer
}

type fenceInfo struct {
	header
	flags, _ uint32
}

type memoryBarrier struct {
	header
	from, to uint32
}

type bufferCopy struct{ from, to, size uint64 }
