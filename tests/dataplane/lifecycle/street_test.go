package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netns"

	"github.com/sluice-net/sluice/tests/lab/programs"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// street is a node with pods at one bridge, with sluice-cni as chained plugin. Each pod sends from
// before it has an interface. Pods may send if their names begin with "open", and not if they begin
// with "shut". One pod listens.
type street struct {
	*cniNode
	ear   *listener
	older *string // an etcd that has a state of before
	pods  map[string]*resident
	lives map[string]int // of pods with a name
	known []string       // pods that the state has
}

// resident is a pod at the street.
type resident struct {
	name   string
	ns     netns.NsHandle
	rt     *libcni.RuntimeConf
	sender *sender
}

// newStreet returns one without an agent, whose state has some pods. The API knows no address of
// any.
func newStreet(t testing.TB, options string, known ...string) *street {
	t.Helper()
	s := &street{pods: map[string]*resident{}, lives: map[string]int{}, known: append(known, "listener")}
	s.cniNode = newCNINodeWith(t, "bridge", lenient+options, s.manifests())               // the last of equal members counts
	s.Must(os.WriteFile(filepath.Join(s.state, "10-pods.conflist"), s.list.Bytes, 0o600)) // says which bridge is that of pods
	return s
}

// knows brings the state up to date: what it has of pods, in their present lives.
func (s *street) knows(names ...string) {
	s.T.Helper()
	s.known = append(s.known, names...)
	s.store(s.manifests())
}

func (s *street) manifests() string {
	var b strings.Builder
	b.WriteString("{apiVersion: v1, kind: Namespace, metadata: {name: cni}}\n")
	for _, name := range s.known {
		kind, _, _ := strings.Cut(name, "-")
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: cni, uid: %s, labels: {kind: %s}}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {phase: Pending}
`, name, s.uid(name), kind)
	}
	return b.String() + shutPolicy
}

const shutPolicy = `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: shut, namespace: cni}
spec: {podSelector: {matchLabels: {kind: shut}}, policyTypes: [Ingress, Egress]}
`

// uid is that of the present life of a pod.
func (s *street) uid(name string) string { return fmt.Sprintf("uid-%s-%d", name, s.lives[name]) }

// listens has the pod that listens, with an agent that enforces.
func (s *street) listens() {
	s.T.Helper()
	r := s.sandboxOf("listener")
	var err error
	s.ear, err = listen(r.ns)
	s.Must(err)
	end, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); s.ear.hear(end) }()
	s.T.Cleanup(func() {
		close(end)
		<-done
		early := 0
		for name, n := range s.ear.early {
			if strings.HasPrefix(name, "shut") {
				early += n
			}
		}
		s.T.Logf("%d packets were heard that pods sent before ADD returned, of %d pods", early, len(s.ear.early))
	})
	s.Must(s.add(r.rt))
	eventually(s.T, func() error { return s.isEnforced("listener") })
}

// sandboxOf makes the network namespace of a pod.
func (s *street) sandboxOf(name string) *resident {
	s.T.Helper()
	r := &resident{name: name}
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		var err error
		r.ns, err = netns.New()
		made <- err
	}()
	s.Must(<-made)
	r.rt = s.sandboxIn(r.ns, name)
	r.rt.ContainerID = fmt.Sprintf("%s-%d", name, s.lives[name])
	r.rt.Args = append(slices.Clone(r.rt.Args[:3]), [2]string{"K8S_POD_UID", s.uid(name)})
	s.T.Cleanup(func() { s.close(r) })
	return r
}

func (s *street) close(r *resident) {
	if r.sender != nil {
		r.sender.stop()
	}
	r.sender = nil
	if r.ns.IsOpen() {
		_ = r.ns.Close() // nothing is lost
	}
}

// born makes a pod, which talks from its first instruction. It returns ADD's error.
func (s *street) born(name string) error {
	s.T.Helper()
	r := s.sandboxOf(name)
	var err error
	r.sender, err = startSender(r.ns, name, strings.HasPrefix(name, "shut"))
	s.Must(err)
	s.pods[name] = r
	err = s.addTalking(r)
	return err
}

// addTalking adds a pod, whose packets count from when ADD has returned.
func (s *street) addTalking(r *resident) error {
	var res *current.Result
	err := wires.Inside(s.Node, func() error {
		out, err := s.cni.AddNetworkList(context.Background(), s.list, r.rt)
		if err == nil {
			res, err = current.NewResultFromResult(out)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, ip := range res.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP.To4())
		r.sender.addr.Store(&a)
	}
	r.sender.added.Store(true)
	return nil
}

// dies deletes a pod, as a kubelet does it: DEL, and then the namespace goes. Its next life has
// another UID, and other addresses unless there is but one.
func (s *street) dies(name string) {
	s.T.Helper()
	r := s.pods[name]
	s.Must(s.del(r.rt))
	s.close(r)
	delete(s.pods, name)
	s.lives[name]++
}

// open waits until more frames of pods arrive, and shut checks that none do.
func (s *street) open(what string, names ...string) {
	s.T.Helper()
	before := map[string]int{}
	for _, name := range names {
		before[name] = s.ear.of(name)
	}
	for _, name := range names {
		err := programs.Poll(programs.Patience, func() error {
			if s.ear.of(name) <= before[name]+20 {
				return errors.New("nothing is heard of it")
			}
			return nil
		})
		if err != nil {
			e, _ := s.endpoint(name)
			s.T.Errorf("%s: %s may talk: %v; its interface is %+v", what, name, err, e)
		}
	}
}

func (s *street) shut(what string) {
	s.T.Helper()
	s.ear.mu.Lock()
	defer s.ear.mu.Unlock()
	for name, n := range s.ear.heard {
		if strings.HasPrefix(name, "shut") && n > 0 {
			s.T.Errorf("%s: %d packets of %s are heard, want none", what, n, name)
		}
	}
}
