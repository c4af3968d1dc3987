package attacks

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// families are those in which a kind is sent.
func (k kind) families() []int {
	if k.family != 0 {
		return []int{k.family}
	}
	return []int{4, 6}
}

// TestPacketKindsHaveTheirVerdicts asks the program about every kind, and why it is dropped.
func TestPacketKindsHaveTheirVerdicts(t *testing.T) {
	all := kinds()
	if len(all) < 250 {
		t.Errorf("there are %d kinds of packets", len(all))
	}
	g, w := newLab(t, xdp.KernelOptions{})
	for situation, name := range situations {
		toPod, fromPod := lists(situation, w.peer)
		g.apply("a", toPod, fromPod)
		for _, k := range all {
			for _, w.family = range k.families() {
				w.mark++
				frame := k.frame(w)
				if k.wired {
					continue
				}
				if ok, why := g.probe(labID, compile.FromPod, frame); why != k.fate[situation] || ok != (why == "") {
					t.Errorf("%s, IPv%d: %s: passes %t, dropped for %q, want %q", name, w.family, k.name, ok, why, k.fate[situation])
				}
			}
		}
	}
}

// TestHostilePods sends every kind by a raw socket: what must be dropped does not arrive.
func TestHostilePods(t *testing.T) {
	for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeClsact, xdp.ModeXDP, xdp.ModeGeneric} {
		for _, bridged := range []bool{false, true} {
			if renderertest.Few() && (mode == xdp.ModeClsact && bridged || mode == xdp.ModeGeneric && !bridged) {
				continue // each mode, and each way to be connected, has others
			}
			t.Run(fmt.Sprintf("%s, bridged %t", mode, bridged), func(t *testing.T) {
				t.Parallel() // they wait at times
				s := newStreet(t, mode, bridged)
				vias := [][]byte{s.gateway}
				if bridged {
					vias = append(vias, s.peer.mac)
				}
				for situation := range situations {
					for _, s.via = range vias {
						s.attack(situation)
					}
				}
				for _, s.via = range vias {
					s.attackClosed()
				}
			})
		}
	}
}

// sent is a frame on its way.
type sent struct {
	kind
	family int
}

func (s *street) attack(situation int) {
	s.t.Helper()
	toPod, fromPod := lists(situation, s.peer)
	s.apply("a", toPod, fromPod)
	frames, got := s.all()
	switched := slices.Equal(s.via, s.peer.mac)
	for mark, k := range frames {
		want, where := k.fate[situation], fmt.Sprintf("%s, IPv%d, to %x", situations[situation], k.family, s.via)
		switch {
		case want != "" && got[mark] > 0:
			s.t.Errorf("%s: %s: it arrives, want that it is dropped for %q", where, k.name, want)
		case want == "" && k.arrives && (switched || !k.bridged) && got[mark] != 1:
			s.t.Errorf("%s: %s: it arrives %d times, want once", where, k.name, got[mark])
		}
	}
}

// attackClosed sends every attack, from a pod without policy, to a pod that only a third pod may
// send to. Only neighbour discovery may arrive.
func (s *street) attackClosed() {
	s.t.Helper()
	third := s.cable.Pods["c"]
	s.apply("b", renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.AddrNet(third.V4)}, {}}, nil), renderer.NewRuleList([]api.ContivRule{{}}, nil))
	frames, got := s.all()
	for mark, k := range frames {
		if k.fate[1] != "" && got[mark] > 0 {
			s.t.Errorf("to a pod that nobody may send to, IPv%d, to %x: %s: it arrives", k.family, s.via, k.name)
		}
	}
}

// all sends every kind, and returns the frames by their marks, and how often each arrived.
func (s *street) all() (frames map[uint64]sent, got map[uint64]int) {
	s.t.Helper()
	return s.every(s.send), s.heard()
}

// every sends every kind, and returns the frames by their marks.
func (w *world) every(send func([]byte)) map[uint64]sent {
	frames := map[uint64]sent{}
	for _, k := range kinds() {
		for _, w.family = range k.families() {
			w.mark++
			frame := k.frame(w)
			frames[w.mark] = sent{k, w.family}
			send(frame)
		}
	}
	return frames
}
