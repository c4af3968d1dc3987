package cni

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/sluice-net/sluice/internal/cni/vppport"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
)

// What a setting can be.
const (
	onTimeoutContinue = "continue" // ADD returns, and the interface is blocked until policy is enforced
	onTimeoutFail     = "fail"
	agentAbsentBlock  = "block"  // the plugin blocks the interface by itself
	agentAbsentFail   = "fail"   // as without the setting, and STATUS fails, too
	dataplaneKernel   = "kernel" // the node's end of a pair is enforced at
	dataplaneVPP      = "vpp"
)

const (
	defaultPins    = "/sys/fs/bpf/sluice"
	defaultTimeout = 30 * time.Second
	defaultVPP     = "/run/vpp/api.sock"
	defaultMemif   = "/run/vpp/memif"
	maxConfig      = 1 << 20 // bytes of a configuration with its prevResult
	minMTU, maxMTU = 68, 65535
	maxPath        = 4096
)

// config is what stands in a CNI configuration list for the plugin.
type config struct {
	types.PluginConf
	Socket      string `json:"socket"`      // of the agent
	Pins        string `json:"pins"`        // folder of the agent's --xdp-pins
	Wait        *bool  `json:"wait"`        // for policy to be enforced; see waits
	Timeout     string `json:"timeout"`     // for the agent and for policy together
	OnTimeout   string `json:"onTimeout"`   // continue or fail
	AgentAbsent string `json:"agentAbsent"` // block or fail; empty: ADD fails
	Dataplane   string `json:"dataplane"`   // kernel or vpp
	VPPSocket   string `json:"vppSocket"`   // of VPP's binary API
	MTU         int    `json:"mtu"`         // of the interfaces that are made for VPP; 0: that of the kernel
	Interface   string `json:"interface"`   // host, tap or memif: what is made for VPP
	MemifFolder string `json:"memifFolder"` // in which each pod has a folder, for the sockets of memif

	timeout time.Duration
	prev    *current.Result // nil where there is none
}

// readConfig reads and checks the configuration that the runtime gives.
func readConfig(stdin []byte) (*config, error) {
	if len(stdin) > maxConfig {
		return nil, types.NewError(types.ErrDecodingFailure, fmt.Sprintf("configuration has %d bytes: want %d at most", len(stdin), maxConfig), "")
	}
	c := &config{
		Socket: wire.DefaultSocket, Pins: defaultPins, Timeout: defaultTimeout.String(), OnTimeout: onTimeoutFail,
		Dataplane: dataplaneKernel, VPPSocket: defaultVPP, Interface: string(vppport.Host), MemifFolder: defaultMemif,
	}
	if err := json.Unmarshal(stdin, c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "configuration cannot be read", err.Error())
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	return c, c.readPrevious()
}

// check checks what the configuration says of this plugin.
func (c *config) check() (err error) {
	if c.timeout, err = time.ParseDuration(c.Timeout); err != nil || c.timeout < 0 || c.timeout > wire.MaxTimeout {
		return invalid("timeout", c.Timeout, "0s to "+wire.MaxTimeout.String())
	}
	for _, f := range []struct {
		name, value string
		want        []string
	}{
		{"onTimeout", c.OnTimeout, []string{onTimeoutContinue, onTimeoutFail}},
		{"agentAbsent", cmp.Or(c.AgentAbsent, agentAbsentFail), []string{agentAbsentBlock, agentAbsentFail}},
		{"dataplane", c.Dataplane, []string{dataplaneKernel, dataplaneVPP}},
		{"interface", c.Interface, []string{string(vppport.Host), string(vppport.Tap), string(vppport.Memif)}},
	} {
		if !slices.Contains(f.want, f.value) {
			return invalid(f.name, f.value, strings.Join(f.want, " or "))
		}
	}
	for name, path := range map[string]string{"socket": c.Socket, "pins": c.Pins, "vppSocket": c.VPPSocket, "memifFolder": c.MemifFolder} {
		if !filepath.IsAbs(path) || len(path) > maxPath {
			return invalid(name, path, "an absolute path")
		}
	}
	if c.MTU != 0 && (c.MTU < minMTU || c.MTU > maxMTU) {
		return invalid("mtu", strconv.Itoa(c.MTU), fmt.Sprintf("%d to %d", minMTU, maxMTU))
	}
	return nil
}

// readPrevious reads the result of the plugins before this one, if there is one.
func (c *config) readPrevious() error {
	if c.RawPrevResult == nil {
		return nil
	}
	err := version.ParsePrevResult(&c.PluginConf)
	if err == nil {
		c.prev, err = current.NewResultFromResult(c.PrevResult)
	}
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "prevResult cannot be read", err.Error())
	}
	return nil
}

// previous returns the result of the plugins before this one, which has to be there.
func (c *config) previous() (*current.Result, error) {
	if c.prev == nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig,
			"prevResult is missing: put sluice-cni behind the plugin that creates the interface", "")
	}
	return c.prev, nil
}

// kind is what is made for VPP.
func (c *config) kind() vppport.Kind { return vppport.Kind(c.Interface) }

// waits reports whether ADD waits for enforcement. Behind a plugin that made an interface of VPP it
// does so only if asked to: there policy knows a pod by addresses that the API server gets after
// ADD.
func (c *config) waits() bool {
	if c.Wait == nil {
		return c.Dataplane != dataplaneVPP || c.prev == nil
	}
	return *c.Wait
}

// invalid names a field that has a value which it cannot have.
func invalid(field, value, want string) error {
	if len(value) > 100 {
		value = value[:100] + "..."
	}
	return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("invalid %s %q: want %s", field, value, want), "")
}

// pod is what the runtime says of a pod in CNI_ARGS.
type pod struct{ namespace, name, uid string }

// readPod reads CNI_ARGS.
func readPod(args string) (p pod, err error) {
	fields := map[string]*string{"K8S_POD_NAMESPACE": &p.namespace, "K8S_POD_NAME": &p.name, "K8S_POD_UID": &p.uid}
	for pair := range strings.SplitSeq(args, ";") {
		key, value, _ := strings.Cut(pair, "=")
		if field, ok := fields[key]; ok {
			if *field != "" && *field != value {
				return p, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS has "+key+" twice", "")
			}
			*field = value
		}
	}
	for _, key := range []string{"K8S_POD_NAMESPACE", "K8S_POD_NAME"} {
		if *fields[key] == "" {
			return p, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS has no "+key+": sluice-cni needs a container runtime of Kubernetes", "")
		}
	}
	return p, nil
}
