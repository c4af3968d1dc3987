package config

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// VPP has the settings of the connection to VPP and of its ACLs. The embedded dataplane uses those
// of ACLs only.
type VPP struct {
	Socket       string        `koanf:"vpp-socket"` // empty: the dataplane is embedded
	StatsSocket  string        `koanf:"vpp-stats-socket"`
	Timeout      time.Duration `koanf:"vpp-timeout"`
	Uplinks      []string      `koanf:"uplink"`
	BlockUnknown bool          `koanf:"block-unknown-pods"`
	Orientation  string        `koanf:"acl-orientation"`
	Memory       uint32        `koanf:"acl-memory"`
	Grace        time.Duration `koanf:"grace-period"`
	UDPIdle      time.Duration `koanf:"udp-idle-timeout"`
	Sessions     uint32        `koanf:"session-table"`
	Services     []string      `koanf:"service-cidr"`
	Traces       []string      `koanf:"vpp-traces"`
	PluginMemory string        `koanf:"vpp-plugin-memory"`
}

// vswitchFlags adds the flags of every vswitch, the embedded one included.
func vswitchFlags(f *pflag.FlagSet) {
	f.StringSlice("uplink", nil, "names of the node's uplink interfaces, in addition to those with the uplink tag")
	f.String("acl-orientation", acl.Outputs.String(), "where egress rules are applied: outputs (where packets leave VPP) or split (at the pod's own interface, "+
		"for a VPP that translates source addresses before output); split needs --established=keep")
	f.Duration("vpp-timeout", 5*time.Second, "timeout of one call to the dataplane")
	f.Uint32("acl-memory", 0, "MiB of the vswitch's memory that ACLs may use; rule lists beyond it are refused; 0: derived from the size of VPP's heap")
}

func vppFlags(f *pflag.FlagSet) {
	f.String("vpp-socket", "/run/vpp/api.sock", "Unix socket of VPP's binary API")
	f.String("vpp-stats-socket", "/run/vpp/stats.sock", "socket of VPP's statistics segment, source of rules' packet counters and of the size of VPP's heap; empty: neither is read")
	f.Bool("block-unknown-pods", true, "block pods' interfaces until the pod behind each is known and its policy is enforced")
	f.Duration("grace-period", 5*time.Minute, "how long after VPP's start pods may continue connections that they opened before it; 0: not at all")
	f.StringSlice("service-cidr", nil, "CIDRs of services that VPP translates to pod addresses (CNAT, nat44); policy for packets to them applies after translation; none: VPP translates no services")
	f.StringSlice("vpp-traces", nil, "input nodes of VPP, such as memif-input, of which sluicectl watch verdicts traces packets, 20 of each node and worker in a second; none: verdicts have no addresses and ports")
	f.String("vpp-plugin-memory", "/run/sluice/vpp-plugin", "directory of the memory that --renderers vpp-plugin shares with Sluice's plugin in VPP; both must see it by this path")
	f.Duration("udp-idle-timeout", 2*time.Minute, "idle timeout of VPP's UDP sessions; 0: keep VPP's setting, 10 minutes by default")
	f.Uint32("session-table", 0, "most ACL sessions in VPP, for all pods together; once an interface has ACLs, the size of the existing table is the limit; 0: keep VPP's setting, 500000 by default")
}

// options returns the options of the ACL renderer.
func (v VPP) options(e Enforce) (acl.Options, error) {
	o := acl.Options{
		Socket:  v.Socket,
		Stats:   acl.Stats{Socket: v.StatsSocket},
		Timeout: v.Timeout,
		Uplinks: v.Uplinks,
		Pods:    acl.Pods{BlockUnknown: v.BlockUnknown},
		Memory:  uint64(v.Memory) << 20,
		Flows:   acl.Flows{Grace: v.Grace, UDPIdle: v.UDPIdle, SessionTable: v.Sessions},
	}
	var errEstablished, errOrientation, errInfra, errServices error
	if e.Established != "" && o.Flows.Established.UnmarshalText([]byte(e.Established)) != nil {
		errEstablished = fmt.Errorf("--established %q: want revoke or keep", e.Established)
	}
	if v.Orientation != "" && o.Orientation.UnmarshalText([]byte(v.Orientation)) != nil {
		errOrientation = fmt.Errorf("--acl-orientation %q: want outputs or split", v.Orientation)
	} else if o.Orientation == acl.Split && !e.Keeps() {
		errOrientation = errors.New("--acl-orientation split: want --established keep beside it, since VPP does not know there which side opened a connection")
	}
	o.Infra, errInfra = e.Exempt()
	o.Services, errServices = v.services()
	return o, errors.Join(errEstablished, errOrientation, errInfra, errServices, v.checkTraces())
}

// node is the name of a node of VPP. It becomes a part of a command.
var node = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

func (v VPP) checkTraces() error {
	for _, name := range v.Traces {
		if !node.MatchString(name) {
			return fmt.Errorf("--vpp-traces %.100q: want the name of an input node of VPP, such as memif-input", name)
		}
	}
	return nil
}

// services parses the CIDRs of services.
func (v VPP) services() (out []netip.Prefix, err error) {
	for _, s := range v.Services {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil || p.Bits() == 0 || p.Addr().Is4In6() {
			return nil, fmt.Errorf("--service-cidr %q: want a block of addresses, such as 10.96.0.0/12", s)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func (v VPP) preflight() []preflight.Check {
	out := []preflight.Check{check("vpp socket", false, func(ctx context.Context) preflight.Finding {
		if err := vpp.CheckSocket(ctx, vpp.APINetwork, v.Socket); err != nil {
			return preflight.Fail(fmt.Errorf("--vpp-socket: %w", err),
				vppRemedy(err, "start VPP, or name its socket with --vpp-socket; until it answers, nothing is enforced"))
		}
		return preflight.Fine("%s", v.Socket)
	})}
	if v.StatsSocket == "" {
		return out
	}
	return append(out, check("vpp stats socket", false, func(ctx context.Context) preflight.Finding {
		if err := vpp.CheckSocket(ctx, vpp.StatsNetwork, v.StatsSocket); err != nil {
			return preflight.Warn(fmt.Errorf("--vpp-stats-socket: %w", err),
				vppRemedy(err, "put statseg { default } into VPP's startup.conf, or name the socket; until then rules have no packet counters"))
		}
		return preflight.Fine("%s", v.StatsSocket)
	}))
}

// vppRemedy returns the remedy for a problem with a socket of VPP: a hint about permissions, or
// otherwise for any other problem.
func vppRemedy(err error, otherwise string) string {
	if errors.Is(err, os.ErrPermission) {
		return "start the agent as that user or with that group, or set gid in VPP's startup.conf"
	}
	return otherwise
}
