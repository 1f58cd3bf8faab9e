//go:build !linux

package main

// forgetProgram has no way to let go of the program's pages here.
func forgetProgram() {}
