package xdp_test

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// TestConnectionsExpire ages connections of a pod with permitted egress and denied ingress.
func TestConnectionsExpire(t *testing.T) { everywhere(t, testConnectionsExpire) }

func testConnectionsExpire(t *testing.T, newLab makeLab) {
	const syn, fin = 0x02, 0x01
	type step struct {
		reply bool
		flags byte // of TCP
	}
	opened, answered := step{flags: syn}, step{reply: true, flags: syn | ack}
	l := newLab(t)
	l.render(closed, []api.ContivRule{{Action: api.Permit}})
	for i, c := range []struct {
		name     string
		protocol api.Protocol
		steps    []step
		holds    time.Duration
	}{
		{"TCP that is not answered", api.TCP, []step{opened}, time.Minute},
		{"TCP", api.TCP, []step{opened, answered}, 6 * time.Hour},
		{"TCP that one end closed", api.TCP, []step{opened, answered, {flags: fin | ack}}, 6 * time.Hour},
		{"TCP that both ends closed", api.TCP, []step{opened, answered, {flags: fin | ack}, {reply: true, flags: fin | ack}}, 30 * time.Second},
		{"TCP whose ports are used again", api.TCP, []step{opened, answered, {flags: fin | ack}, {reply: true, flags: fin | ack}, opened, answered}, 6 * time.Hour},
		{"TCP whose ports are used again, not answered", api.TCP, []step{opened, answered, {flags: rst}, opened}, time.Minute},
		{"TCP that was reset", api.TCP, []step{opened, answered, {flags: rst}}, 10 * time.Second},
		{"TCP that was reset by the other end", api.TCP, []step{opened, {reply: true, flags: rst | ack}}, 10 * time.Second},
		{"UDP that is not answered", api.UDP, []step{opened}, 30 * time.Second},
		{"UDP", api.UDP, []step{opened, answered}, 3 * time.Minute},
		{"SCTP that is not answered", api.SCTP, []step{opened}, time.Minute},
		{"SCTP", api.SCTP, []step{opened, answered}, 6 * time.Hour},
		{"echo that is not answered", api.ICMP, []step{opened}, 30 * time.Second},
		{"echo", api.ICMP, []step{opened, answered}, 3 * time.Minute},
		{"another protocol", api.Protocol(50), []step{opened, answered}, 3 * time.Minute},
	} {
		for _, v6 := range []bool{false, true} {
			for _, late := range []bool{false, true} {
				f := api.Flow{Src: own4, Dst: friend4, Protocol: c.protocol}
				if v6 {
					f.Src, f.Dst = own6, friend6
				}
				if v6 && c.protocol == api.ICMP {
					f.Protocol = api.ICMPv6
				}
				if c.protocol.HasPorts() {
					f.SrcPort, f.DstPort = uint16(4000+i), 80
				}
				frame := func(s step) (compile.Direction, []byte) {
					b := xdp.Frame(f, s.reply)
					if c.protocol == api.TCP {
						flags(b, s.flags)
					}
					if s.reply {
						return compile.ToPod, b
					}
					return compile.FromPod, b
				}
				age := c.holds - 2*time.Second
				if late {
					age = c.holds + 2*time.Second
				}
				for slow := 0; ; slow++ {
					began := time.Now()
					for _, s := range c.steps {
						dir, b := frame(s)
						l.want(true, c.name, dir, b)
					}
					if err := l.plane.Age(age); err != nil {
						t.Fatal(err)
					}
					dir, b := frame(step{reply: true, flags: ack})
					passes, took := l.send(dir, b), time.Since(began)
					if err := l.plane.Age(12 * time.Hour); err != nil { // the next case begins anew
						t.Fatal(err)
					}
					if passes == !late {
						break
					}
					if late || took < time.Second || slow == 20 {
						t.Errorf("%s, an answer after %s: permitted is %t (it took %s)", c.name, age, passes, took)
						break
					} // else a busy machine has let the time pass
				}
			}
		}
	}
}

func TestFragmentPortsExpire(t *testing.T) { everywhere(t, testFragmentPortsExpire) }

func testFragmentPortsExpire(t *testing.T, newLab makeLab) {
	for _, late := range []bool{false, true} {
		l := newLab(t)
		l.render([]api.ContivRule{{Action: api.Permit, Src: api.AddrNet(friend4), Protocol: api.UDP, DstPort: api.Port(53)}}, nil)
		whole := xdp.Frame(udpFlow(friend4, own4, 4000, 53), false)
		l.want(true, "a first fragment", compile.ToPod, fragment(whole, 3, 0, true, nil))
		age := 28 * time.Second
		if late {
			age = 32 * time.Second
		}
		if err := l.plane.Age(age); err != nil {
			t.Fatal(err)
		}
		l.want(!late, "its later fragment after "+age.String(), compile.ToPod, fragment(whole, 3, 1, false, []byte("hello wo")))
	}
}

// TestConnectionTableFullEvictsOldest checks that evicted flows are denied, and that new
// flows pass.
func TestConnectionTableFullEvictsOldest(t *testing.T) {
	everywhere(t, testConnectionTableFullEvictsOldest)
}

func testConnectionTableFullEvictsOldest(t *testing.T, newLab makeLab) {
	const room, flows = 256, 3000
	l := newLab(t, func(o *labOptions) { o.kernel.Flows = room })
	l.render(closed, []api.ContivRule{{Action: api.Permit}})
	for i := range flows {
		f := tcpFlow(own4, friend4, uint16(1000+i), 80)
		l.want(true, "a new flow", compile.FromPod, xdp.Frame(f, false))
		l.want(true, "its answer", compile.ToPod, xdp.Frame(f, true))
	}
	if n := l.entries(); n > room || n == 0 {
		t.Errorf("there are %d entries, and there is room for %d", n, room)
	}
	forgotten := 0
	for i := range flows {
		if !l.send(compile.ToPod, flags(xdp.Frame(tcpFlow(own4, friend4, uint16(1000+i), 80), true), ack)) {
			forgotten++
		}
	}
	if forgotten < flows-room {
		t.Errorf("%d of %d flows are answered still, and there is room for %d", flows-forgotten, flows, room)
	}
	l.want(false, "what was never opened", compile.ToPod, flags(xdp.Frame(tcpFlow(own4, friend4, 500, 80), true), ack))
	l.want(true, "a forgotten flow that goes on", compile.FromPod, flags(xdp.Frame(tcpFlow(own4, friend4, 1000, 80), false), ack))
	l.want(true, "and is answered", compile.ToPod, flags(xdp.Frame(tcpFlow(own4, friend4, 1000, 80), true), ack))
}
