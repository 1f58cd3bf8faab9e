package vulkan

//go:generate bash shaders/compile
