package hf

import "errors"

var (
	// ErrConfig marks a config.json (or index) that is malformed, contradicts itself or holds a value out of range; the
	// message names the file and the key.
	ErrConfig = errors.New("bad Hugging Face configuration")
	// ErrUnknownArchitecture is returned for a model_type that has no file here; the message lists those that do.
	ErrUnknownArchitecture = errors.New("unknown architecture")
	// ErrQuantized is returned for a quantization_config of a method, key or value that is not known: its weights must not be read as others.
	ErrQuantized = errors.New("quantised in a way that is not read")
	// ErrMissingTensor is returned where the configuration asks for a tensor that no file holds; the message names file,
	// tensor and layer.
	ErrMissingTensor = errors.New("tensor is missing")
	// ErrShape marks a tensor whose shape contradicts the configuration.
	ErrShape = errors.New("tensor has another shape than the configuration says")
	// ErrNoWeights is returned for a folder without safetensors weights (pickle checkpoints are never opened).
	ErrNoWeights = errors.New("no safetensors weights")
	// ErrOutside marks a file name that leads out of the model's folder.
	ErrOutside = errors.New("path leads outside the model folder")
)
