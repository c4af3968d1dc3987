package secgroup

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// API is a Neutron. Package neutron has the real one.
type API interface {
	// Inventory returns the groups and address groups whose names have the prefix, all their rules,
	// and the ports.
	Inventory(ctx context.Context, prefix string) (*Inventory, error)
	// Ports returns the ports that may be ports of pods.
	Ports(ctx context.Context) ([]Port, error)
	// Apply executes one call that changes something. After an error it may have been executed or
	// not.
	Apply(ctx context.Context, op Op) (Result, error)
}

// Inventory is what a Neutron holds.
type Inventory struct {
	Groups        []Group
	AddressGroups []AddressGroup
	Ports         []Port
}

// Group is a security group.
type Group struct {
	ID, Name string
	Rules    []InstalledRule
}

// InstalledRule is a rule with its ID.
type InstalledRule struct {
	ID string
	Rule
}

// Rule is a rule of a security group. It permits what matches all its fields. Rules are comparable.
type Rule struct {
	Direction api.Direction // seen from the pod
	IPv6      bool
	Protocol  api.Protocol // AnyProtocol matches every protocol
	// First and Last are a range of destination ports; both are zero for any port.
	First, Last uint16
	Remote      netip.Prefix // invalid: every address of the family
	// AddressGroup is the ID of an address group whose addresses match. It excludes Remote.
	AddressGroup string
	// Foreign describes anything else that the rule matches. No rule of Sluice has such a part.
	Foreign string
}

// Compare orders rules.
func (r Rule) Compare(o Rule) int {
	return cmp.Or(cmp.Compare(r.Direction, o.Direction), compareBool(r.IPv6, o.IPv6), cmp.Compare(r.Protocol, o.Protocol),
		cmp.Compare(r.First, o.First), cmp.Compare(r.Last, o.Last), r.Remote.Addr().Compare(o.Remote.Addr()),
		cmp.Compare(r.Remote.Bits(), o.Remote.Bits()), cmp.Compare(r.AddressGroup, o.AddressGroup), cmp.Compare(r.Foreign, o.Foreign))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// AddressGroup is a list of prefixes that rules name.
type AddressGroup struct {
	ID, Name  string
	Addresses []netip.Prefix
}

// Port is a port of a network.
type Port struct {
	ID       string
	Name     string
	Network  string // ID of the network
	Device   string // ID of the device
	Tags     []string
	IPs      []netip.Addr // fixed addresses
	Groups   []string     // IDs of its security groups
	Revision int          // number of its last change
	// Unprotected is set when port security is disabled, so that groups have no effect.
	Unprotected bool
}

// hasExactly reports whether the port has exactly these groups.
func (p *Port) hasExactly(groups []string) bool {
	has := slices.Sorted(slices.Values(p.Groups))
	return slices.Equal(has, slices.Sorted(slices.Values(groups)))
}

// covered returns how many of the addresses of the port are among those of a pod.
func (p *Port) covered(addrs []netip.Addr) (n int) {
	for _, a := range p.IPs {
		if slices.Contains(addrs, a.Unmap()) {
			n++
		}
	}
	return n
}

// OpKind is a kind of call that changes something.
type OpKind uint8

// The calls.
const (
	CreateGroup        OpKind = iota // Name; Result has the new ID and the rules that it has from the start
	CreateRules                      // Rules of the group ID, all or none; Result has their IDs
	DeleteRule                       // ID of the rule
	DeleteGroup                      // ID; ErrInUse while a port has it
	CreateAddressGroup               // Name, Addresses; Result has the new ID
	AddAddresses                     // Addresses to the address group ID
	RemoveAddresses                  // Addresses from the address group ID
	DeleteAddressGroup               // ID; ErrInUse while a rule names it
	SetGroups                        // Groups of the port ID, if it still has the Revision; Result has the new one
)

var opNames = [...]string{
	CreateGroup: "create security group", CreateRules: "create rules of security group", DeleteRule: "delete security group rule",
	DeleteGroup: "delete security group", CreateAddressGroup: "create address group", AddAddresses: "add to address group",
	RemoveAddresses: "remove from address group", DeleteAddressGroup: "delete address group", SetGroups: "set security groups of port",
}

// String returns what the call does.
func (k OpKind) String() string { return opNames[k] }

// Op is a call that changes something. Which fields are set depends on Kind.
type Op struct {
	Kind      OpKind
	ID, Name  string
	Rules     []Rule
	Addresses []netip.Prefix
	Groups    []string
	Revision  int
}

// Result is the answer to a call.
type Result struct {
	ID       string
	Rules    []InstalledRule
	Revision int
}
