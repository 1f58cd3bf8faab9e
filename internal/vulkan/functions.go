package vulkan

import "fmt"

// functions are the addresses of the calls, which the loader exports by name.
type functions struct {
	createInstance, destroyInstance, enumeratePhysicalDevices                  uintptr
	getProperties2, getFeatures2, getMemoryProperties, getQueueFamilies        uintptr
	enumerateDeviceExtensions, createDevice, destroyDevice, getQueue, waitIdle uintptr
	allocate, free, mapMemory, createBuffer, destroyBuffer, requirements       uintptr
	bindMemory, bufferAddress, createShader, destroyShader                     uintptr
	createLayout, destroyLayout, createPipelines, destroyPipeline              uintptr
	createPool, destroyPool, allocateCommands, resetPool, begin, end           uintptr
	bindPipeline, pushConstants, dispatch, barrier, copyBuffer, fillBuffer     uintptr
	submit, createFence, destroyFence, waitForFences, resetFences              uintptr
}

// load fills in every address.
func (f *functions) load(find func(name string) (uintptr, error)) error {
	for name, at := range map[string]*uintptr{
		"vkCreateInstance": &f.createInstance, "vkDestroyInstance": &f.destroyInstance, "vkEnumeratePhysicalDevices": &f.enumeratePhysicalDevices,
		"vkGetPhysicalDeviceProperties2": &f.getProperties2, "vkGetPhysicalDeviceFeatures2": &f.getFeatures2,
		"vkGetPhysicalDeviceMemoryProperties": &f.getMemoryProperties, "vkGetPhysicalDeviceQueueFamilyProperties": &f.getQueueFamilies,
		"vkEnumerateDeviceExtensionProperties": &f.enumerateDeviceExtensions, "vkCreateDevice": &f.createDevice, "vkDestroyDevice": &f.destroyDevice,
		"vkGetDeviceQueue": &f.getQueue, "vkDeviceWaitIdle": &f.waitIdle, "vkAllocateMemory": &f.allocate, "vkFreeMemory": &f.free,
		"vkMapMemory": &f.mapMemory, "vkCreateBuffer": &f.createBuffer, "vkDestroyBuffer": &f.destroyBuffer,
		"vkGetBufferMemoryRequirements": &f.requirements, "vkBindBufferMemory": &f.bindMemory, "vkGetBufferDeviceAddress": &f.bufferAddress,
		"vkCreateShaderModule": &f.createShader, "vkDestroyShaderModule": &f.destroyShader, "vkCreatePipelineLayout": &f.createLayout,
		"vkDestroyPipelineLayout": &f.destroyLayout, "vkCreateComputePipelines": &f.createPipelines, "vkDestroyPipeline": &f.destroyPipeline,
		"vkCreateCommandPool": &f.createPool, "vkDestroyCommandPool": &f.destroyPool, "vkAllocateCommandBuffers": &f.allocateCommands,
		"vkResetCommandPool": &f.resetPool, "vkBeginCommandBuffer": &f.begin, "vkEndCommandBuffer": &f.end, "vkCmdBindPipeline": &f.bindPipeline,
		"vkCmdPushConstants": &f.pushConstants, "vkCmdDispatch": &f.dispatch, "vkCmdPipelineBarrier": &f.barrier, "vkCmdCopyBuffer": &f.copyBuffer,
		"vkCmdFillBuffer": &f.fillBuffer, "vkQueueSubmit": &f.submit, "vkCreateFence": &f.createFence, "vkDestroyFence": &f.destroyFence,
		"vkWaitForFences": &f.waitForFences, "vkResetFences": &f.resetFences,
	} {
		address, err := find(name)
		if err != nil {
			return fmt.Errorf("vulkan: the loader is older than Vulkan 1.2, it lacks %s: %w", name, ErrLoader)
		}
		*at = address
	}
	return nil
}
