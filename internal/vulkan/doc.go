// Package vulkan computes on GPUs through Vulkan 1.2 without cgo: the loader (libvulkan) is opened at run time, SPIR-V kernels are
// the caller's.
//
// What it owns: instances, what a device says of itself (Info), memory, compute pipelines, command buffers and their submission, and
// the structures of the few Vulkan calls that it makes, written by hand.
//
// What it never does: descriptors, images, windows. Kernels get the addresses of buffers (bufferDeviceAddress) and numbers as push
// constants. It knows no model.
//
// The loader is opened in builds with -tags gpu on Linux, which link libc and libdl at run time and still need no C compiler; the
// default build is static, and Open says ErrNotBuilt there.
//
// Sizes are bytes. Concurrency: one goroutine at a time for each Device.
package vulkan
