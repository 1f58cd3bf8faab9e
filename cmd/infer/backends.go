//go:build !lean

package main

// Backends besides the native one register themselves.
import (
	"terrace/internal/vulkan"
	_ "terrace/model/gorgonia"
	_ "terrace/model/vulkan"
	"terrace/model/xla"
)

// backendsMissing says why known backends may be missing: none is.
const backendsMissing = ""

// backendErrors are the backends' errors that mean a model or plugin that cannot be used.
var backendErrors = []error{xla.ErrPlugin, vulkan.ErrLoader, vulkan.ErrNoDevice}
