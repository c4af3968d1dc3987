// Package version reports which build of Sluice this is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker (see Makefile).
var version = "unknown"

// Info identifies a build.
type Info struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	GoVPP   string `json:"govpp"`
	Etcd    string `json:"etcd"`
}

// Get returns the build's identity.
func Get() Info {
	info := Info{Version: version, Go: runtime.Version()}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range b.Deps {
			switch dep.Path {
			case "go.fd.io/govpp":
				info.GoVPP = dep.Version
			case "go.etcd.io/etcd/client/v3":
				info.Etcd = dep.Version
			}
		}
	}
	return info
}

// String returns the identity in one line, with the libraries that are in it.
func (i Info) String() string {
	s := fmt.Sprintf("sluice %s (%s", i.Version, i.Go)
	if i.GoVPP != "" {
		s += ", govpp " + i.GoVPP
	}
	if i.Etcd != "" {
		s += ", etcd client " + i.Etcd
	}
	return s + ")"
}
