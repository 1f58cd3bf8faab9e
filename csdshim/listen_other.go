//go:build !unix

package csdshim

import "net"

func listenPrivate(socket string) (net.Listener, error) { return net.Listen("unix", socket) }
