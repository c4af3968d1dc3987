package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// flow is a row of the table that packets are made of, in the order of the network.
type flow struct {
	From, To         [4]byte
	FromPort, ToPort [2]byte
	Flags            uint32
}

// What packets are in a run.
const (
	established = "established" // 1k flows, again and again
	many        = "64k flows"   // 64k flows, again and again
	opening     = "new"         // SYNs of flows that nobody has seen
	denied      = "denied"      // SYNs to a port that is closed
	flowTable   = 65536
	endpoint    = 7
)

var modes = []string{established, many, opening, denied}

// members returns the peers: pods, or random blocks of 20 to 32 bits.
func members(kind string, n int) (out []netip.Prefix) {
	rng := rand.New(rand.NewPCG(3, uint64(n)))
	seen := map[netip.Prefix]bool{}
	for i := 0; len(out) < n; i++ {
		node := i / 110
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(10 + node>>16), byte(node >> 8), byte(node), byte(i%110 + 2)}), 32)
		if kind == "blocks" {
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
		p := peers[rng.IntN(len(peers))]
		a := binary.BigEndian.Uint32(p.Addr().AsSlice()) | rng.Uint32()>>p.Bits()
		if p.Bits() == 32 {
			a = binary.BigEndian.Uint32(p.Addr().AsSlice())
		}
		f := flow{To: [4]byte{10, 255, 0, 1}, Flags: 0x10}
		binary.BigEndian.PutUint32(f.From[:], a)
		binary.BigEndian.PutUint16(f.FromPort[:], uint16(1024+rng.IntN(60000)))
		binary.BigEndian.PutUint16(f.ToPort[:], 80)
		if mode == opening || mode == denied {
			f.Flags = 0x02
		}
		if mode == denied {
			binary.BigEndian.PutUint16(f.ToPort[:], 81)
		}
		out[i] = f
	}
	return out
}

// fill gives every program the same policy: TCP port 80 from all peers, and, with both, a
// closed list for what the pod sends, so that the classifier needs evidence. It returns how many bytes of maps each has its policy in.
func fill(c *ebpf.Collection, kind string, peers []netip.Prefix, both bool) (map[string]uint64, error) {
	lines, err := fillSluice(c, peers, both)
	used := map[string]uint64{"bench_sluice": uint64(lines) * compile.LineWords * compile.WordBytes}
	if err != nil || kind == "own" {
		return used, err
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

// fillSluice returns how many lines are in use.
func fillSluice(c *ebpf.Collection, peers []netip.Prefix, both bool) (int, error) {
	m := compile.NewImage(compile.Options{})
	m.Update(300, peers, nil)
	e := compile.Endpoint{
		ID: endpoint, IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 255, 0, 1})},
		ToPod: renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(300), Protocol: api.TCP, DstPort: api.Port(80)}, {}}, nil),
	}
	if both {
		e.FromPod = renderer.NewRuleList([]api.ContivRule{{}}, nil)
	}
	if err := m.Set(e); err != nil {
		return 0, err
	}
	p := m.Plan(false)
	if p.Lines > int(c.Maps["mem"].MaxEntries()) {
		return 0, fmt.Errorf("%d lines do not fit", p.Lines)
	}
	lines := m.Span(compile.Span{Lines: uint32(p.Lines)})
	keys := make([]uint32, len(lines))
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := c.Maps["mem"].BatchUpdate(keys, lines, nil); err != nil {
		return 0, fmt.Errorf("memory: %w", err)
	}
	return m.Use().Lines, c.Maps["ends"].Put(uint32(endpoint), uint64(m.Record(endpoint)))
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
