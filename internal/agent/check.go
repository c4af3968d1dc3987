package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/preflight"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// host is what checks read of the machine.
type host struct {
	status  func() (string, error) // of this process, as /proc/self/status has it
	release func() string          // of the kernel
}

var thisHost = host{
	status: func() (string, error) {
		b, err := os.ReadFile("/proc/self/status")
		return string(b), err
	},
	release: func() string {
		var u unix.Utsname
		if err := unix.Uname(&u); err != nil {
			return ""
		}
		return unix.ByteSliceToString(u.Release[:])
	},
}

// checks are what an agent needs of its settings and of its machine. They ask nobody else, so run
// makes them each time it starts.
func (c Config) checks(h host) []preflight.Check {
	out := []preflight.Check{
		{Name: "node name", Fatal: true, Find: c.checkNode},
		{Name: "etcd settings", Fatal: true, Find: c.checkEtcd},
		{Name: stateFileCheck, Find: c.checkStateFile},
		{Name: "api socket", Fatal: true, Find: c.checkAPISocket},
	}
	if c.MetricsAddress != "" {
		out = append(out, preflight.Check{Name: "metrics address", Fatal: true, Find: c.checkMetrics})
	}
	if c.CNIBinDir != "" {
		out = append(out, preflight.Check{Name: "cni plugin", Find: c.findCNI})
	}
	if c.talksToVPP() {
		out = append(out, preflight.Check{Name: "vpp socket", Find: c.checkVPP})
		if c.VPPStatsSocket != "" {
			out = append(out, preflight.Check{Name: "vpp stats socket", Find: c.checkStats})
		}
	}
	if slices.Contains(c.Renderers, rendererXDP) {
		out = append(out,
			preflight.Check{Name: "kernel", Fatal: true, Find: func(context.Context) preflight.Finding { return c.checkKernel(h.release()) }},
			preflight.Check{Name: "capabilities", Fatal: true, Find: func(context.Context) preflight.Finding { return c.checkRights(h.status()) }},
			preflight.Check{Name: "bpf file system", Fatal: true, Find: c.checkPins},
			preflight.Check{Name: "xdp pins", Fatal: true, Find: c.checkOwner},
			preflight.Check{Name: "cni results", Find: c.checkResults},
			preflight.Check{Name: endpointsFileCheck, Find: c.checkEndpointsFile},
		)
		if len(c.XDPUplinks) > 0 {
			out = append(out, preflight.Check{Name: "xdp uplinks", Fatal: true, Find: c.checkUplinks})
		}
	}
	return out
}

// Checks of files that are left alone when they fail.
const (
	stateFileCheck     = "state file"
	endpointsFileCheck = "endpoints file"
)

// checkEndpointsFile reports whether only the agent decides what it knows of interfaces.
func (c Config) checkEndpointsFile(context.Context) preflight.Finding {
	if c.EndpointsFile == "" {
		return preflight.Finding{}
	}
	if err := preflight.Ours(c.EndpointsFile); err != nil {
		return preflight.Warn(fmt.Errorf("--endpoints-file: %w: it is not used", err), placeRemedy)
	}
	return preflight.Fine("%s", c.EndpointsFile)
}

// talksToVPP reports whether a renderer programs VPP by its binary API.
func (c Config) talksToVPP() bool {
	return slices.Contains(c.Renderers, rendererACL) && c.ACLTarget != targetLigato
}

// keepsRules reports whether all that enforces is VPP, which is asked for what it enforces already
// before the saved state is used.
func (c Config) keepsRules() bool {
	return c.VPPSocket != "" && c.ACLTarget != targetLigato && !slices.Contains(c.Renderers, rendererXDP)
}

// errNoNode says that a node has no name, and nodeRemedy what to do.
var errNoNode = errors.New("--node is needed")

const nodeRemedy = "name this node, as the spec.nodeName of its pods does"

func (c Config) checkNode(context.Context) preflight.Finding {
	if c.Node == "" {
		return preflight.Fail(errNoNode, nodeRemedy)
	}
	return preflight.Fine("%s", c.Node)
}

func (c Config) checkEtcd(context.Context) preflight.Finding {
	etcd, err := c.Etcd.Client()
	if err != nil {
		return preflight.Fail(err, "")
	}
	how := "without TLS"
	if etcd.TLS != nil {
		how = "with TLS"
	}
	return preflight.Fine("%s, %s", strings.Join(c.Etcd.Endpoints, ", "), how)
}

func (c Config) checkStateFile(context.Context) preflight.Finding {
	if c.StateFile == "" {
		return preflight.Fine("none: without etcd the agent starts with nothing")
	}
	if err := preflight.Folder(filepath.Dir(c.StateFile)); err != nil {
		return preflight.Warn(fmt.Errorf("--state-file: %w", err), "name a file in a folder where the agent may write; without it no state is there when etcd is not")
	}
	if err := preflight.Ours(c.StateFile); err != nil {
		return preflight.Warn(fmt.Errorf("--state-file: %w: it is not used", err), placeRemedy)
	}
	return preflight.Fine("%s", c.StateFile)
}

