package kernels

//go:generate go -C _asm run . -arch amd64
//go:generate go -C _asm run . -arch arm64
