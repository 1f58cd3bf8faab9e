//go:build !linux

package csdshim

import "net"

func checkPeer(net.Conn) error { return nil } // the socket's mode 0600 is what keeps others out
