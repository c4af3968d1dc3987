package vpp

import (
	"maps"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// tcpFlow is a TCP connection, seen from outside of its ends.
type tcpFlow struct {
	l             *lab
	syn, ack, ans vpptest.Packet // of the client, later packets of the client, packets of the server
}

const ack = 16 // the TCP flag

func (l *lab) tcp(src, dst string, port uint16) tcpFlow {
	f := api.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: api.TCP, SrcPort: 41000, DstPort: port}
	later := vswitch.FlowPacket(f)
	later.TCPFlags = ack
	return tcpFlow{l: l, syn: vpptest.First(f, 1), ack: vpptest.Packet{Packet: later, Mark: 2}, ans: vpptest.Packet{Packet: later.Reply(), Mark: 3}}
}

// passes reports whether VPP lets one packet through.
func (f tcpFlow) passes(p vpptest.Packet) bool { return len(f.l.Send([]vpptest.Packet{p}).Left) == 1 }

// opens does the handshake.
func (f tcpFlow) opens() bool {
	synAck := vpptest.Packet{Packet: f.syn.Reply(), Mark: 4}
	return f.passes(f.syn) && f.passes(synAck) && f.passes(f.ack)
}

// lives reports whether data passes in both directions.
func (f tcpFlow) lives() bool { return f.passes(f.ack) && f.passes(f.ans) && f.passes(f.ack) }

// moved returns a world in which the first rule of a policy opens another port.
func moved(w world, namespace, name string, d api.Direction) world {
	out := maps.Clone(w)
	np := w.policy(namespace, name)
	port := intstr.FromInt32(4444)
	ports := []networkingv1.NetworkPolicyPort{{Port: &port}}
	if d == api.Ingress {
		np.Spec.Ingress[0].Ports = ports
	} else {
		for i := range np.Spec.Egress {
			np.Spec.Egress[i].Ports = ports
		}
	}
	out.put(np)
	return out
}

// TestVPPRevocation changes policies under open TCP connections: the client's next packet meets the
// new policy, connections that are still permitted stay open, and those that are permitted again
// resume.
func TestVPPRevocation(t *testing.T) {
	l := newLab(t, vpptest.NewNetwork(vpptest.Launch(t)), "node-1")
	w := shop(t)
	l.apply(w.resync())
	for _, tt := range []struct {
		name    string
		closed  world   // what closes the first flow
		closes  tcpFlow // by a policy of either end
		remains []tcpFlow
	}{
		{"to a pod, by its ingress", moved(w, "shop", "catalog", api.Ingress),
			l.tcp("10.10.1.10", "10.10.1.20", 8081),
			[]tcpFlow{l.tcp("10.10.1.20", "10.10.2.10", 5432), l.tcp("10.10.0.90", "10.10.1.20", 9090)}},
		{"to a pod, by the egress of the other", moved(w, "shop", "checkout", api.Egress),
			l.tcp("10.10.1.40", "10.10.1.30", 8082),
			[]tcpFlow{l.tcp("10.10.1.10", "10.10.1.40", 8083), l.tcp("10.10.1.11", "10.10.1.30", 8082)}},
		{"from outside to a pod", moved(w, "platform", "gateway", api.Ingress),
			l.tcp("198.51.100.7", "10.10.0.10", 8443),
			[]tcpFlow{l.tcp("10.10.0.10", "10.10.1.10", 8080), l.tcp("10.10.0.11", "198.51.100.7", 443)}},
		{"from outside to a pod, by IPv6", moved(w, "platform", "gateway", api.Ingress),
			l.tcp("2001:db8::7", "fd00:10::10", 8443),
			[]tcpFlow{l.tcp("fd00:10::10", "fd00:10:1::10", 8080), l.tcp("fd00:10::11", "2001:db8::7", 443)}},
		{"from a pod to outside", moved(w, "shop", "checkout", api.Egress),
			l.tcp("10.10.1.40", "203.0.113.10", 443),
			[]tcpFlow{l.tcp("10.10.1.11", "10.10.1.40", 8083), l.tcp("10.10.2.10", "203.0.113.10", 443)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, f := range append(tt.remains, tt.closes) {
				if !f.opens() || !f.lives() {
					t.Fatalf("%v does not open", f.syn)
				}
			}
			l.apply(model.Changes{Deltas: tt.closed.since(w)})
			if tt.closes.passes(tt.closes.ack) {
				t.Error("the next packet of the client passes")
			}
			if tt.closes.passes(tt.closes.syn) {
				t.Error("a new connection opens")
			}
			for _, f := range tt.remains {
				if !f.lives() {
					t.Errorf("%v was cut", f.syn)
				}
			}
			l.apply(model.Changes{Deltas: w.since(tt.closed)})
			if !tt.closes.lives() {
				t.Error("the connection does not resume when it is permitted again")
			}
			l.compare(t)
		})
	}
}
