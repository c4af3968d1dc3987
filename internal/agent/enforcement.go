package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

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

// pauseBudget reads the share of time for which changes may pause VPP; none for an embedded
// dataplane, which no change pauses.
func (c Config) pauseBudget() (share float64, err error) {
	if c.VPPPauseBudget == "" {
		return 0, nil
	}
	number, ok := strings.CutSuffix(c.VPPPauseBudget, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(percent > 0 && percent <= 100) { // nor not a number
		return 0, fmt.Errorf("--vpp-pause-budget %q: want a percentage above 0%%, and at most 100%%", c.VPPPauseBudget)
	}
	return percent / 100, nil
}

// services reads the addresses of services.
func (c Config) services() (out []netip.Prefix, err error) {
	for _, s := range c.ServiceCIDRs {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil || p.Bits() == 0 || p.Addr().Is4In6() {
			return nil, fmt.Errorf("--service-cidr %q: want a block of addresses, such as 10.96.0.0/12", s)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// node returns the settings of the node.
func (c Config) node() (node.Config, error) {
	addresses, err := c.nodeAddresses()
	established, errEstablished := c.established()
	orientation, errOrientation := c.orientation()
	infra, errInfra := c.infra()
	budget, errBudget := c.pauseBudget()
	services, errServices := c.services()
	return node.Config{
		Name: c.Node, Addresses: func() []netip.Addr { return addresses }, AllowNode: c.AllowNodeTraffic,
		VPPSocket: c.VPPSocket, VPPStatsSocket: c.VPPStatsSocket, ACLMemory: uint64(c.ACLMemory) << 20,
		Timeout: c.VPPTimeout, Uplinks: c.Uplinks, HoldUnknown: c.HoldUnknownPods,
		Established: established, Orientation: orientation, Grace: c.Grace, UDPIdle: c.UDPIdle, Sessions: c.SessionTable, Infra: infra,
		PauseBudget: budget, Services: services,
	}, errors.Join(err, errEstablished, errOrientation, errInfra, errBudget, errServices)
}
