package agent

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
)

// Words of --infra.
const (
	infraNeighbours = "neighbours"
	infraErrors     = "icmp-errors"
)

// infra reads what passes whatever policies say.
func (c Config) infra() (renderer.Infra, error) {
	out := renderer.Infra{NoNeighbours: true, NoErrors: true}
	for _, s := range c.Infra {
		prefix, err := netip.ParsePrefix(s)
		if a, e := netip.ParseAddr(s); e == nil {
			prefix, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		switch {
		case s == infraNeighbours:
			out.NoNeighbours = false
		case s == infraErrors:
			out.NoErrors = false
		case err == nil:
			out.Addresses = append(out.Addresses, prefix)
		default:
			return out, fmt.Errorf("--infra %q: want %s, %s, an address or a CIDR", s, infraNeighbours, infraErrors)
		}
	}
	if _, err := out.Check(); err != nil {
		return out, fmt.Errorf("--infra: %w", err)
	}
	return out, nil
}

// established reads what becomes of open flows.
func (c Config) established() (e acl.Established, err error) {
	if c.Established == "" {
		return acl.Revoke, nil
	}
	if err := e.UnmarshalText([]byte(c.Established)); err != nil {
		return e, fmt.Errorf("--established %q: want revoke or keep", c.Established)
	}
	return e, nil
}

// orientation reads where packets meet the rules for what pods send.
func (c Config) orientation() (o acl.Orientation, err error) {
	if c.ACLOrientation == "" {
		return acl.Outputs, nil
	}
	if err := o.UnmarshalText([]byte(c.ACLOrientation)); err != nil {
		return o, fmt.Errorf("--acl-orientation %q: want outputs or split", c.ACLOrientation)
	}
	if o == acl.Split && c.Established != acl.Keep.String() {
		return o, errors.New("--acl-orientation split: want --established keep beside it, since VPP cannot tell there who opened a flow")
	}
	return o, nil
}

// node returns the settings of the node.
func (c Config) node() (node.Config, error) {
	addresses, err := c.nodeAddresses()
	established, errEstablished := c.established()
	orientation, errOrientation := c.orientation()
	infra, errInfra := c.infra()
	return node.Config{
		Name: c.Node, Addresses: addresses, AllowNode: c.AllowNodeTraffic,
		VPPSocket: c.VPPSocket, VPPStatsSocket: c.VPPStatsSocket, ACLMemory: uint64(c.ACLMemory) << 20,
		Timeout: c.VPPTimeout, Uplinks: c.Uplinks, HoldUnknown: c.HoldUnknownPods,
		Established: established, Orientation: orientation, Grace: c.Grace, UDPIdle: c.UDPIdle, Infra: infra,
	}, errors.Join(err, errEstablished, errOrientation, errInfra)
}
