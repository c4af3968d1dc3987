package sampled

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/verdicts"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// sighting is what the ACL node of VPP traced of a packet.
type sighting struct {
	out       bool // where packets leave VPP
	swIfIndex uint32
	action    int    // of VPP: 0 deny, 1 permit, 2 permit and create a session
	acl, rule uint32 // that matched
	flow      api.Flow
}

// The lines that the ACL node traces.
var (
	nodeLine   = regexp.MustCompile(`: acl-plugin-(in|out)-ip[46]\S*-fa$`)
	actionLine = regexp.MustCompile(`sw_if_index (\d+), next index -?\d+, action: (\d+), match: acl (-?\d+) rule (-?\d+)`)
	packetLine = regexp.MustCompile(`l3 ip[46] (\S+) -> (\S+) l4 .*proto (\d+) .*port (\d+) -> (\d+) `)
)

// sightings reads traces of packets. What it does not understand it skips.
func sightings(text string) (out []sighting) {
	var s *sighting
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if m := nodeLine.FindStringSubmatch(line); m != nil {
			s = &sighting{out: m[1] == "out", action: -1}
			continue
		}
		if !strings.HasPrefix(line, " ") { // another node, or another packet
			s = nil
		}
		switch {
		case s == nil:
		case s.action < 0:
			if !s.readAction(actionLine.FindStringSubmatch(line)) {
				s = nil
			}
		default:
			if m := packetLine.FindStringSubmatch(line); m != nil {
				if s.readFlow(m) {
					out = append(out, *s)
				}
				s = nil
			}
		}
	}
	return out
}

// number reads a number below a limit of bits; ok stays false once it is.
func number(text string, bits int, ok *bool) uint64 {
	n, err := strconv.ParseUint(text, 10, bits)
	*ok = *ok && err == nil
	return n
}

// readAction fails for a packet of a session, which no rule matched.
func (s *sighting) readAction(m []string) bool {
	ok := m != nil
	if !ok {
		return false
	}
	s.swIfIndex, s.action = uint32(number(m[1], 32, &ok)), int(number(m[2], 8, &ok))
	s.acl, s.rule = uint32(number(m[3], 32, &ok)), uint32(number(m[4], 32, &ok))
	return ok
}

func (s *sighting) readFlow(m []string) bool {
	src, errSrc := netip.ParseAddr(m[1])
	dst, errDst := netip.ParseAddr(m[2])
	ok := errSrc == nil && errDst == nil
	s.flow = api.Flow{Src: src, Dst: dst, Protocol: api.Protocol(number(m[3], 8, &ok))}
	sport, dport := number(m[4], 16, &ok), number(m[5], 16, &ok)
	if s.flow.Protocol.HasPorts() {
		s.flow.SrcPort, s.flow.DstPort = uint16(sport), uint16(dport)
	}
	return ok
}

// VPP's actions of rules.
const (
	actionDeny    = 0
	actionReflect = 2
)

// events returns the verdicts of rules of ours: packets that were denied, or that begin a session.
func (s *Source) events(all []sighting) (out []verdicts.Event) {
	if len(all) == 0 {
		return nil
	}
	pods := map[uint32]api.PodID{}
	for _, b := range s.Rules.Endpoints() {
		if b.State == vpp.BoundEnforced {
			pods[b.Index] = b.Pod
		}
	}
	name := s.Rules.Counters().Renderer
	for _, x := range all {
		source, ok := s.Rules.Source(x.acl, x.rule)
		if !ok || x.action != actionDeny && x.action != actionReflect {
			continue
		}
		e := verdicts.Event{
			Time: time.Now(), Pod: pods[x.swIfIndex], Interface: x.swIfIndex, Direction: api.Egress, Action: api.Permit, Flow: x.flow,
			Decision: renderer.Decision{Renderer: name, Table: source.Table, Rule: source.Rule, Match: source.Match, Origins: source.Origins},
		}
		if x.out != (e.Pod == api.PodID{}) { // to a pod, or in by an uplink
			e.Direction = api.Ingress
		}
		if x.action == actionDeny {
			e.Action, e.Reason = api.Deny, verdicts.ReasonPolicy
		}
		out = append(out, e)
	}
	return out
}
