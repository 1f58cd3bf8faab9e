//go:build unix

package hub

import (
	"os/exec"
	"syscall"
)

// ownGroup puts a command and what it starts (pip is often a wrapper script) into a process group that is ended as one.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
