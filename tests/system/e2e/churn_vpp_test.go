package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	binapi "go.fd.io/govpp/binapi/acl"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
	"github.com/sluice-net/sluice/tests/lab/marked"
)

// The cluster of TestVPPChurn.
const (
	churnEnv    = "SLUICE_VPP_CHURN" // for how long; by default churnUsual
	churnUsual  = time.Minute
	churnSets   = 20
	churnLocals = 60                     // pods of the node, which share a table
	churnTick   = 100 * time.Millisecond // between pods that come or go
	churnOpens  = 4                      // policies that come and go and open a port
	churnShuts  = 8                      // policies that come and go and isolate a local pod
	churnGone   = 200                    // pods that left and still send
)

// What may be left when everything is as at the start.
const (
	churnACLs  = 40        // a table may have more ACLs by its history, and more groups of interfaces
	churnHeap  = 64 << 20  // bytes of VPP's heap
	churnAgent = 512 << 20 // bytes of memory that an agent may take, ever
	// churnSegment is how many bytes of VPP's statistics segment may be used at the end.
	churnSegment = 12 << 20
)

// churn is a node with a real VPP, real traffic, and an agent that is killed now and then.
type churn struct {
	t     *testing.T
	vpp   *vpptest.Network
	etcd  *clientv3.Client
	args  []string
	agent *process
	wire  *traffic

	revision atomic.Int64 // that the agent says it enforces
	waiting  []pendingChange
	lags     []time.Duration // until changes were in force
	peers    int             // at the start
	born     int             // so far
	old      []peer          // of the start
	young    []peer
	gone     []*party
	locals   []int // pods that may go
	localNew int
	opened   [churnOpens]bool
	shut     [churnShuts]bool
	opens    [churnOpens]*party
	memory   int64 // of agents, the most
	kills    int
}

// pendingChange is what is in force when the agent enforces a revision.
type pendingChange struct {
	revision int64
	began    time.Time
	inForce  func()
}

// peer is a pod of another node that is in a set.
type peer struct {
	number int
	party  *party // nil: it does not send
}

func (p peer) set() int         { return p.number % churnSets }
func (p peer) addr() netip.Addr { return peerAddr(p.number) }
func (p peer) name() string     { return fmt.Sprint("peer-", p.number) }

// peerAddr returns an address in 10.64.0.0/10. No two can be merged into a prefix.
func peerAddr(n int) netip.Addr {
	n *= 2
	return netip.AddrFrom4([4]byte{10, 64 | byte(n>>16), byte(n >> 8), byte(n)})
}

func localAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, byte(n >> 8), byte(n)}) }

func local(n int) api.PodID { return api.PodID{Namespace: "shop", Name: fmt.Sprint("local-", n)} }

// TestVPPChurn has pods come and go, policies be toggled and the agent be killed under traffic:
// nothing that is permitted all the time is lost, nothing that is denied passes, VPP does not end,
// and what it holds does not grow.
func TestVPPChurn(t *testing.T) { eachEnforcer(t, churnsInVPP) }

func churnsInVPP(t *testing.T, by vppEnforcer) {
	lasts := churnUsual
	if text := os.Getenv(churnEnv); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", churnEnv, err)
		}
	}
	c := startChurn(t, by)
	stop := c.wire.start()
	defer stop()
	c.baseline()
	acls, heap := c.acls(), c.vpp.NextHeap()
	t.Logf("at the start: %d ACLs, %d MB of VPP's heap, %.1f of its statistics segment", acls, heap>>20, float64(c.vpp.Segment())/(1<<20))
	c.run(lasts)
	c.settle()
	stop()
	o, first := c.wire.soFar()
	slices.Sort(c.lags)
	t.Logf("%d kills; half of %d changes were known to be in force after %s, 99 %% after %s; %s", c.kills, len(c.lags), c.lags[len(c.lags)/2], c.lags[len(c.lags)*99/100], o)
	if o.lost+o.passed > 0 {
		t.Errorf("%d permitted requests were lost, %d denied ones passed; the first:\n%s", o.lost, o.passed, strings.Join(first, "\n"))
	}
	if o.answered < int(lasts.Seconds()) || o.refused < int(lasts.Seconds()) {
		t.Errorf("too little was judged: %s", o)
	}
	if now := c.acls(); now > acls+churnACLs {
		t.Errorf("VPP has %d ACLs, %d at the start", now, acls)
	}
	if now := c.vpp.NextHeap(); now > heap+churnHeap {
		t.Errorf("%d MB of VPP's heap are used, %d at the start", now>>20, heap>>20)
	}
	if now := c.vpp.Segment(); now > churnSegment {
		t.Errorf("%d MB of VPP's statistics segment are used", now>>20)
	}
	if c.memory > churnAgent {
		t.Errorf("an agent had %d MB of memory", c.memory>>20)
	}
}

