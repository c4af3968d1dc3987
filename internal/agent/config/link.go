package config

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/renderer/xdp"
)

// Link has the settings for traffic of pods that NetworkPolicy does not cover.
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
	f.String("non-ip", linkDrop, "non-IP frames from and to isolated pods: drop or allow; ARP with the pod's own addresses is always permitted")
	f.String("pod-tunnels", linkDrop, "tunnel packets from pods, which a node might decapsulate (GRE, IP in IP, UDP to --pod-tunnel-ports): drop or allow")
	var ports []int
	for _, p := range xdp.DefaultTunnelPorts {
		ports = append(ports, int(p))
	}
	f.IntSlice("pod-tunnel-ports", ports, "UDP ports at which nodes decapsulate (VXLAN, Geneve); at most 8; a client with such a source port gets no replies")
}

// AllowsNonIP reports whether non-IP frames are permitted.
func (l Link) AllowsNonIP() bool { return l.NonIP == linkAllow }

// AllowsTunnels reports whether tunnel packets from pods are permitted.
func (l Link) AllowsTunnels() bool { return l.Tunnels == linkAllow }

// Ports returns the UDP ports at which nodes decapsulate, never nil.
func (l Link) Ports() []uint16 {
	out := []uint16{}
	for _, p := range l.TunnelPorts {
		out = append(out, uint16(p))
	}
	return out
}

// check validates the words and ports. They are empty where --renderers has no xdp.
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
