package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/xdp"
)

func xdpFlags(f *pflag.FlagSet) {
	f.String("xdp-mode", string(xdp.ModeAuto), "where the kernel decides: auto (TCX at the node's ends of pairs, clsact where the kernel has no TCX), clsact, xdp, generic")
	f.String("xdp-netns", "/run/netns", "folder with the network namespaces of pods, as their container runtime leaves them")
	f.String("xdp-pins", xdp.DefaultPinPath, "folder of a bpf file system; what is pinned there goes on while the agent is not running")
	f.Bool("take-over", false, "take over pins in --xdp-pins that an agent with another --node left; for one start")
	f.StringSlice("xdp-uplink", nil, "interfaces at which packets to pods are dropped early, by XDP")
	f.Duration("xdp-learn", 30*time.Second, "for how long after a pod is attached the middle of a TCP flow that policy permits is taken for one that was open; 0 for not at all")
	f.Uint32("xdp-flows", xdp.DefaultFlows, "places for flows whose answers need evidence, 32 bytes each; half of as many fit almost without loss")
	f.Uint32("policy-memory", 128, "MiB that rules and the addresses that they name may take in the kernel, those of one namespace a quarter of it; pods whose rules are beyond are blocked; 0: no limit")
	f.Uint32("xdp-events", 100, "verdicts of packets that each processor tells in a second while sluicectl watch verdicts listens; 0 for none")
	f.Uint32("xdp-sample", 1, "of so many packets that could be told of, one is")
	f.Bool("xdp-any-source", false, "let pods send from addresses that are not theirs")
	f.String("non-ip", nonIPDrop, "frames that are not IP, from and to pods that a policy isolates: drop, or allow; ARP passes with a pod's own addresses")
	f.String("pod-tunnels", tunnelsDrop, "packets of pods that nodes may take out of a tunnel (GRE, IP in IP, and UDP to --pod-tunnel-ports): drop, or allow")
	f.IntSlice("pod-tunnel-ports", tunnelPorts(), "ports of UDP at which nodes may take packets out of a tunnel: VXLAN, Geneve; 8 at most; a client with such a port gets no answers")
	endpointFlags(f)
}

// Words of --non-ip and --pod-tunnels.
const (
	nonIPDrop    = "drop"
	nonIPAllow   = "allow"
	tunnelsDrop  = nonIPDrop
	tunnelsAllow = nonIPAllow
)

func tunnelPorts() (out []int) {
	for _, p := range xdp.DefaultTunnelPorts {
		out = append(out, int(p))
	}
	return out
}

// checkLink checks what pods may send beside what policy is about. Without --renderers xdp nothing is given.
func (c Config) checkLink() error {
	for flag, word := range map[string]string{"non-ip": c.NonIP, "pod-tunnels": c.PodTunnels} {
		if word != "" && word != nonIPDrop && word != nonIPAllow {
			return fmt.Errorf("--%s %q: want %s or %s", flag, word, nonIPDrop, nonIPAllow)
		}
	}
	if len(c.PodTunnelPorts) > xdp.MaxTunnelPorts {
		return fmt.Errorf("--pod-tunnel-ports: %d ports, want %d at most", len(c.PodTunnelPorts), xdp.MaxTunnelPorts)
	}
	for _, p := range c.PodTunnelPorts {
		if p < 1 || p > 65535 {
			return fmt.Errorf("--pod-tunnel-ports %d: want 1 to 65535", p)
		}
	}
	return nil
}

// xdp returns how the kernel enforces, nil when it does not.
func (a *Agent) xdp(infra renderer.Infra, established acl.Established) (*node.XDP, error) {
	if !slices.Contains(a.cfg.Renderers, rendererXDP) {
		return nil, nil
	}
	log := a.log.With("plugin", "xdp")
	uplinks, err := xdp.Indexes(a.cfg.XDPUplinks)
	if err != nil {
		return nil, fmt.Errorf("--xdp-uplink: %w", err)
	}
	ports := []uint16{}
	for _, p := range a.cfg.PodTunnelPorts {
		ports = append(ports, uint16(p))
	}
	k, err := xdp.NewKernel(xdp.KernelOptions{
		Log: log, Mode: xdp.Mode(a.cfg.XDPMode), PinPath: a.cfg.XDPPins, TakeOver: a.cfg.TakeOver,
		Owner: xdp.Owner{Node: a.cfg.Node, Version: version.Get().Version}, Infra: infra, AnySource: a.cfg.XDPAnySource,
		NonIP: a.cfg.NonIP == nonIPAllow, PodTunnels: a.cfg.PodTunnels == tunnelsAllow, TunnelPorts: ports,
		Flows: int(a.cfg.XDPFlows), Uplinks: uplinks,
	})
	if err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	a.kernel = k
	if err := a.keepEndpoints(); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return &node.XDP{
		Only: !slices.Contains(a.cfg.Renderers, rendererACL),
		Options: xdp.Options{
			Log: log, Plane: k, Keep: established == acl.Keep, Learn: a.cfg.XDPLearn, Infra: infra,
			Interfaces: a.endpoints.Interfaces, Enforced: a.endpoints.Enforced, Release: a.endpoints.Release,
			PolicyMemory: uint64(a.cfg.PolicyMemory) << 20,
		},
	}, nil
}

// listen returns who can listen to packets: nobody where the kernel does not enforce.
func (a *Agent) listen() *listeners {
	if a.kernel == nil {
		return newListeners(nil, xdp.Telling{}, nil, a.log)
	}
	most := xdp.Telling{PerSecond: a.cfg.XDPEvents, OneIn: a.cfg.XDPSample}
	return newListeners(a.kernel, most, a.packetVerdict, a.log.With("plugin", "xdp"))
}
