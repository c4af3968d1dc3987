package bench

import (
	"fmt"
	"testing"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	binapi "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/vpp/vpptest"
)

// BenchmarkVPPStall is BenchmarkStall on a real VPP: a stall is the time in which VPP
// answers a change, the way over the socket included.
func BenchmarkVPPStall(b *testing.B) {
	const interfaces = 100
	for _, members := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("%d-addresses", members), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				p := vpptest.NewNetwork(vpptest.Launch(b))
				w := &wire{VppAPI: socketclient.NewVppClient(p.Socket()), asked: map[uint32]time.Time{}}
				r := share(b, w, interfaces, func(tag string) { p.Add(tag) })
				table := replaced(b, p, members+1)
				b.StartTimer()
				costs := live(b, r, w, members, func() cost { return table })
				b.StopTimer()
				for kind, of := range costs {
					reportCosts(b, kind+":", of)
				}
				b.StartTimer()
			}
		})
	}
}

// replaced is what it costs to replace a table of some entries whole that all pods
// share: the least of five times. The table is gone afterwards.
func replaced(b *testing.B, p *vpptest.Network, entries int) cost {
	b.Helper()
	client := binapi.NewServiceClient(p.Conn)
	rules := make([]acl_types.ACLRule, entries)
	first := 0
	fill := func() { // with other addresses each time
		for i := range rules {
			rules[i] = ruleFor(first + i)
		}
		first++
	}
	put := func(index uint32) uint32 {
		fill()
		r, err := client.ACLAddReplace(b.Context(), &binapi.ACLAddReplace{ACLIndex: index, Tag: "whole", Count: uint32(entries), R: rules})
		if err != nil {
			b.Fatal(err)
		}
		return r.ACLIndex
	}
	index := put(^uint32(0))
	bind := func(add bool) {
		for tag, l := range p.Links {
			if tag == acl.UplinkTag {
				continue
			}
			_, err := client.ACLInterfaceAddDel(b.Context(), &binapi.ACLInterfaceAddDel{IsAdd: add, SwIfIndex: l.Index, ACLIndex: index})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	bind(true)
	out := cost{messages: 1, rules: entries, bytes: putBytes + ruleBytes*entries, stall: time.Hour}
	for range 5 {
		began := time.Now()
		put(index)
		out.stall = min(out.stall, time.Since(began))
	}
	bind(false)
	if _, err := client.ACLDel(b.Context(), &binapi.ACLDel{ACLIndex: index}); err != nil {
		b.Fatal(err)
	}
	return out
}

// ruleFor permits one port to one address.
func ruleFor(member int) acl_types.ACLRule {
	return acl_types.ACLRule{
		IsPermit: acl_types.ACL_ACTION_API_PERMIT_REFLECT, Proto: ip_types.IP_API_PROTO_TCP,
		SrcPrefix:             ip_types.Prefix{Address: ip_types.Address{Af: ip_types.ADDRESS_IP4, Un: ip_types.AddressUnionIP4(addressOf(member).Addr().As4())}, Len: 32},
		SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeFirst: 80, DstportOrIcmpcodeLast: 80,
	}
}
