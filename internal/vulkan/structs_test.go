package vulkan

import (
	"testing"
	"unsafe"
)

// TestSizes pins sizes and offsets to those of vulkan_core.h 1.3.239 on a 64-bit machine.
func TestSizes(t *testing.T) {
	var p properties2
	var f11 features11
	var f12 features12
	var d driverProperties
	var l limits
	for name, c := range map[string][2]uintptr{
		"VkApplicationInfo":                                         {unsafe.Sizeof(applicationInfo{}), 48},
		"VkInstanceCreateInfo":                                      {unsafe.Sizeof(instanceInfo{}), 64},
		"VkExtensionProperties":                                     {unsafe.Sizeof(extensionProperties{}), 260},
		"VkPhysicalDeviceLimits":                                    {unsafe.Sizeof(l), 504},
		"VkPhysicalDeviceLimits.maxPushConstantsSize":               {unsafe.Offsetof(l.pushConstantsSize), 32},
		"VkPhysicalDeviceLimits.maxComputeSharedMemorySize":         {unsafe.Offsetof(l.sharedMemorySize), 216},
		"VkPhysicalDeviceLimits.maxComputeWorkGroupCount":           {unsafe.Offsetof(l.workGroupCount), 220},
		"VkPhysicalDeviceLimits.maxComputeWorkGroupInvocations":     {unsafe.Offsetof(l.workGroupInvocations), 232},
		"VkPhysicalDeviceLimits.maxComputeWorkGroupSize":            {unsafe.Offsetof(l.workGroupSize), 236},
		"VkPhysicalDeviceProperties2":                               {unsafe.Sizeof(p), 840},
		"VkPhysicalDeviceProperties2.properties.deviceName":         {unsafe.Offsetof(p.name), 16 + 20},
		"VkPhysicalDeviceProperties2.properties.limits":             {unsafe.Offsetof(p.limits), 16 + 296},
		"VkPhysicalDeviceSubgroupProperties":                        {unsafe.Sizeof(subgroupProperties{}), 32},
		"VkPhysicalDeviceDriverProperties":                          {unsafe.Sizeof(d), 536},
		"VkPhysicalDeviceDriverProperties.driverName":               {unsafe.Offsetof(d.name), 20},
		"VkPhysicalDeviceDriverProperties.driverInfo":               {unsafe.Offsetof(d.info), 276},
		"VkPhysicalDeviceFeatures2":                                 {unsafe.Sizeof(features2{}), 240},
		"VkPhysicalDeviceVulkan11Features":                          {unsafe.Sizeof(f11), 64},
		"VkPhysicalDeviceVulkan11Features.storageBuffer16BitAccess": {unsafe.Offsetof(f11.storage16), 16},
		"VkPhysicalDeviceVulkan12Features":                          {unsafe.Sizeof(f12), 208},
		"VkPhysicalDeviceVulkan12Features.storageBuffer8BitAccess":  {unsafe.Offsetof(f12.storage8), 24},
		"VkPhysicalDeviceVulkan12Features.shaderFloat16":            {unsafe.Offsetof(f12.float16), 44},
		"VkPhysicalDeviceVulkan12Features.shaderInt8":               {unsafe.Offsetof(f12.int8), 48},
		"VkPhysicalDeviceVulkan12Features.bufferDeviceAddress":      {unsafe.Offsetof(f12.bufferAddress), 168},
		"VkPhysicalDeviceMemoryProperties":                          {unsafe.Sizeof(memoryProperties{}), 520},
		"VkQueueFamilyProperties":                                   {unsafe.Sizeof(queueFamily{}), 24},
		"VkDeviceQueueCreateInfo":                                   {unsafe.Sizeof(queueInfo{}), 40},
		"VkDeviceCreateInfo":                                        {unsafe.Sizeof(deviceInfo{}), 72},
		"VkMemoryAllocateInfo":                                      {unsafe.Sizeof(allocateInfo{}), 32},
		"VkMemoryAllocateFlagsInfo":                                 {unsafe.Sizeof(allocateFlags{}), 24},
		"VkBufferCreateInfo":                                        {unsafe.Sizeof(bufferInfo{}), 56},
		"VkMemoryRequirements":                                      {unsafe.Sizeof(requirements{}), 24},
		"VkBufferDeviceAddressInfo":                                 {unsafe.Sizeof(addressInfo{}), 24},
		"VkShaderModuleCreateInfo":                                  {unsafe.Sizeof(shaderInfo{}), 40},
		"VkPipelineShaderStageCreateInfo":                           {unsafe.Sizeof(stageInfo{}), 48},
		"VkSpecializationInfo":                                      {unsafe.Sizeof(specialization{}), 32},
		"VkSpecializationMapEntry":                                  {unsafe.Sizeof(specializationEntry{}), 16},
		"VkComputePipelineCreateInfo":                               {unsafe.Sizeof(computeInfo{}), 96},
		"VkPipelineLayoutCreateInfo":                                {unsafe.Sizeof(layoutInfo{}), 48},
		"VkPushConstantRange":                                       {unsafe.Sizeof(pushRange{}), 12},
		"VkCommandPoolCreateInfo":                                   {unsafe.Sizeof(poolInfo{}), 24},
		"VkCommandBufferAllocateInfo":                               {unsafe.Sizeof(commandBufferInfo{}), 32},
		"VkCommandBufferBeginInfo":                                  {unsafe.Sizeof(beginInfo{}), 32},
		"VkSubmitInfo":                                              {unsafe.Sizeof(submitInfo{}), 72},
		"VkFenceCreateInfo":                                         {unsafe.Sizeof(fenceInfo{}), 24},
		"VkMemoryBarrier":                                           {unsafe.Sizeof(memoryBarrier{}), 24},
		"VkBufferCopy":                                              {unsafe.Sizeof(bufferCopy{}), 24},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %d, want %d", name, c[0], c[1])
		}
	}
}
