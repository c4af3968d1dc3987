package config

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/renderer/xdp"
)

// Link says what pods may send beside what policy is about.
type Link struct {
	NonIP       string `koanf:"non-ip"`
	Tunnels     string `koanf:"pod-tunnels"`
	TunnelPorts []int  `koanf:"pod-tunnel-ports"`
}

// Words of --non-ip and --pod-tunnels.
const (
	linkDrop  = "drop"
	linkAllow = "allow"
)

func linkFlags(f *pflag.FlagSet) {
	f.String("non-ip", linkDrop, "frames that are not IP, from and to pods that a policy isolates: drop, or allow; ARP passes with a pod's own addresses")
	f.String("pod-tunnels", linkDrop, "packets of pods that nodes may take out of a tunnel (GRE, IP in IP, and UDP to --pod-tunnel-ports): drop, or allow")
	var ports []int
	for _, p := range xdp.DefaultTunnelPorts {
		ports = append(ports, int(p))
	}
	f.IntSlice("pod-tunnel-ports", ports, "ports of UDP at which nodes may take packets out of a tunnel: VXLAN, Geneve; 8 at most; a client with such a port gets no answers")
}

// AllowsNonIP reports whether frames that are not IP pass.
func (l Link) AllowsNonIP() bool { return l.NonIP == linkAllow }

// AllowsTunnels reports whether packets pass that nodes may take out of a tunnel.
func (l Link) AllowsTunnels() bool { return l.Tunnels == linkAllow }

// Ports returns the ports of UDP at which nodes may take packets out of a tunnel, never nil.
func (l Link) Ports() []uint16 {
	out := []uint16{}
	for _, p := range l.TunnelPorts {
		out = append(out, uint16(p))
	}
	return out
}

// check checks the words and ports. Without --renderers xdp nothing is given.
func (l Link) check() error {
	for flag, word := range map[string]string{"non-ip": l.NonIP, "pod-tunnels": l.Tunnels} {
		if word != "" && word != linkDrop && word != linkAllow {
			return fmt.Errorf("--%s %q: want %s or %s", flag, word, linkDrop, linkAllow)
		}
	}
	if len(l.TunnelPorts) > xdp.MaxTunnelPorts {
		return fmt.Errorf("--pod-tunnel-ports: %d ports, want %d at most", len(l.TunnelPorts), xdp.MaxTunnelPorts)
	}
	for _, p := range l.TunnelPorts {
		if p < 1 || p > 65535 {
			return fmt.Errorf("--pod-tunnel-ports %d: want 1 to 65535", p)
		}
	}
	return nil
}
