package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// flow is a row of the table that packets are made of.
type flow struct {
	from   netip.AddrPort
	toPort uint16
	flags  uint32
}

// row4 and row6 are how programs read a flow, in the order of the network.
type row4 struct {
	From, To         [4]byte
	FromPort, ToPort [2]byte
	Flags            uint32
}

type row6 struct {
	From, To         [16]byte
	FromPort, ToPort [2]byte
	Flags            uint32
}

func (f flow) row4() row4 {
	return row4{f.from.Addr().As4(), ip4.pod.As4(), inOrder(f.from.Port()), inOrder(f.toPort), f.flags}
}

func (f flow) row6() row6 {
	return row6{f.from.Addr().As16(), ip6.pod.As16(), inOrder(f.from.Port()), inOrder(f.toPort), f.flags}
}

func inOrder(port uint16) [2]byte { return [2]byte{byte(port >> 8), byte(port)} }

// family is what there is of each family of addresses.
type family struct {
	pod          netip.Addr // to which all packets go
	empty, flows string     // program, and map of the flows
}

var (
	ip4 = family{netip.MustParseAddr("10.255.0.1"), "bench_empty", "bench_flows"}
	ip6 = family{netip.MustParseAddr("fd00:ffff::1"), "bench_empty6", "bench_flows6"}
)

// rows are flows as the programs of a family read them.
func (f family) rows(all []flow) any {
	if f.pod.Is6() {
		return each(all, flow.row6)
	}
	return each(all, flow.row4)
}

// designs are those that were made for a family.
func (f family) designs() []design {
	if f.pod.Is6() {
		return designs6
	}
	return designs
}

func each[T any](all []flow, row func(flow) T) (out []T) {
	for _, f := range all {
		out = append(out, row(f))
	}
	return out
}

// familyOf returns the family of a kind of addresses.
func familyOf(kind string) family {
	if kind == "pods6" {
		return ip6
	}
	return ip4
}

// What packets are in a run.
const (
	established = "established" // 1k flows, again and again
	many        = "64k flows"   // 64k flows, again and again
	opening     = "new"         // SYNs of new flows
	denied      = "denied"      // SYNs to a port that is closed
	flowTable   = 65536
	endpoint    = 7
)

var modes = []string{established, many, opening, denied}

// members returns the peers: pods, 110 on a node, or random blocks of 20 to 32 bits.
func members(kind string, n int) (out []netip.Prefix) {
	rng := rand.New(rand.NewPCG(3, uint64(n)))
	seen := map[netip.Prefix]bool{}
	for i := 0; len(out) < n; i++ {
		node := i / 110
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(10 + node>>16), byte(node >> 8), byte(node), byte(i%110 + 2)}), 32)
		switch kind {
		case "pods6":
			p = netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 6: byte(node >> 8), 7: byte(node), 15: byte(i%110 + 2)}), 128)
		case "blocks":
			p = netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(1 + rng.IntN(169)), byte(rng.IntN(256)), byte(rng.IntN(256)), byte(rng.IntN(256))}), 20+rng.IntN(13)).Masked()
		}
		if !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

// flows returns the packets of a run.
func flows(peers []netip.Prefix, mode string, rng *rand.Rand) []flow {
	out := make([]flow, flowTable)
	distinct := flowTable
	if mode == established {
		distinct = 1024
	}
	for i := range out {
		if i >= distinct {
			out[i] = out[i%distinct]
			continue
		}
		f := flow{from: netip.AddrPortFrom(within(peers[rng.IntN(len(peers))], rng), uint16(1024+rng.IntN(60000))), toPort: 80, flags: 0x10}
		if mode == opening || mode == denied {
			f.flags = 0x02
		}
		if mode == denied {
			f.toPort = 81
		}
		out[i] = f
	}
	return out
}

// within returns an address of a block, or the only one.
func within(p netip.Prefix, rng *rand.Rand) netip.Addr {
	if p.IsSingleIP() {
		return p.Addr()
	}
	a := p.Addr().As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])|rng.Uint32()>>p.Bits())
	return netip.AddrFrom4(a)
}

// fill gives every program the same policy: TCP port 80 from all peers. It returns how many bytes
// of maps each has its policy in.
func fill(c *ebpf.Collection, peers []netip.Prefix) (map[string]uint64, error) {
	one, both := endpointOf(endpoint), endpointOf(endpoint+1)
	both.FromPod = renderer.NewRuleList([]api.ContivRule{{}}, nil) // restricted, so that replies need a tracked connection
	if err := fillSluice(c, peers, one, both); err != nil {
		return nil, err
	}
	used := map[string]uint64{}
	for _, own := range []struct {
		end      compile.Endpoint
		programs []string
	}{{one, []string{"bench_sluice", "bench_sluice6"}}, {both, []string{"bench_both", "bench_both6"}}} {
		m, _, err := compiled(peers, own.end)
		if err != nil {
			return nil, err
		}
		for _, p := range own.programs {
			used[p] = uint64(m.Use().Lines) * compile.LineWords * compile.WordBytes
		}
	}
	if peers[0].Addr().Is6() {
		return used, nil
	}
	if err := fillOthers(c, peers); err != nil {
		return nil, err
	}
	for program, names := range map[string][]string{"bench_lpm": {"bench_prefixes", "bench_wide"}, "bench_identity": {"bench_identities", "bench_policy"}} {
		for _, name := range names {
			info, err := c.Maps[name].Info()
			if err != nil {
				return nil, err
			}
			b, ok := info.Memlock()
			if !ok {
				continue // the kernel does not say
			}
			used[program] += b
		}
	}
	used["bench_linear"] = uint64(len(peers)) * uint64(c.Maps["bench_linear_rules"].ValueSize())
	return used, nil
}

