package entries

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Everything returns entries that decide all traffic.
func Everything(v Verdict) []Entry {
	var out []Entry
	for _, all := range Families {
		out = append(out, Entry{Verdict: v, Src: all, Dst: all, SrcPort: AnyPorts, DstPort: AnyPorts})
	}
	return out
}

// TCP flags that the reflect ACL matches.
const (
	flagSYN = 2
	flagACK = 16
)

// EverythingOwned returns entries that permit all input. Only the first packet of a TCP flow
// creates a session, so a reply of a pod never permits packets of its peer.
func EverythingOwned() []Entry {
	var out []Entry
	for _, e := range Everything(Reflect) {
		out = append(out, Owning(e)...)
	}
	return out
}

// Owning returns entries that permit the same as an entry and create the same sessions, except that
// in TCP only the first packet of a flow creates one.
func Owning(e Entry) []Entry {
	tcp := e
	tcp.Protocol = api.TCP
	syn, rest := tcp, tcp
	syn.Flags, syn.Mask = flagSYN, flagSYN|flagACK
	rest.Verdict = Permit
	if e.Protocol == api.TCP {
		return []Entry{syn, rest}
	}
	if e.Protocol == api.AnyProtocol {
		return []Entry{syn, rest, e}
	}
	return []Entry{e}
}

// Infra returns the entries of the ACL for exempt traffic, on the output of pods and uplinks.
// Without exempt traffic the ACL matches nothing.
func Infra(i renderer.Infra) []Entry {
	var out []Entry
	for _, m := range i.Messages() {
		all := AnyIPv4
		if m.Protocol == api.ICMPv6 {
			all = anyIPv6
		}
		out = append(out, Entry{Verdict: Permit, Src: all, Dst: all, Protocol: m.Protocol, SrcPort: Ports{m.First, m.Last}, DstPort: AnyPorts})
	}
	for _, p := range i.Addresses {
		all := AnyOf(p.Addr())
		out = append(out,
			Entry{Verdict: Permit, Src: NetOf(p), Dst: all, SrcPort: AnyPorts, DstPort: AnyPorts},
			Entry{Verdict: Permit, Src: all, Dst: NetOf(p), SrcPort: AnyPorts, DstPort: AnyPorts})
	}
	return out
}
