package main

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
)

// family is a family of addresses, and what a cluster has of it. Machines are in the networks for
// documentation (RFC 5737, RFC 3849); between a kernel and its VPP is one for benchmarks (RFC
// 2544).
type family struct {
	name           string // in VPP's commands
	any, all       string // the address, and the network, that are everything
	machine        string // format of a machine's address
	bits, length   int    // of the network of machines, and of an address
	link           string // format of an address between a node's kernel and its VPP
	pods, services string // networks
	node, gateway  string // formats of a node's part of the pods' network, and of its first address
	service        string // format of a service's address
	localhost      string
}

var (
	ipv4 = family{
		name: "ip4", any: "0.0.0.0", all: "0.0.0.0/0", localhost: "127.0.0.1", machine: "192.0.2.%d", bits: 24, length: 32, link: "198.18.%d.%d",
		pods: "10.244.0.0/16", node: "10.244.%d.0/24", gateway: "10.244.%d.1", services: "10.96.0.0/16", service: "10.96.0.%d",
	}
	ipv6 = family{
		name: "ip6", any: "::", all: "::/0", localhost: "::1", machine: "2001:db8::%x", bits: 64, length: 128, link: "2001:db8:%x::%x",
		pods: "fd00:10:244::/48", node: "fd00:10:244:%x::/64", gateway: "fd00:10:244:%x::1", services: "fd00:10:96::/112", service: "fd00:10:96::%x",
	}
)

// families are those that a cluster can have. The first one of each is that of the control plane.
var families = map[string][]family{"ipv4": {ipv4}, "ipv6": {ipv6}, "dual": {ipv4, ipv6}}

func familyNames() string { return strings.Join(slices.Sorted(maps.Keys(families)), ", ") }

// main is the family in which parts of the control plane talk.
func (s *settings) main() family { return families[s.Family][0] }

// each returns something of every family, separated by commas as Kubernetes wants it.
func (s *settings) each(of func(family) string) string {
	var out []string
	for _, f := range families[s.Family] {
		out = append(out, of(f))
	}
	return strings.Join(out, ",")
}

func (f family) control() string            { return fmt.Sprintf(f.machine, 1) }
func (f family) nodeIP(n int) string        { return fmt.Sprintf(f.machine, 10+n) }
func (f family) vppIP(n int) string         { return fmt.Sprintf(f.machine, 20+n) }
func (f family) hostLink(n, end int) string { return fmt.Sprintf(f.link, n, end) }
func (f family) podNet(n int) string        { return fmt.Sprintf(f.node, n) }
func (f family) gatewayOf(n int) string     { return fmt.Sprintf(f.gateway, n) }
func (f family) serviceIP(n int) string     { return fmt.Sprintf(f.service, n) }
func (f family) kubernetes() string         { return f.serviceIP(1) }
func (f family) dns() string                { return f.serviceIP(10) }
func (f family) listen(port string) string  { return net.JoinHostPort(f.any, port) }

// at returns an address of the control machine with a port.
func (s *settings) at(port string) string { return net.JoinHostPort(s.main().control(), port) }