// startChurn returns when policy is in force.
func startChurn(t *testing.T, by vppEnforcer) *churn {
	t.Helper()
	v := vpptest.NewNetwork(vpptest.LaunchLarge(t, by.config, append(by.plugins, "af_packet_plugin.so")...))
	c := &churn{t: t, vpp: v, peers: by.peers, localNew: churnLocals}
	pod, outside := v.Connect(t, "p", acl.InterfaceTag(local(0))), v.Connect(t, "o", "outside")
	const router = "169.254.1.3"
	v.Do("set ip neighbor static %s %s 02:00:00:00:00:03", outside.Link.Name, router)
	v.Do("ip route add 10.64.0.0/10 via %s %s", router, outside.Link.Name)
	v.Route(localAddr(0), acl.InterfaceTag(local(0)))
	for n := 1; n < churnLocals; n++ {
		c.attach(n)
	}
	address := startEtcd(t)
	var err error
	if c.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: patience}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.etcd.Close() }) // nothing is pending
	c.fill()
	c.args = append([]string{
		"run", "--node", "node-1", "--etcd-endpoints", address, "--vpp-socket", v.Socket(), "--vpp-stats-socket", v.StatsSocket(),
		"--state-file", filepath.Join(t.TempDir(), "state"),
	}, by.args...)
	c.agent = startAgent(t, c.args...)
	c.agent.ready()
	c.wire = &traffic{t: t, pod: pod, outside: outside, flying: map[uint32]*request{}}
	c.population()
	return c
}

// attach gives a local pod its interface.
func (c *churn) attach(n int) {
	c.vpp.Add(acl.InterfaceTag(local(n)))
	c.vpp.Route(localAddr(n), acl.InterfaceTag(local(n)))
}

// fill writes the cluster: every local pod is open to each set at a port of its own.
func (c *churn) fill() {
	ns := func(name string) proto.Message { return &model.Namespace{Name: name} }
	objects := []proto.Message{ns("shop"), ns("peers")}
	base := ingressPolicy("base", 8000)
	for s := 1; s < churnSets; s++ {
		base.Ingress = append(base.Ingress, ingressPolicy("", 8000+s).Ingress...)
	}
	for s := range base.Ingress {
		base.Ingress[s].Peers = []*model.NetworkPolicy_Peer{{NamespaceSelector: &model.LabelSelector{}, PodSelector: labelled("set", s)}}
	}
	objects = append(objects, base)
	for n := range churnLocals {
		objects = append(objects, localPod(n))
		c.locals = append(c.locals, n)
	}
	for range c.peers {
		p := c.bear()
		c.old = append(c.old, p)
		objects = append(objects, peerPod(p))
	}
	for _, o := range objects {
		c.put(o)
	}
	m := marked.Marker(model.DefaultPrefix, 1)
	if _, err := c.etcd.Put(c.t.Context(), m.Key, string(m.Value)); err != nil {
		c.t.Fatal(err)
	}
}

// bear returns a new peer.
func (c *churn) bear() peer {
	c.born++
	return peer{number: c.born - 1}
}

func labels(key string, n int) []*model.Label {
	return []*model.Label{{Key: key, Value: fmt.Sprint("v", n)}}
}

func labelled(key string, n int) *model.LabelSelector {
	return &model.LabelSelector{MatchLabels: labels(key, n)}
}

func peerPod(p peer) *model.Pod {
	return &model.Pod{Namespace: "peers", Name: p.name(), Labels: labels("set", p.set()), Ips: []string{p.addr().String()},
		Phase: model.Pod_PHASE_RUNNING, NodeName: "node-2"}
}

func localPod(n int) *model.Pod {
	return &model.Pod{Namespace: "shop", Name: local(n).Name, Labels: append(labels("local", n), labels("role", 0)...), Ips: []string{localAddr(n).String()},
		Phase: model.Pod_PHASE_RUNNING, NodeName: "node-1"}
}

// ingressPolicy opens a port of all local pods to every peer; callers may restrict the peers.
func ingressPolicy(name string, port int) *model.NetworkPolicy {
	return &model.NetworkPolicy{Namespace: "shop", Name: name, PodSelector: labelled("role", 0), IsolatesIngress: true,
		Ingress: []*model.NetworkPolicy_Rule{{Ports: []*model.NetworkPolicy_Port{{Protocol: model.Protocol_PROTOCOL_TCP, Port: &model.NetworkPolicy_Port_Number{Number: uint32(port)}}}}}}
}

