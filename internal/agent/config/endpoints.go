package config

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/plugins/endpoints/keeper"
)

// Endpoints has the settings for matching interfaces to pods in the kernel dataplane.
type Endpoints struct {
	New        string   `koanf:"new-interfaces"`
	Pods       []string `koanf:"pod-interfaces"`
	NetNS      string   `koanf:"xdp-netns"`
	CNIConfDir string   `koanf:"cni-conf-dir"`
	CNIResults string   `koanf:"cni-results"`
	File       string   `koanf:"endpoints-file"`
}

// What --new-interfaces can be.
const (
	newBlock = "block"
	newAllow = "allow"
)

func endpointFlags(f *pflag.FlagSet) {
	f.String("new-interfaces", newBlock, "traffic of a new pod interface until the pod's policy is enforced there: block or allow")
	f.StringSlice("pod-interfaces", nil, "pods' bridges, and name prefixes of pods' interfaces with a trailing star, in addition to those from --cni-conf-dir; for example cni0,veth*")
	f.String("xdp-netns", "/run/netns", "directory with the network namespaces of pods, as the container runtime mounts them")
	f.String("cni-conf-dir", DefaultCNIConf, "directory with the CNI configurations, which name pods' bridges and interfaces; empty: none")
	f.String("cni-results", DefaultCNIResults, "directory where the container runtime records which pod each network namespace belongs to; empty: none")
	f.String("endpoints-file", DefaultEndpointsFile, "file that keeps which interface belongs to which pod, for the next start; empty: none")
}

// BlocksNew reports whether a new interface is blocked until its pod is known.
func (e Endpoints) BlocksNew() bool { return e.New != newAllow }

// Scope parses which interfaces belong to pods.
func (e Endpoints) Scope() (keeper.Scope, error) {
	scope, err := keeper.ParseScope(e.Pods)
	if err != nil {
		return scope, fmt.Errorf("--pod-interfaces: %w", err)
	}
	return scope, nil
}

// check validates the settings.
func (e Endpoints) check() error {
	if e.New != "" && e.New != newBlock && e.New != newAllow {
		return fmt.Errorf("--new-interfaces %q: want block or allow", e.New)
	}
	_, err := e.Scope()
	return err
}

func (e Endpoints) preflight() []preflight.Check {
	return []preflight.Check{check("cni results", false, e.checkResults), check(EndpointsFileCheck, false, e.checkFile)}
}

// checkResults reports whether the records of the container runtime can be read.
func (e Endpoints) checkResults(context.Context) preflight.Finding {
	if e.CNIResults == "" {
		return preflight.Fine("none: pods are those that a CNI plugin registers")
	}
	if _, err := os.ReadDir(e.CNIResults); err != nil {
		return preflight.Warn(fmt.Errorf("--cni-results: %w: pods that no CNI plugin registers are blocked", err), "mount the node's folder, or name the one that its container runtime uses")
	}
	return preflight.Fine("%s", e.CNIResults)
}

// checkFile reports whether other users can write the endpoints file.
func (e Endpoints) checkFile(context.Context) preflight.Finding {
	if e.File == "" {
		return preflight.Finding{}
	}
	if err := preflight.Ours(e.File); err != nil {
		return preflight.Warn(fmt.Errorf("--endpoints-file: %w: it is not used", err), preflight.OursRemedy)
	}
	return preflight.Fine("%s", e.File)
}