func (c Config) checkAPISocket(ctx context.Context) preflight.Finding {
	if _, err := c.apiGroup(); err != nil {
		return preflight.Fail(err, "")
	}
	if _, err := leftover(ctx, c.APISocket); err != nil {
		return preflight.Fail(fmt.Errorf("--api-socket: %w", err), socketRemedy)
	}
	if err := preflight.Ours(c.APISocket); err != nil {
		return preflight.Fail(fmt.Errorf("--api-socket: %w", err), placeRemedy)
	}
	if err := preflight.Folder(filepath.Dir(c.APISocket)); err != nil {
		return preflight.Fail(fmt.Errorf("--api-socket: %w", err), "choose another path, or start the agent as a user who may write there")
	}
	return preflight.Fine("%s", c.APISocket)
}

func (c Config) checkMetrics(ctx context.Context) preflight.Finding {
	if err := preflight.Address(ctx, c.MetricsAddress); err != nil {
		return preflight.Fail(fmt.Errorf("--metrics-address: %w", err), "choose another host:port")
	}
	return preflight.Fine("%s", c.MetricsAddress)
}

func (c Config) checkVPP(ctx context.Context) preflight.Finding {
	if err := vpp.CheckSocket(ctx, vpp.APINetwork, c.VPPSocket); err != nil {
		return preflight.Fail(fmt.Errorf("--vpp-socket: %w", err),
			vppRemedy(err, "start VPP, or name its socket with --vpp-socket; until it answers, nothing is enforced"))
	}
	return preflight.Fine("%s", c.VPPSocket)
}

func (c Config) checkStats(ctx context.Context) preflight.Finding {
	if err := vpp.CheckSocket(ctx, vpp.StatsNetwork, c.VPPStatsSocket); err != nil {
		return preflight.Warn(fmt.Errorf("--vpp-stats-socket: %w", err),
			vppRemedy(err, "put statseg { default } into VPP's startup.conf, or name the socket; until then rules have no packet counters"))
	}
	return preflight.Fine("%s", c.VPPStatsSocket)
}

// vppRemedy is what to do about a socket of VPP: a right is another matter than a VPP that is not
// there.
func vppRemedy(err error, otherwise string) string {
	if errors.Is(err, os.ErrPermission) {
		return "start the agent as that user or with that group, or set gid in VPP's startup.conf"
	}
	return otherwise
}

func (c Config) checkKernel(release string) preflight.Finding {
	note, err := xdp.CheckKernel(release, xdp.Mode(c.XDPMode), len(c.XDPUplinks) > 0)
	switch {
	case err != nil:
		return preflight.Fail(err, "use a newer kernel, or another renderer")
	case note != "":
		return preflight.Fine("%s; %s", release, note)
	}
	return preflight.Fine("%s", release)
}

func (c Config) checkRights(status string, err error) preflight.Finding {
	effective, errParse := xdp.EffectiveCapabilities(status)
	if err = errors.Join(err, errParse); err != nil {
		return preflight.Warn(fmt.Errorf("capabilities are not known: %w", err), "")
	}
	if missing := xdp.MissingCapabilities(effective); len(missing) > 0 {
		return preflight.Fail(fmt.Errorf("renderer xdp needs %s, which this process has not", strings.Join(missing, ", ")),
			"start the agent as root, or give its container these capabilities")
	}
	return preflight.Fine("none is missing")
}

func (c Config) checkPins(context.Context) preflight.Finding {
	if err := xdp.CheckPins(c.XDPPins); err != nil {
		return preflight.Fail(fmt.Errorf("--xdp-pins: %w", err), xdp.PinsRemedy)
	}
	return preflight.Fine("%s", c.XDPPins)
}

// checkOwner checks that this agent can own its folder for pins, where there can be one.
func (c Config) checkOwner(context.Context) preflight.Finding {
	if xdp.CheckPins(c.XDPPins) != nil {
		return preflight.Finding{}
	}
	err := xdp.CheckOwner(c.XDPPins, c.Node, c.TakeOver)
	var refused *xdp.PinsError
	switch {
	case errors.As(err, &refused):
		return preflight.Fail(fmt.Errorf("--xdp-pins: %w", refused.Problem), refused.Remedy)
	case err != nil:
		return preflight.Warn(fmt.Errorf("--xdp-pins: whose they are is not known: %w", err), "")
	}
	return preflight.Fine("nobody else has them")
}

func (c Config) checkUplinks(context.Context) preflight.Finding {
	if _, err := xdp.Indexes(c.XDPUplinks); err != nil {
		return preflight.Fail(fmt.Errorf("--xdp-uplink: %w", err), "ip link shows the interfaces of this node")
	}
	return preflight.Fine("%s", strings.Join(c.XDPUplinks, ", "))
}

// storeTime bounds the first answer of etcd, so that what follows in a check fits into its limit.
const storeTime = 1500 * time.Millisecond
