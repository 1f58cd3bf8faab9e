package model

import "errors"

var (
	// ErrUnknownArchitecture is returned for a model whose architecture has no file here; the message lists those that do.
	ErrUnknownArchitecture = errors.New("unknown architecture")
	// ErrConfig marks metadata that contradicts itself or lies outside what any model of the architecture can have.
	ErrConfig = errors.New("bad model configuration")
	// ErrFeature marks a model that asks for something no backend here computes.
	ErrFeature = errors.New("model feature that is not supported")
	// ErrUnsupported is returned by a backend for a model or call that it declares it cannot run; callers may fall back.
	ErrUnsupported = errors.New("unsupported by this backend")
	// ErrUnknownBackend is returned for a backend name that is not registered; the message lists those that are.
	ErrUnknownBackend = errors.New("unknown backend")
	// ErrDeviceMemory is returned where keys and values do not fit the device's budget (BackendOptions.DeviceKVBytes).
	ErrDeviceMemory = errors.New("does not fit the device's memory")
	// ErrToken marks a token id outside the vocabulary.
	ErrToken = errors.New("token id outside the vocabulary")
)
