package lifecycle

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/plugins/endpoints/wire"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/programs"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// TestLifeOfPodFromFirstInstruction adds pods that talk from raw sockets which are older than their
// addresses.
func TestLifeOfPodFromFirstInstruction(t *testing.T) {
	s := newStreet(t, `"timeout": "1m", "onTimeout": "fail"`, "shut-1", "open-1", "shut-2")
	s.up()
	s.listens()
	for _, name := range []string{"shut-1", "open-1", "shut-2"} {
		s.Must(s.born(name))
		s.Must(s.isEnforced(name))
	}
	s.open("behind ADD", "open-1")
	s.shut("behind ADD")
}

// TestLifeWithoutAgent adds pods without an agent, and has agents come and go.
func TestLifeWithoutAgent(t *testing.T) {
	s := newStreet(t, `"timeout": "200ms"`, "shut-1", "open-1", "shut-2", "open-2")
	s.up()
	s.listens()
	s.agent.Kill()
	for _, name := range []string{"shut-1", "open-1"} {
		s.Must(s.born(name))
	}
	if got := len(s.blocked()); got != 2 {
		t.Errorf("%d interfaces are blocked, want those of two pods", got)
	}
	s.up()
	s.open("with the agent that came", "open-1")
	s.agent.Kill()
	s.open("without an agent", "open-1")
	for _, name := range []string{"shut-2", "open-2"} {
		s.Must(s.born(name))
	}
	s.dies("shut-1") // DEL needs no agent
	if n := s.ear.of("open-2"); n > 0 {
		t.Errorf("%d packets of a pod without policy are heard, and nobody knows that it has none", n)
	}
	s.up()
	s.open("with the next agent", "open-1", "open-2")
	s.shut("in the end")
}

// TestLifeWithAgentKilledAtRandomPoints kills agents while they start, and while pods come and go.
func TestLifeWithAgentKilledAtRandomPoints(t *testing.T) {
	rounds := renderertest.Extent(5, 15, 50)
	var known []string
	for i := range rounds {
		known = append(known, fmt.Sprint("shut-", i), fmt.Sprint("open-", i))
	}
	s := newStreet(t, `"timeout": "300ms"`, append(known, "open-old", "shut-old")...)
	s.up()
	s.listens()
	s.Must(errors.Join(s.born("open-old"), s.born("shut-old")))
	s.open("before the first kill", "open-old")
	s.agent.Kill()
	for i := range rounds {
		shut, open := fmt.Sprint("shut-", i), fmt.Sprint("open-", i)
		s.agent = s.begin(s.args()...)
		var killing sync.WaitGroup
		agent, after := s.agent, time.Duration(rand.Int64N(int64(700*time.Millisecond)))
		killing.Go(func() { time.Sleep(after); _ = agent.Cmd.Process.Kill(); <-agent.Ended })
		s.Must(errors.Join(s.born(open), s.born(shut)))
		if i%2 == 0 {
			s.dies(shut)
		}
		killing.Wait()
		s.shut(fmt.Sprintf("killed after %s", after))
		if i > 0 {
			s.dies(fmt.Sprint("open-", i-1))
		}
	}
	s.open("without an agent", "open-old")
	s.up()
	s.open("with the last agent", "open-old", fmt.Sprint("open-", rounds-1))
	s.shut("in the end")
}

// TestLifeWithLateState adds pods to the state a second after ADD.
func TestLifeWithLateState(t *testing.T) {
	s := newStreet(t, `"timeout": "100ms"`)
	s.up()
	s.listens()
	s.Must(errors.Join(s.born("shut-1"), s.born("open-1")))
	time.Sleep(time.Second) // the state is so late
	if n := s.ear.of("open-1"); n > 0 {
		t.Errorf("%d packets are heard of a pod that policy does not know", n)
	}
	s.knows("shut-1", "open-1")
	s.open("when the state is there", "open-1")
	s.shut("when the state is there")
}

