package config

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/endpoints/keeper"
	"github.com/sluice-net/sluice/internal/preflight"
)

// Endpoints says how it is found out whose interfaces are, where the kernel enforces.
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
	f.String("new-interfaces", newBlock, "what an interface passes that connects a pod, until the pod's policy is enforced there: block or allow")
	f.StringSlice("pod-interfaces", nil, "bridges of pods, and prefixes of names of their interfaces with a star behind, beside those in --cni-conf-dir: cni0,veth*")
	f.String("xdp-netns", "/run/netns", "folder with the network namespaces of pods, as their container runtime leaves them")
	f.String("cni-conf-dir", DefaultCNIConf, "folder with CNI's configurations, which name bridges and interfaces of pods; empty for none")
	f.String("cni-results", DefaultCNIResults, "folder in which the container runtime keeps for which pod it set up which network namespace; empty for none")
	f.String("endpoints-file", DefaultEndpointsFile, "file with whose interfaces are, for the next start; empty for none")
}

// BlocksNew reports whether an interface passes nothing before it is known whose it is.
func (e Endpoints) BlocksNew() bool { return e.New != newAllow }

// Scope reads which interfaces are those of pods.
func (e Endpoints) Scope() (keeper.Scope, error) {
	scope, err := keeper.ParseScope(e.Pods)
	if err != nil {
		return scope, fmt.Errorf("--pod-interfaces: %w", err)
	}
	return scope, nil
}

// check refuses settings that say nothing.
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

// checkFile reports whether only the agent decides what it knows of interfaces.
func (e Endpoints) checkFile(context.Context) preflight.Finding {
	if e.File == "" {
		return preflight.Finding{}
	}
	if err := preflight.Ours(e.File); err != nil {
		return preflight.Warn(fmt.Errorf("--endpoints-file: %w: it is not used", err), preflight.OursRemedy)
	}
	return preflight.Fine("%s", e.File)
}
