package config

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/lib/preflight"
)

// check returns a preflight check.
func check(name string, fatal bool, find func(context.Context) preflight.Finding) preflight.Check {
	return preflight.Check{Name: name, Fatal: fatal, Find: find}
}

// Host has what checks read from the machine.
type Host struct {
	Status  func() (string, error) // of this process, as /proc/self/status has it
	Release func() string          // of the kernel
}

// ThisHost is the machine that the program runs on.
var ThisHost = Host{
	Status: func() (string, error) {
		b, err := os.ReadFile("/proc/self/status")
		return string(b), err
	},
	Release: func() string {
		var u unix.Utsname
		if err := unix.Uname(&u); err != nil {
			return ""
		}
		return unix.ByteSliceToString(u.Release[:])
	},
}

// StateFileCheck and EndpointsFileCheck are the checks of files that the agent ignores when they
// fail.
const (
	StateFileCheck     = "state file"
	EndpointsFileCheck = "endpoints file"
)

// Default directories of CNI, unless a container runtime is configured otherwise.
const (
	DefaultCNIBin     = "/opt/cni/bin"
	DefaultCNIConf    = "/etc/cni/net.d"
	DefaultCNIResults = "/var/lib/cni/results"
)
