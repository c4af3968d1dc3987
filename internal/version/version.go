// Package version says which build of Sluice this is.
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

// String returns the identity in one line.
func (i Info) String() string {
	return fmt.Sprintf("sluice %s (%s, govpp %s, etcd client %s)", i.Version, i.Go, i.GoVPP, i.Etcd)
}