// endpointOf is a pod with the policy.
func endpointOf(id uint32) compile.Endpoint {
	return compile.Endpoint{
		ID: id, IPs: []netip.Addr{ip4.pod, ip6.pod},
		ToPod: renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(300), Protocol: api.TCP, DstPort: api.Port(80)}, {}}, nil),
	}
}

// compiled returns the memory of endpoints, and what is to be written of it.
func compiled(peers []netip.Prefix, ends ...compile.Endpoint) (*compile.Image, compile.Plan, error) {
	m := compile.NewImage(compile.Options{})
	m.Update(300, peers, nil)
	for _, e := range ends {
		if err := m.Set(e); err != nil {
			return nil, compile.Plan{}, err
		}
	}
	return m, m.Plan(false), nil
}

// fillSluice writes the memory of endpoints to a collection.
func fillSluice(c *ebpf.Collection, peers []netip.Prefix, ends ...compile.Endpoint) error {
	m, p, err := compiled(peers, ends...)
	if err != nil {
		return err
	}
	lines := make([]compile.Line, p.Lines)
	_ = m.Parts(compile.Span{Lines: uint32(p.Lines)}, func(line uint32, content []compile.Line) error { copy(lines[line:], content); return nil })
	if err := place(c.Maps[bpf.SluiceMapPolicy], 0, lines); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	for _, e := range ends {
		if err := place(c.Maps[bpf.SluiceMapEndpoints], 8*int(e.ID), uint64(m.Record(e.ID))); err != nil {
			return fmt.Errorf("endpoints: %w", err)
		}
	}
	return nil
}

// place writes values into memory that programs read in place, at a byte.
func place(m *ebpf.Map, at int, values any) error {
	whole, err := m.LookupBytes(uint32(0))
	if err != nil {
		return err
	}
	if _, err := binary.Encode(whole[at:], binary.NativeEndian, values); err != nil {
		return err
	}
	return m.Put(uint32(0), whole)
}

type lpmKey struct {
	Bits uint32
	Addr [4]byte
}

type portList struct {
	Entry [24]struct {
		Protocol    uint32
		First, Last uint16
	}
}

type policyKey struct {
	Bits, Identity uint32
	Protocol, Zero uint8
	Port           [2]byte
}

type linearRule struct {
	Addr, Mask, Protocol uint32
	First, Last          uint16
}

// fillOthers fills the maps of the re-created designs.
func fillOthers(c *ebpf.Collection, peers []netip.Prefix) error {
	var one portList
	one.Entry[0].Protocol, one.Entry[0].First, one.Entry[0].Last = 6, 80, 80
	for _, pod := range []uint32{endpoint, endpoint + 1} {
		if err := c.Maps["bench_pods"].Put(pod, uint32(0)); err != nil {
			return fmt.Errorf("pods: %w", err)
		}
	}
	if err := c.Maps["bench_wide"].Put(lpmKey{}, portList{}); err != nil {
		return fmt.Errorf("wide prefixes: %w", err)
	}
	for i, p := range peers {
		k := lpmKey{Bits: uint32(p.Bits()), Addr: p.Addr().As4()}
		identity := uint32(i%1000 + 1)
		if err := c.Maps["bench_prefixes"].Put(k, one); err != nil {
			return fmt.Errorf("prefixes: %w", err)
		}
		if err := c.Maps["bench_identities"].Put(k, identity); err != nil {
			return fmt.Errorf("identities: %w", err)
		}
		if err := c.Maps["bench_policy"].Put(policyKey{Bits: 64, Identity: identity, Protocol: 6, Port: [2]byte{0, 80}}, uint32(1)); err != nil {
			return fmt.Errorf("policy: %w", err)
		}
		if i < 16384 {
			mask := ^uint32(0) << (32 - p.Bits())
			a := p.Addr().As4()
			if err := c.Maps["bench_linear_rules"].Put(uint32(i), linearRule{binary.BigEndian.Uint32(a[:]), mask, 6, 80, 80}); err != nil {
				return fmt.Errorf("rules: %w", err)
			}
		}
	}
	return c.Variables["bench_rules"].Set(uint32(min(len(peers), 16384)))
}
