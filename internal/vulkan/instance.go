package vulkan

import (
	"bytes"
	"fmt"
	"unsafe"
)

// apiVersion is Vulkan 1.2, the least that devices must have.
const apiVersion = 1<<22 | 2<<12

// Instance is a connection to the loader.
type Instance struct {
	f      functions
	handle uintptr
}

// Open opens the loader of this machine. Errors wrap ErrNotBuilt or ErrLoader.
func Open() (*Instance, error) { return open(loaders) }

func open(names []string) (*Instance, error) {
	find, err := openLibrary(names)
	if err != nil {
		if loaders == nil {
			return nil, fmt.Errorf("vulkan: %w", err)
		}
		return nil, fmt.Errorf("vulkan: %s cannot be opened, install it (Debian: libvulkan1) and a driver (mesa-vulkan-drivers, or the GPU maker's): %w", names[0], ErrLoader)
	}
	i := &Instance{}
	if err := i.f.load(find); err != nil {
		return nil, err
	}
	name := []byte("terrace\x00")
	app := &applicationInfo{header: header{kind: kindApplication}, name: &name[0], api: apiVersion}
	info := &instanceInfo{header: header{kind: kindInstance}, application: app}
	if err := failed("vkCreateInstance", call(i.f.createInstance, uintptr(unsafe.Pointer(info)), 0, uintptr(unsafe.Pointer(&i.handle)))); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrLoader)
	}
	return i, nil
}

// Close gives the connection back; devices must be closed before.
func (i *Instance) Close() { call(i.f.destroyInstance, i.handle, 0) }

// Kind says what a device is.
type Kind uint32

// The kinds, by Vulkan's numbers.
const (
	Other Kind = iota
	Integrated
	Discrete
	Virtual
	CPU
)

// String is the kind in words.
func (k Kind) String() string {
	if int(k) < 5 {
		return [...]string{"other", "integrated GPU", "discrete GPU", "virtual GPU", "CPU"}[k]
	}
	return "other"
}

// Info is what a device says of itself.
type Info struct {
	Name        string `json:"name"`
	Driver      string `json:"driver"`
	Kind        Kind   `json:"-"`
	API         string `json:"api"`
	MemoryBytes int64  `json:"memory_bytes"` // of its largest heap of its own

	SubgroupSize      int  `json:"subgroup_size"`
	Float16           bool `json:"float16"`
	Storage8          bool `json:"storage_8bit"`
	Storage16         bool `json:"storage_16bit"`
	CooperativeMatrix bool `json:"cooperative_matrix"` // VK_KHR_cooperative_matrix is offered
	BufferAddress     bool `json:"buffer_address"`     // needed
	SubgroupSums      bool `json:"subgroup_sums"`      // needed

	SharedBytes  int `json:"shared_bytes"`  // of a work group
	Invocations  int `json:"invocations"`   // of a work group
	Allocations  int `json:"allocations"`   // at a time
	PushBytes    int `json:"push_bytes"`    // of push constants
	GroupsAcross int `json:"groups_across"` // least of a dispatch's three dimensions
}

// Physical is a device that may be opened.
type Physical struct {
	Info
	i        *Instance
	handle   uintptr
	memory   memoryProperties
	families []queueFamily
	version  uint32
}

// Devices are the devices in the loader's order.
func (i *Instance) Devices() ([]*Physical, error) {
	var n uint32
	if err := failed("vkEnumeratePhysicalDevices", call(i.f.enumeratePhysicalDevices, i.handle, uintptr(unsafe.Pointer(&n)), 0)); err != nil || n == 0 {
		return nil, err
	}
	handles := make([]uintptr, n)
	if err := failed("vkEnumeratePhysicalDevices", call(i.f.enumeratePhysicalDevices, i.handle, uintptr(unsafe.Pointer(&n)), uintptr(unsafe.Pointer(&handles[0])))); err != nil {
		return nil, err
	}
	var list []*Physical
	for _, h := range handles[:n] {
		p := &Physical{i: i, handle: h}
		p.ask()
		list = append(list, p)
	}
	return list, nil
}

// ask fills in what the device says.
func (p *Physical) ask() {
	f := &p.i.f
	props := &properties2{header: header{kind: kindProperties2}}
	call(f.getProperties2, p.handle, uintptr(unsafe.Pointer(props)))
	p.version = props.apiVersion
	p.Name, p.Kind = text(props.name[:]), Kind(props.deviceType)
	p.API = fmt.Sprintf("%d.%d.%d", p.version>>22&127, p.version>>12&1023, p.version&4095)
	p.SharedBytes, p.Invocations = int(props.limits.sharedMemorySize), int(props.limits.workGroupInvocations)
	p.Allocations, p.PushBytes = int(props.limits.allocationCount), int(props.limits.pushConstantsSize)
	p.GroupsAcross = int(min(props.limits.workGroupCount[0], props.limits.workGroupCount[1], props.limits.workGroupCount[2]))
	call(f.getMemoryProperties, p.handle, uintptr(unsafe.Pointer(&p.memory)))
	for _, h := range p.memory.heap[:p.memory.heaps] {
		if h.flags&heapOwn != 0 {
			p.MemoryBytes = max(p.MemoryBytes, int64(h.size))
		}
	}
	var n uint32
	call(f.getQueueFamilies, p.handle, uintptr(unsafe.Pointer(&n)), 0)
	if p.families = make([]queueFamily, n); n > 0 {
		call(f.getQueueFamilies, p.handle, uintptr(unsafe.Pointer(&n)), uintptr(unsafe.Pointer(&p.families[0])))
	}
	if p.version < apiVersion {
		return // what follows is of Vulkan 1.2
	}
	driver := &driverProperties{header: header{kind: kindDriverProperties}}
	subgroup := &subgroupProperties{header: header{kind: kindSubgroupProperties, next: unsafe.Pointer(driver)}}
	*props = properties2{header: header{kind: kindProperties2, next: unsafe.Pointer(subgroup)}}
	call(f.getProperties2, p.handle, uintptr(unsafe.Pointer(props)))
	p.Driver = text(driver.name[:])
	if more := text(driver.info[:]); more != "" {
		p.Driver += " (" + more + ")"
	}
	const inCompute, arithmetic = 0x20, 4
	p.SubgroupSize, p.SubgroupSums = int(subgroup.size), subgroup.stages&inCompute != 0 && subgroup.operations&arithmetic != 0
	f12 := &features12{header: header{kind: kindFeatures12}}
	f11 := &features11{header: header{kind: kindFeatures11, next: unsafe.Pointer(f12)}}
	f2 := &features2{header: header{kind: kindFeatures2, next: unsafe.Pointer(f11)}}
	call(f.getFeatures2, p.handle, uintptr(unsafe.Pointer(f2)))
	p.Float16, p.Storage8, p.Storage16, p.BufferAddress = f12.float16 != 0, f12.storage8 != 0, f11.storage16 != 0, f12.bufferAddress != 0
	p.CooperativeMatrix = p.offers("VK_KHR_cooperative_matrix")
}

// offers reports whether the device has an extension.
func (p *Physical) offers(extension string) bool {
	var n uint32
	f := p.i.f.enumerateDeviceExtensions
	if call(f, p.handle, 0, uintptr(unsafe.Pointer(&n)), 0); n == 0 {
		return false
	}
	list := make([]extensionProperties, n)
	call(f, p.handle, 0, uintptr(unsafe.Pointer(&n)), uintptr(unsafe.Pointer(&list[0])))
	for i := range list[:min(int(n), len(list))] {
		if text(list[i].name[:]) == extension {
			return true
		}
	}
	return false
}

// text is a C string.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}
