package config

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/lib/preflight"
)

// Node has the settings of the node.
type Node struct {
	Name         string   `koanf:"node"`
	Addresses    []string `koanf:"node-address"`
	AllowTraffic bool     `koanf:"allow-node-traffic"`
}

func nodeFlags(f *pflag.FlagSet) {
	f.String("node", "", "name of this node: pods with this spec.nodeName are local")
	f.StringSlice("node-address", nil, "additional addresses of this node, which its pods may always talk to")
	f.Bool("allow-node-traffic", true, "permit traffic between a pod and its own node whatever the policies")
}

// FurtherAddresses parses the additional addresses of the node.
func (n Node) FurtherAddresses() ([]netip.Addr, error) {
	var out []netip.Addr
	for _, s := range n.Addresses {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("--node-address %q is not an IP address", s)
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}

// ErrNoNode is returned when --node is empty.
var ErrNoNode = errors.New("--node is needed")

// NodeRemedy is what to do about ErrNoNode.
const NodeRemedy = "name this node, as the spec.nodeName of its pods does"

func (n Node) preflight() []preflight.Check {
	return []preflight.Check{check("node name", true, func(context.Context) preflight.Finding {
		if n.Name == "" {
			return preflight.Fail(ErrNoNode, NodeRemedy)
		}
		return preflight.Fine("%s", n.Name)
	})}
}
