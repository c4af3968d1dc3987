package xdp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// The two states of TestCommitKilledWithinTurn. The second one takes many turns.
const (
	friends = api.SetID(300) // more of them in the second state
	enemies = api.SetID(301) // none in the second state, whose lists do not name them
)

// turning is one of the states.
type turning struct {
	second  bool
	members map[api.SetID][]netip.Prefix
	lists   []*renderer.RuleList // by pod
}

const turningPods = 5

func newTurning(second bool) turning {
	s := turning{second: second, members: map[api.SetID][]netip.Prefix{friends: hostsIn("10.1.0.%d", 20), enemies: hostsIn("10.2.0.%d", 20)}}
	first := 1
	if second {
		s.members, first = map[api.SetID][]netip.Prefix{friends: hostsIn("10.1.0.%d", 40)}, 1001
	}
	for pod := range turningPods {
		var rules []api.ContivRule
		if !second && pod%2 == 0 {
			rules = append(rules, api.ContivRule{Src: api.SetNet(enemies)})
		}
		for i := range 60 {
			port := api.Port(uint16(first + 100*pod + 2*i))
			rules = append(rules, api.ContivRule{Action: api.Permit, Protocol: api.TCP, Src: api.SetNet(friends), DstPort: port})
			wide := api.PrefixNet(netip.PrefixFrom(netip.AddrFrom4([4]byte{10}), 8+i%4).Masked())
			port.First++
			port.Last++
			rules = append(rules, api.ContivRule{Action: api.Permit, Protocol: api.TCP, Src: wide, DstPort: port})
		}
		s.lists = append(s.lists, renderer.NewRuleList(append(rules, api.ContivRule{}), nil))
	}
	return s
}

func hostsIn(format string, n int) (out []netip.Prefix) {
	for i := range n {
		out = append(out, netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf(format, i+1)), 32))
	}
	return out
}

func turningAddr(pod int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(pod + 1)}) }

// permits is the specification.
func (s turning) permits(pod int, f api.Flow) bool {
	i := slices.IndexFunc(s.lists[pod].Rules(), func(r api.ContivRule) bool {
		return r.Matches(f, func(id api.SetID, a netip.Addr) bool {
			return slices.Contains(s.members[id], netip.PrefixFrom(a, 32))
		})
	})
	return i >= 0 && s.lists[pod].Rules()[i].Action == api.Permit
}

// write writes the state, or what is new in it, into a transaction.
func (s turning) write(x *renderer.Changes, resync bool) {
	was := newTurning(false).members
	for _, id := range []api.SetID{friends, enemies} {
		added, removed := s.members[id], []netip.Prefix(nil)
		if !resync {
			isIn := func(all []netip.Prefix) func(netip.Prefix) bool {
				return func(p netip.Prefix) bool { return slices.Contains(all, p) }
			}
			removed = slices.DeleteFunc(slices.Clone(was[id]), isIn(s.members[id]))
			added = slices.DeleteFunc(slices.Clone(s.members[id]), isIn(was[id]))
		}
		x.UpdateSet(id, added, removed)
	}
	for pod, l := range s.lists {
		x.Render(api.PodID{Namespace: "shop", Name: fmt.Sprint(pod)}, renderer.PodConfig{IPs: []netip.Addr{turningAddr(pod)}, Egress: l})
	}
}

// flows are to each pod from addresses of all kinds, to the ports of either state and others.
func (s turning) flows(yield func(pod int, f api.Flow)) {
	for pod := range turningPods {
		for _, src := range []string{"10.1.0.1", "10.1.0.30", "10.2.0.1", "10.2.0.20", "10.64.0.1", "10.0.0.9", "192.0.2.1"} {
			for _, state := range []int{1, 1001} {
				for i := 0; i < 125; i += 3 {
					yield(pod, api.Flow{Src: netip.MustParseAddr(src), Dst: turningAddr(pod), Protocol: api.TCP, SrcPort: 40000, DstPort: uint16(state + 100*pod + i)})
				}
			}
		}
	}
}