// openPolicy opens a further port to the peers of a set.
func openPolicy(i int) *model.NetworkPolicy {
	p := ingressPolicy(fmt.Sprint("open-", i), 9000+i)
	p.Ingress[0].Peers = []*model.NetworkPolicy_Peer{{NamespaceSelector: &model.LabelSelector{}, PodSelector: labelled("set", i)}}
	return p
}

// shutPolicy isolates what a local pod sends.
func shutPolicy(i int) *model.NetworkPolicy {
	return &model.NetworkPolicy{Namespace: "shop", Name: fmt.Sprint("shut-", i), PodSelector: labelled("local", i+1), IsolatesEgress: true}
}

// put writes an object and returns the revision.
func (c *churn) put(m proto.Message) int64 {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	value, err := model.Encode(m)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := c.etcd.Put(ctx, c.key(m), string(value))
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Header.Revision
}

// del deletes an object and returns the revision.
func (c *churn) del(m proto.Message) int64 {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	r, err := c.etcd.Delete(ctx, c.key(m))
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Header.Revision
}

func (c *churn) key(m proto.Message) string {
	id, err := model.IDOf(m)
	if err != nil {
		c.t.Fatal(err)
	}
	return model.Key(model.DefaultPrefix, id)
}

// population adds the peers that send from the start: peers that stay, one of each set; others at a
// port that is another set's; strangers; and two connections that live as long as the test.
func (c *churn) population() {
	server := localAddr(0)
	for s := range churnSets {
		a := c.old[s].addr()
		c.wire.add(fmt.Sprint("a peer of set ", s), a, server, uint16(8000+s), permitted)
		c.wire.add(fmt.Sprint("a peer of set ", s, " at the port of another"), a, server, uint16(8000+(s+1)%churnSets), denied)
		c.wire.add("a stranger", netip.AddrFrom4([4]byte{10, 127, 0, byte(2*s + 1)}), server, uint16(8000+s), denied)
	}
	for i := range c.opens {
		c.opens[i] = c.wire.add(fmt.Sprint("a peer at port ", 9000+i), c.old[i].addr(), server, uint16(9000+i), denied)
	}
	c.wire.keep("a connection to the pod", false, c.old[0].addr(), server)
	c.wire.keep("a connection of the pod", true, server, c.old[churnSets].addr())
	c.old = c.old[churnSets+1:]
}

// baseline wants the same traffic to be without loss while nothing changes.
func (c *churn) baseline() {
	c.t.Helper()
	eventually(c.t, func() error {
		if o, _ := c.wire.soFar(); o.answered < 300 || o.refused < 1 {
			return fmt.Errorf("too little was sent: %s", o)
		}
		return nil
	})
	if o, first := c.wire.soFar(); o.lost+o.passed > 0 {
		c.t.Fatalf("while nothing changes: %s\n%s", o, strings.Join(first, "\n"))
	}
}

// run has everything happen for a time.
func (c *churn) run(lasts time.Duration) {
	every := min(time.Minute, lasts/2)
	tick, kill, tell := time.NewTicker(churnTick), time.NewTicker(every), time.NewTicker(time.Minute)
	defer tick.Stop()
	defer kill.Stop()
	defer tell.Stop()
	asking := c.ask()
	defer func() { asking() }()
	began := time.Now()
	for n := 0; time.Since(began) < lasts; {
		select {
		case <-tick.C:
			c.event(n)
			c.enforced()
			n++
		case <-kill.C:
			asking()
			c.memory = max(c.memory, c.agentMemory())
			c.agent.Signal(syscall.SIGKILL)
			<-c.agent.Ended
			c.agent = startAgent(c.t, c.args...)
			c.kills++
			asking = c.ask()
		case <-tell.C:
			o, _ := c.wire.soFar()
			c.t.Logf("%s: %d events, %d kills, %d ACLs, %d MB of VPP's heap, %.1f of its statistics segment, at most %d MB of an agent, %d changes not in force; %s",
				time.Since(began).Round(time.Second), n, c.kills, c.acls(), c.vpp.Heap()>>20, float64(c.vpp.Segment())/(1<<20), c.memory>>20, len(c.waiting), o)
		}
	}
}

var enforcedLine = regexp.MustCompile(`(?m)^sluice_enforced_revision (\S+)$`)

