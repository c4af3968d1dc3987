package neutron

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/secgroup"
)

// group is a security group as Neutron describes it.
type group struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Rules []rule `json:"security_group_rules"`
}

func (g group) id() string { return g.ID }

// rule is a rule as Neutron describes it. Fields that are null differ from those that are zero.
type rule struct {
	ID           string  `json:"id"`
	Direction    string  `json:"direction"`
	EtherType    string  `json:"ethertype"`
	Protocol     *string `json:"protocol"`
	Min          *int    `json:"port_range_min"`
	Max          *int    `json:"port_range_max"`
	RemotePrefix *string `json:"remote_ip_prefix"`
	RemoteGroup  *string `json:"remote_group_id"`
	AddressGroup *string `json:"remote_address_group_id"`
}

// addressGroup is an address group as Neutron describes it.
type addressGroup struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
}

func (a addressGroup) id() string { return a.ID }

// port is a port as Neutron describes it.
type port struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Network  string   `json:"network_id"`
	Device   string   `json:"device_id"`
	Tags     []string `json:"tags"`
	Groups   []string `json:"security_groups"`
	Revision int      `json:"revision_number"`
	Security *bool    `json:"port_security_enabled"`
	FixedIPs []struct {
		Address string `json:"ip_address"`
	} `json:"fixed_ips"`
}

func (p port) id() string { return p.ID }

func (p port) port() secgroup.Port {
	out := secgroup.Port{
		ID: p.ID, Name: p.Name, Network: p.Network, Device: p.Device, Tags: p.Tags, Groups: p.Groups, Revision: p.Revision,
		Unprotected: p.Security != nil && !*p.Security,
	}
	for _, f := range p.FixedIPs {
		if a, err := netip.ParseAddr(f.Address); err == nil {
			out.IPs = append(out.IPs, a.Unmap())
		}
	}
	return out
}

func installed(of []rule) (out []secgroup.InstalledRule) {
	for _, r := range of {
		out = append(out, secgroup.InstalledRule{ID: r.ID, Rule: r.rule()})
	}
	return out
}

// protocols are names of Neutron that api.ParseProtocol does not know.
var protocols = map[string]api.Protocol{"ipv6-icmp": api.ICMPv6}

// rule returns what the rule permits. What Sluice never installs is described in Foreign.
func (r rule) rule() secgroup.Rule {
	out := secgroup.Rule{IPv6: r.EtherType == "IPv6"}
	switch r.Direction {
	case "ingress":
		out.Direction = api.Ingress
	case "egress":
		out.Direction = api.Egress
	default:
		out.Foreign += fmt.Sprintf(" direction %q", r.Direction)
	}
	r.protocol(&out)
	r.remote(&out)
	return out
}

func (r rule) protocol(out *secgroup.Rule) {
	if r.Protocol != nil {
		p, err := api.ParseProtocol(*r.Protocol)
		if named, ok := protocols[*r.Protocol]; ok {
			p, err = named, nil
		}
		if err != nil || p == api.AnyProtocol {
			out.Foreign += fmt.Sprintf(" protocol %.20q", *r.Protocol)
		}
		out.Protocol = p
	}
	switch {
	case r.Min == nil && r.Max == nil:
	case r.Min == nil || r.Max == nil || !out.Protocol.HasPorts() || *r.Min < 1 || *r.Max > 65535 || *r.Min > *r.Max:
		out.Foreign += fmt.Sprintf(" range %s to %s", number(r.Min), number(r.Max))
	default:
		out.First, out.Last = uint16(*r.Min), uint16(*r.Max)
	}
}

func number(n *int) string {
	if n == nil {
		return "none"
	}
	return strconv.Itoa(*n)
}

func (r rule) remote(out *secgroup.Rule) {
	if r.RemotePrefix != nil {
		p, err := netip.ParsePrefix(*r.RemotePrefix)
		switch {
		case err != nil || p.Addr().Is4() == out.IPv6:
			out.Foreign += fmt.Sprintf(" remote %.50q", *r.RemotePrefix)
		case p.Bits() > 0:
			out.Remote = p.Masked()
		}
	}
	if r.RemoteGroup != nil {
		out.Foreign += fmt.Sprintf(" remote group %.40q", *r.RemoteGroup)
	}
	if r.AddressGroup != nil {
		out.AddressGroup = *r.AddressGroup
	}
}

// optsOf returns the request that creates a rule.
func optsOf(group string, r secgroup.Rule) rules.CreateOpts {
	o := rules.CreateOpts{
		SecGroupID: group, Direction: rules.DirIngress, EtherType: rules.EtherType4,
		PortRangeMin: int(r.First), PortRangeMax: int(r.Last), RemoteAddressGroupID: r.AddressGroup,
	}
	if r.Direction == api.Egress {
		o.Direction = rules.DirEgress
	}
	if r.IPv6 {
		o.EtherType = rules.EtherType6
	}
	if r.Protocol != api.AnyProtocol {
		o.Protocol = rules.RuleProtocol(strconv.Itoa(int(r.Protocol)))
	}
	if r.Remote.IsValid() {
		o.RemoteIPPrefix = r.Remote.String()
	}
	return o
}