func newTurner(t *testing.T, k *xdp.Kernel) *xdp.Renderer {
	t.Helper()
	r, err := xdp.New(xdp.Options{Dataplane: k, Turn: time.Nanosecond, Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 {
		return []uint32{uint32(pod.Name[0]-'0') + 1}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// commitTurns commits until nothing is left, and calls turn after each turn but the last.
func commitTurns(t *testing.T, r *xdp.Renderer, x renderer.Changes, turn func()) {
	t.Helper()
	for {
		err := r.Apply(context.Background(), x)
		if _, unfinished := errors.AsType[*renderer.Deferred](err); !unfinished {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		turn()
		x = renderer.Changes{}
	}
}

const turningProcess = "SLUICE_TEST_TURNS_OF"

// TestCommitProcess is the agent that TestCommitKilledWithinTurn kills.
func TestCommitProcess(t *testing.T) {
	pins := os.Getenv(turningProcess)
	if pins == "" {
		return // only that test starts it
	}
	r := newTurner(t, newKernel(t, ownerOf(pins, "node-1")))
	x := renderer.Changes{Resync: true}
	newTurning(false).write(&x, true)
	commitTurns(t, r, x, func() {})
	x = renderer.Changes{}
	newTurning(true).write(&x, false)
	commitTurns(t, r, x, func() { fmt.Println("turn") })
	fmt.Println("done")
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
}

// TestCommitKilledWithinTurn kills an agent while lists are written in turns. Whatever the kernel
// holds then, it permits nothing that the old and the new policies deny, nor the old ones with the
// members that sets have now, and the next agent finishes the work.
func TestCommitKilledWithinTurn(t *testing.T) {
	needKernel(t)
	pins := bpffs(t)
	before, after, waiting := newTurning(false), newTurning(true), newTurning(false)
	waiting.members = after.members
	for pod := 0; pod < turningPods; pod += 2 { // they deny a set that has lost its members
		waiting.lists[pod] = renderer.NewRuleList([]api.ContivRule{{}}, nil)
	}
	halfway := 0
	for _, turns := range []int{1, 2, 3, 5, 8, 13, 21, 34, 55, 89} {
		agent := exec.Command(os.Args[0], "-test.run", "^TestCommitProcess$")
		agent.Env = append(os.Environ(), turningProcess+"="+pins)
		in, errIn := agent.StdinPipe()
		out, errOut := agent.StdoutPipe()
		if err := errors.Join(errIn, errOut, agent.Start()); err != nil {
			t.Fatal(err)
		}
		lines, done := bufio.NewScanner(out), false
		for n := 0; n < turns && !done && lines.Scan(); n++ {
			if done = lines.Text() != "turn"; done && lines.Text() != "done" {
				t.Fatalf("the agent says %q", lines.Text())
			}
		}
		if err := agent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := agent.Wait(); err == nil {
			t.Error("the agent ended by itself")
		}
		_ = in.Close() // the other end is gone
		if !done {
			halfway++
		}
		k := newKernel(t, ownerOf(pins, "node-1"))
		if err := k.Inherit(); err != nil {
			t.Fatal(err)
		}
		permits := func(pod int, f api.Flow) bool {
			got, err := k.Ask(uint32(pod+1), compile.ToPod, f)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		open := 0
		before.flows(func(pod int, f api.Flow) {
			if got := permits(pod, f); got && !before.permits(pod, f) && !waiting.permits(pod, f) && !after.permits(pod, f) {
				t.Errorf("killed after %d turns: %s is permitted, which all policies deny", turns, f)
			} else if got {
				open++
			}
		})
		if open == 0 {
			t.Errorf("killed after %d turns: nothing is permitted", turns)
		}
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		k = newKernel(t, ownerOf(pins, "node-1"))
		r := newTurner(t, k)
		x := renderer.Changes{Resync: true}
		after.write(&x, true)
		commitTurns(t, r, x, func() {})
		after.flows(func(pod int, f api.Flow) {
			if got := permits(pod, f); got != after.permits(pod, f) {
				t.Errorf("killed after %d turns: then %s is permitted: %t", turns, f, got)
			}
		})
		if err := errors.Join(r.Close(), k.Close()); err != nil {
			t.Error(err)
		}
	}
	if halfway < 3 {
		t.Errorf("only %d of the agents were killed before they were done", halfway)
	}
}