// ask asks the agent what it enforces, over and over, until the function that it returns is called.
func (c *churn) ask() (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	socket := c.agent.socket
	go func() {
		defer close(done)
		for tick := time.NewTicker(churnTick); ctx.Err() == nil; <-tick.C {
			_, body, err := ask(socket, "/metrics")
			if err != nil {
				continue // it starts
			}
			if m := enforcedLine.FindSubmatch(body); m != nil {
				if f, err := strconv.ParseFloat(string(m[1]), 64); err == nil {
					c.revision.Store(int64(f))
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

// enforced has what is in force by now be judged so.
func (c *churn) enforced() {
	at := c.revision.Load()
	for len(c.waiting) > 0 && c.waiting[0].revision <= at {
		c.lags = append(c.lags, time.Since(c.waiting[0].began))
		c.waiting[0].inForce()
		c.waiting = c.waiting[1:]
	}
}

// becomes expects another verdict of a party from the time when a change is in force, and none
// until then.
func (c *churn) becomes(p *party, v verdict, write func() int64) {
	c.wire.judge(p, undecided)
	c.waiting = append(c.waiting, pendingChange{write(), time.Now(), func() { c.wire.judge(p, v) }})
}

// event is what happens in a tick.
func (c *churn) event(n int) {
	if n%2 == 0 {
		c.join()
	} else {
		c.leave(n%4 == 1)
	}
	switch n % 50 {
	case 10:
		c.toggle(n / 50 % churnOpens)
	case 35:
		i := n / 50 % churnShuts
		if c.shut[i] = !c.shut[i]; c.shut[i] {
			c.put(shutPolicy(i))
		} else {
			c.del(shutPolicy(i))
		}
	}
	if n%100 == 60 {
		c.replaceLocal()
	}
}

// join adds a peer.
func (c *churn) join() {
	p := c.bear()
	p.party = c.wire.add("a young peer", p.addr(), localAddr(0), uint16(8000+p.set()), undecided)
	c.becomes(p.party, permitted, func() int64 { return c.put(peerPod(p)) })
	c.young = append(c.young, p)
}

// leave removes an old or a recent peer. The peer continues to send for some time.
func (c *churn) leave(old bool) {
	list := &c.young
	if old {
		list = &c.old
	}
	if len(*list) == 0 {
		return
	}
	p := (*list)[0]
	*list = (*list)[1:]
	if p.party == nil {
		p.party = c.wire.add("an old peer", p.addr(), localAddr(0), uint16(8000+p.set()), undecided)
	}
	c.becomes(p.party, denied, func() int64 { return c.del(peerPod(p)) })
	if c.gone = append(c.gone, p.party); len(c.gone) > churnGone {
		c.wire.remove(c.gone[0])
		c.gone = c.gone[1:]
	}
}

// toggle opens a port that is shut, or shuts it.
func (c *churn) toggle(i int) {
	if c.opened[i] = !c.opened[i]; c.opened[i] {
		c.becomes(c.opens[i], permitted, func() int64 { return c.put(openPolicy(i)) })
	} else {
		c.becomes(c.opens[i], denied, func() int64 { return c.del(openPolicy(i)) })
	}
}

// replaceLocal removes a local pod, and adds another one. Neither sends.
func (c *churn) replaceLocal() {
	const at = churnShuts + 1 // the first that no policy of its own selects
	n := c.locals[at]
	c.locals = append(append(c.locals[:at:at], c.locals[at+1:]...), c.localNew)
	c.vpp.Unroute(localAddr(n))
	c.vpp.Remove(acl.InterfaceTag(local(n)))
	c.del(localPod(n))
	c.attach(c.localNew)
	c.put(localPod(c.localNew))
	c.localNew++
}

// settle shuts what is open, and returns when everything is in force.
func (c *churn) settle() {
	c.t.Helper()
	for i := range c.opened {
		if c.opened[i] {
			c.toggle(i)
		}
	}
	for i, shut := range c.shut {
		if shut {
			c.del(shutPolicy(i))
		}
	}
	stop := c.ask()
	defer stop()
	eventually(c.t, func() error {
		if c.enforced(); len(c.waiting) > 0 {
			return errors.New("changes are not in force")
		}
		return nil
	})
	c.agent.ready()
	c.memory = max(c.memory, c.agentMemory())
}

// acls counts ACLs of all owners.
func (c *churn) acls() (n int) {
	c.t.Helper()
	ctx, cancel := vpptest.Bounded(c.t)
	defer cancel()
	dump, err := binapi.NewServiceClient(c.vpp.Conn).ACLDump(ctx, &binapi.ACLDump{ACLIndex: ^uint32(0)})
	for ; err == nil; n++ {
		_, err = dump.Recv()
	}
	if !errors.Is(err, io.EOF) {
		c.t.Fatal(err)
	}
	return n - 1
}

// agentMemory returns how much memory the agent has, in bytes.
func (c *churn) agentMemory() int64 {
	c.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.agent.Cmd.Process.Pid))
	if err != nil {
		c.t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		c.t.Fatalf("the kernel says\n%s", b)
	}
	kb, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	return kb << 10
}