// TestLifeOfDELWithoutADD sends what kubelets send for pods that never were, or are gone.
func TestLifeOfDELWithoutADD(t *testing.T) {
	s := newStreet(t, `"timeout": "1m", "onTimeout": "fail"`, "shut-1", "open-1", "shut-never")
	s.up()
	s.listens()
	s.Must(errors.Join(s.born("shut-1"), s.born("open-1")))
	never := s.sandboxOf("shut-never")
	for range 2 {
		s.Must(s.del(never.rt))
	}
	foreign := *s.pods["shut-1"].rt // of a container that the pod does not have
	foreign.ContainerID, foreign.NetNS = "another", ""
	s.Must(s.del(&foreign))
	s.Must(errors.Join(s.isEnforced("shut-1"), s.isEnforced("open-1")))
	s.open("behind DEL of others", "open-1")
	s.Must(s.born("shut-never"))
	s.shut("in the end")
	s.agent.Kill()
	s.dies("shut-1")
	s.Must(s.del(never.rt))
}

// TestLifeOfRecreatedPod gives a pod's name and address to the next one, of which the state knows
// late.
func TestLifeOfRecreatedPod(t *testing.T) {
	s := newStreet(t, `"timeout": "300ms"`)
	s.up()
	s.listens()
	s.configureWith("bridge", s.options, `"subnet": "10.88.0.0/24", "rangeStart": "10.88.0.9", "rangeEnd": "10.88.0.9"`) // one for all
	s.knows("open-1")
	s.Must(s.born("open-1"))
	s.open("the first life", "open-1")
	for i, late := range []bool{true, false} {
		what := fmt.Sprintf("life %d", i+2)
		s.dies("open-1")
		if !late {
			s.knows()
		}
		before := s.ear.of("open-1")
		s.Must(s.born("open-1"))
		if late {
			e, err := s.endpoint("open-1")
			if err != nil || e.State == wire.Enforced || s.ear.of("open-1") != before {
				t.Errorf("%s: judged by the policy of the pod before: %+v, %v", what, e, err)
			}
			s.knows()
		}
		s.open(what, "open-1")
	}
}

// TestLifeOfRecreatedVeth removes a pod's interface, and has the runtime make another one.
func TestLifeOfRecreatedVeth(t *testing.T) {
	s := newStreet(t, `"timeout": "1m", "onTimeout": "fail"`, "shut-1", "open-1")
	s.up()
	s.listens()
	s.Must(errors.Join(s.born("shut-1"), s.born("open-1")))
	for _, name := range []string{"shut-1", "open-1"} {
		e, err := s.endpoint(name)
		s.Must(err)
		s.at(func() error { return wires.Unplug(int(e.Index)) })
		r := s.pods[name]
		r.sender.added.Store(false)
		s.Must(s.del(r.rt))
		s.Must(s.addTalking(r))
		s.Must(s.isEnforced(name))
	}
	s.shut("in the end")
}

// TestLifeWithTwoAgents starts a second agent with the pins of the first, and with its socket.
func TestLifeWithTwoAgents(t *testing.T) {
	s := newStreet(t, `"timeout": "1m", "onTimeout": "fail"`, "shut-1", "open-1")
	s.up()
	s.listens()
	s.Must(errors.Join(s.born("shut-1"), s.born("open-1")))
	other := programs.SocketDir(t) + "/other.sock"
	for name, args := range map[string][]string{"the same settings": s.args(), "another socket and node": s.args("--api-socket", other, "--node", "node-2")} {
		second := s.begin(args...)
		<-second.Ended
		if code := second.Cmd.ProcessState.ExitCode(); code != 1 {
			t.Errorf("%s: the second agent ends with %d and says %s", name, code, second.Output())
		}
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("the second agent left its socket")
	}
	s.Must(errors.Join(s.isReady(), s.isEnforced("shut-1"), s.isEnforced("open-1")))
	s.open("behind the second agent", "open-1")
	s.shut("behind the second agent")
}
